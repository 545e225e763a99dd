"""Tables of rates as people write them, in words, units and numbers of their own.

A column is known by what its heading says (`headings`), or the unit in its cells, which wins; worker counts and one
column of rates or times are needed, all else is optional. Rows are one series only if all that tells runs apart is
equal. A cell or row without a rate (OOM, a dash, 0, words) is left out, and noted with its line; a column that no word
explains is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import isnan, nan, prod

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.texts.grids import MAX_ROWS, RULED, Grid, is_number, product_in, tables
from stallpoint_files.texts.headings import CHIP, COUNTS, PER_WORKER, TIMES, ColumnKind, kind_of
from stallpoint_files.texts.languages import in_english
from stallpoint_files.texts.numbers import (
    MISSING,
    decimal_comma,
    deviation_in,
    ends_of,
    is_numeric,
    number_in,
    per_second,
    seconds_in,
    unit_in,
    without_deviation,
)
from stallpoint_files.texts.sentences import COUNT_AHEAD, question

MAX_WORKERS = 10**9
MIN_RATE, MAX_RATE = 1e-15, 1e15
"""Rates are between these: whatever is computed from them stays finite."""
FASTER = 1.2
"""Factor from which on as many workers on more nodes would be too much faster to be as many."""
FIRST_SPEEDUP = 0.03
"""How far a speedup of workers may be from 1 at the smallest count."""

POSTED = 4000
"""Characters of a text up to which it may be a sentence or two with its setup."""
PROSE = 9
"""Words from which on a cell is no heading but a sentence."""
EACH, ALL = "each", "all"
"""Rates are those of each worker, or of all."""
WEAK, STRONG = "weak", "strong"


@dataclass(frozen=True)
class RateRow:
    """One measurement: samples per second, or seconds of a step or an epoch where `seconds` says so."""

    series: str
    workers: int
    value: float | None
    workers_per_node: float | None = None
    batch_per_worker: float | None = None
    line: int = 0
    global_batch: float | None = None
    """Samples in the mini-batch of all workers."""
    deviation: float = 0.0
    """How far repeats or steps scatter, relative to the value, where the table says it."""


@dataclass(frozen=True)
class Rates:
    """What a table says of rates."""

    rows: Sequence[RateRow]
    unit: str = "samples/s"
    of: str = ""
    """`EACH` or `ALL`, where the heading says it."""
    seconds: str = ""
    """``iteration`` or ``epoch`` where values are times, s; also of a whole run, which is as much work on any count."""
    counted: str = "workers"
    """What the counts are of, in the table's word: GPUs; nodes, where no column says how many workers these have."""
    notes: Sequence[str] = field(default=())
    setup: str = ""
    """What the file says of model, precision and hardware."""
    text: str = ""
    """The text around them, where it is as short as people post it."""
    scaling: str = ""
    """`WEAK` or `STRONG`, where the text says it."""
    spread: float | None = None
    """Relative deviation of iterations within a run, where a log has many."""
    tables: int = 1
    """Number of tables of the file, this one included."""


_RAN = re.compile(
    r"(\w*net|inception|vgg|bert|gpt|t5|llama|mi[sx]tral|qwen|bloom|opt|falcon|vit|swin|\w*former|g?nmt|dlrm|ncf|ssd|yolo)"
    r"[ _-]?v?\d*(?![a-z]).*",
    re.IGNORECASE,
)
"""Headings that name the network that ran; the numbers below it may be its rates."""
_EXTREME = re.compile(
    r"(?<![a-z])(min(imum)?|max(imum)?|best|worst|p\d\d|peak|ideal|expected|theor\w*|linear|predicted|estimated|initial)(?![a-z])",
    re.IGNORECASE,
)
"""Headings of what was not measured, or not most of the time."""
_HOPED = re.compile(
    r"(?<!than )\b(?:expected|estimated|projected|predicted|theoretical)(?: \w+)? "
    r"(?:results?|times?|throughputs?|performance|speed(?:-?ups?)?|scaling|rates?|numbers|hours|duration)\b|"
    r"\b(?:throughput|performance|scaling|speed|time) (?:projections?|expectations?|estimates?|targets?)\b|"
    r"\bassum(?:es|ing) (?:\w+ )?(?:linear|ideal|perfect)|\bresource (?:requests?|requirements?)|\btime ?limits?\b",
    re.IGNORECASE,
)
"""Headings of tables and columns whose numbers were not measured."""
_NEAR = 5
"""Lines above a table that say whether its mini-batch stays, where the rest of the text says both."""
_LONGEST_TITLE = 80
"""Characters above which a line before a table is a sentence, which may say many things."""
_MIDDLE = re.compile(r"(?<![a-z])(?:median|mean|average|avg)(?![a-z])", re.IGNORECASE)
"""Which middle of the same repeats a heading names; the first of several is the least disturbed by outliers."""
_BANDWIDTH = re.compile(r"(?<![a-z])(?:bus|alg) ?bw|bandwidth", re.IGNORECASE)
_LONGEST_STEP = 1e6
"""Seconds above which no column holds times of steps."""
_OF_COUNT = re.compile(r"\s*(?:[x×] ?(\d+)$|\b(\d+)[ -]?(?:nodes?|gpus?|workers?|devices?)\b)", re.IGNORECASE)
_ALONE = re.compile(r"(?:single|one|1)[ -]?x? ?(?:gpu|device|worker|process|card)|baseline|serial", re.IGNORECASE)
"""Settings of the one worker with which the curves of all others begin."""
_TOTAL = re.compile(r"total|overall|end.to.end|\be2e\b|(step|iter(ation)?)[ _]time", re.IGNORECASE)
_ALL = re.compile(r"(?<![a-z])(total|aggregated?|global|all)(?![a-z])", re.IGNORECASE)
_IN_CELL = re.compile(r"\W*[\d.,]+(?: ?[-–] ?[\d.,]+)? *([a-zA-Zµμ]\w*([ /]+\w+)*)")
_BOUND = re.compile(r"\s*(?:(<|≤|less than|under)|>|≥|more than|over)\s*~?\d", re.IGNORECASE)
"""Cells such as ``>24h``."""
_SPEEDUP_FITS = 0.05
_WHOLE = re.compile(r"\d{1,3}(,\d{3})+|\d+(\.0*)?|\d+ ?k", re.IGNORECASE)
_FACTOR = re.compile(r"\W*[\d.]+ ?[x×](?!\w)", re.IGNORECASE)
_EPOCH = re.compile(r"epoch *#?\d", re.IGNORECASE)
"""Headings of the time of one epoch: ``epoch 1+ (warm)``."""
_STEPS = re.compile(r"iter|step|batch|\bit\b", re.IGNORECASE)
_SAID = {
    STRONG: r"strong scaling|(global|total|effective)[ -]batch( size)? "
    r"(is |was )?(the same|kept|fixed|constant|unchanged|stay(s|ed))|"
    r"(same|fixed|constant) (global|total|effective)[ -]batch",
    WEAK: r"weak scaling|(per|each)[ -](gpu|device|worker|card)[ -]((train|micro|mini)[ -]?)?batch|"
    r"batch( size)?( per |/)(gpu|device|worker) (is |was )?(the same|kept|fixed|constant|unchanged|stay(s|ed))|"
    r"batch( size)?( of)? \d+ (on|for|per) (each|every)? ?(gpu|device|worker)|"
    r"(each|every) (gpu|device|worker) (has|keeps|gets) (a (mini-?)?batch|\d+ samples)",
}
"""How texts say whether a mini-batch stays with each worker or is split."""
_MODE = re.compile(rf"(?<![a-z])(?:{WEAK}|{STRONG})(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class _Proportional:
    """Columns that rise and fall with a rate, or its inverse, for tables without one."""

    kind: str
    unit: str
    of: str
    percent: bool = False
    inverse: bool = False


_PROPORTIONAL = (
    _Proportional(ColumnKind.WORKER_TIME, "runs/{day}", EACH, inverse=True),
    _Proportional(ColumnKind.FLOPS, "TFLOP/s", ""),
    _Proportional(ColumnKind.SPEEDUP, "times the first", ALL),
    _Proportional(ColumnKind.MFU, "workers at peak", EACH, percent=True),
    _Proportional(ColumnKind.EFFICIENCY, "ideal workers", EACH, percent=True),
)


def recognised(document: Document) -> bool:
    """Return whether the text has a heading of worker counts beside others, and a row of numbers."""
    return bool(_tables(document))


@lru_cache(maxsize=1)
def _tables(document: Document) -> list[Grid]:
    return tables(document, _is_head)


def _is_head(cells: Sequence[str]) -> bool:
    kinds = [kind_of(cell) for cell in cells]
    return (
        len(cells) >= 2
        and (ColumnKind.WORKERS in kinds or ColumnKind.NODES in kinds)
        and not any(map(is_number, cells))
    )


EXPECTED = (
    "expected is a table with a heading for each column: workers (or gpus, ranks, nodes) and a rate "
    "(samples_per_second, "
    "tokens/s, images/s) or a time (s/iteration, epoch time); series and workers_per_node are optional"
)


def read(document: Document) -> list[Rates]:
    """Return the rates in each table; `InputError` names the line, what was expected, and how to write it."""
    found = _tables(document)
    if not found:
        raise InputError(f"{document.path}, line 1: no heading of worker counts; {EXPECTED}")
    hoped = [next(filter(_is_hoped, (grid.above, *_titles(document, grid))), "") for grid in found]
    measured = [grid for grid, title in zip(found, hoped, strict=True) if not title]
    if not measured:
        raise document.error(found[0].rows[0][0], _not_measured(hoped[0]))
    scaling = _scaling_in(in_english(document.text[:100_000]))
    read: list[Rates] = []
    left: list[InputError] = []
    for grid in _joined(measured):
        try:
            read += RateTable(document, grid, grid.above if len(found) > 1 else "").by_scaling()
        except InputError as error:
            left.append(error)
    if not read:
        raise left[0]
    begin = f"{document.path}, "
    notes = tuple(str(error).removeprefix(begin).partition(";")[0] + "; left out" for error in left)
    read[0] = replace(read[0], notes=(*notes, *read[0].notes))
    text = document.text if len(document.text) <= POSTED else ""
    return [replace(one, text=text, scaling=one.scaling or scaling, tables=len(read)) for one in read]


def _joined(grids: Sequence[Grid]) -> Iterator[Grid]:
    """Yield tables; those of one further count each, below equal headings and titles, are joined to the one before."""
    last: Grid | None = None
    counts: set[str] = set()
    for grid in grids:
        heads = grid.rows[0][1]
        place = next(index for kind in COUNTS for index, head in enumerate(heads) if kind_of(head) == kind)
        own = {cells[place] for _, cells in grid.rows[1:] if place < len(cells)}
        titles = {re.sub(r"\d+|s\b", "", one.above) for one in (last, grid) if one}
        if last and len(own) == 1 and not own & counts and heads == last.rows[0][1] and len(titles) == 1:
            last = replace(last, rows=[*last.rows, *grid.rows[1:]], above="")
        else:
            if last:
                yield last
            last, counts = grid, set() if len(own) == 1 else {*own, *"*"}
        counts |= own
    if last:
        yield last


def _plain(heading: str) -> str:
    """Return a heading without the words for means and deviations."""
    return re.sub(r"(?:std|stdev|sd|sem|ci|dev\w*|mean|median|average|avg)(?![a-z])|\W|_", "", heading.lower())


def _titles(document: Document, grid: Grid) -> Iterator[str]:
    """Yield the headings of Markdown that a table is below, the nearest first."""
    level = 7
    for line in reversed(document.raw_lines[: grid.rows[0][0] - 1]):
        marks = len(line) - len(line.lstrip("#"))
        if 0 < marks < level:
            level = marks
            yield line


def _is_hoped(title: str) -> bool:
    return len(title) <= _LONGEST_TITLE and _HOPED.search(title) is not None


def _not_measured(what: str) -> str:
    return f"{what[:60]}: what was expected was not measured; give the rates or times of runs"


def _scaling_in(text: str) -> str:
    """Return `WEAK` or `STRONG` where a text says one of them."""
    said = [name for name, words in _SAID.items() if re.search(words, text, re.IGNORECASE)]
    return said[0] if len(said) == 1 else ""


def _mode(row: RateRow) -> str:
    """Return `WEAK` or `STRONG` where a row's own setting says it."""
    found = _MODE.search(row.series)
    return found[0].lower() if found else ""


class NoRow(Exception):
    """A line that is no row of the table, and why."""


class RateTable:
    """One table while it is read."""

    def __init__(self, document: Document, grid: Grid, name: str) -> None:
        self.document, self.grid = document, grid
        self.line, self.headings = grid.rows[0]
        self.name = name or document.path.stem
        texts = grid.separator.strip() and len(self.headings) > 1
        self.body = [row for row in grid.rows[1:] if any(row[1]) and not (texts and len(row[1]) == 1)]
        self.notes: list[str] = []
        self.scaling = _scaling_in(in_english(" ".join(document.raw_lines[max(self.line - _NEAR, 0) : self.line - 1])))
        self.left: list[InputError] = []
        """What is wrong in lines that are left out."""
        if len(self.body) > MAX_ROWS:
            raise InputError(f"{document.path}: more than {MAX_ROWS:,} rows; give those of one study")
        if not grid.separator.strip() and {len(cells) for _, cells in self.body} == {len(self.headings) + 1}:
            self.headings = ["", *self.headings]  # pandas writes no heading above its index
        self._check_widths()
        self.columns = [[self._cell(cells, index) for _, cells in self.body] for index in range(len(self.headings))]
        self._take_units()
        self._take_metrics()
        self.comma = grid.separator != "," and decimal_comma(self.columns, grid.separator)
        self.kinds = list(map(self._kind, range(len(self.headings))))
        self._fill_down()
        self._part_counts_from_settings()
        self.values, self.like = self._value_columns()
        self.several = len(self.values) > 1
        each = re.search(
            rf"\b(\d{{1,3}}) ?x? ?(?:gpus?|{CHIP}s?)\b", " ".join(self._headings_of(ColumnKind.NODES)), re.I
        )
        self.each = float(each[1]) if each else None
        """Workers of each node, where the heading of nodes says them."""
        self.settings = self._setting_columns()
        self.deviations = self._deviation_columns()

    def _check_widths(self) -> None:
        """Refuse rows with more cells than headings; what stands around aligned columns is no row of them."""
        if not self.grid.separator.strip():
            self.body = [row for row in self.body if len(row[1]) == len(self.headings)]
        for number, cells in self.body:
            if len(cells) > len(self.headings) and any(cells[len(self.headings) :]):
                hint = "a number with a comma in it goes in quotes" if self.grid.separator == "," else "check the row"
                raise self.document.error(
                    number, f"{len(cells)} cells for {len(self.headings)} columns ({', '.join(self.headings)}); {hint}"
                )

    def _take_units(self) -> None:
        """Write the units that have a column of their own behind the numbers of the column before it."""
        for index in range(1, len(self.headings)):
            if self.headings[index].strip(" *`").lower() in ("unit", "units"):
                pairs = zip(self.columns[index - 1], self.columns[index], strict=True)
                self.columns[index - 1] = [
                    f"{number} {unit}" if is_number(number) else number for number, unit in pairs
                ]
                self.columns[index] = [""] * len(self.body)

    def _take_metrics(self) -> None:
        """Keep the rows of one rate or time, where a column names what is in that of values."""
        heads = [head.strip(" *`").lower() for head in self.headings]
        for names in self.columns if "value" in heads else ():
            what = next((one for one in names if kind_of(one) in (ColumnKind.RATE, *TIMES) and not is_numeric(one)), "")
            if what:
                self.headings = [what if head == "value" else head for head in heads]
                kept = [place for place, name in enumerate(names) if name == what]
                self.body = [self.body[place] for place in kept]
                self.columns = [[column[place] for place in kept] for column in self.columns]
                return

    @staticmethod
    def _cell(cells: Sequence[str], index: int) -> str:
        return cells[index].strip().strip("*`") if index < len(cells) else ""

    def _kind(self, index: int) -> str:
        """Return what a column holds: what its heading says, or else the unit in its cells."""
        heading, cells = self.headings[index], [cell for cell in self.columns[index] if not MISSING.fullmatch(cell)]
        kind = kind_of(heading)
        if kind in COUNTS and cells and not any(map(is_numeric, cells)):
            counts = sum(kind_of(head) in COUNTS for head in self.headings)
            return ColumnKind.SETTING if counts > 1 else kind  # the cells hold names, not counts
        if kind == ColumnKind.ITERATION and not _STEPS.search(heading) and cells:
            longer = re.search(r"\d\s*(m(in\w*)?|h\w*|d(ays?)?)\b|\d:\d\d", cells[0])  # no step takes minutes
            kind = ColumnKind.EPOCH if longer else kind
        if kind == ColumnKind.ITERATION and any(seconds_in(cell, heading, False) > _LONGEST_STEP for cell in cells):
            return ""
        if heading == "min" and any(map(_MIDDLE.search, self.headings)):
            return ColumnKind.OTHER  # the shortest repeat
        if kind == ColumnKind.RATE and cells and all(map(_FACTOR.match, cells)):
            return ColumnKind.SPEEDUP
        unit = _IN_CELL.fullmatch(without_deviation(cells[0])) if cells else None
        if not unit or kind not in ("", ColumnKind.RATE, ColumnKind.LABEL, *TIMES):
            return kind
        of_unit = kind_of(unit[1])
        if of_unit == ColumnKind.OTHER:
            return ""
        if kind in ("", ColumnKind.LABEL) and of_unit in TIMES and _EPOCH.match(heading):
            return ColumnKind.EPOCH
        if kind and of_unit in (ColumnKind.RATE, *TIMES):  # a cell's unit wins, but does not say what is timed
            return kind if kind in TIMES and of_unit in TIMES else of_unit
        kind = kind or kind_of(f"{heading} {unit[1]}")
        return kind if kind in (ColumnKind.RATE, *TIMES) else ""

    def _fill_down(self) -> None:
        """Write what stands once for the rows below it into each of them."""
        for index, kind in enumerate(self.kinds):
            if kind == ColumnKind.SETTING and self.columns[index] and self.columns[index][0]:
                for row in range(1, len(self.body)):
                    self.columns[index][row] = self.columns[index][row] or self.columns[index][row - 1]

    def _part_counts_from_settings(self) -> None:
        """Take counts that other columns say, too, out of settings: ``2 nodes NCCL``, ``DDP ×2``."""
        for index, kind in enumerate(self.kinds):
            cells = self.columns[index]
            ahead = [COUNT_AHEAD.match(cell) for cell in cells]
            rest = [cell[one.end() :].strip() for cell, one in zip(cells, ahead, strict=True) if one]
            if kind in ("", ColumnKind.SETTING) and len(rest) == len(cells) and any(rest):
                self.columns[index], self.kinds[index] = rest, ColumnKind.SETTING
            elif kind == ColumnKind.SETTING:
                self.columns[index] = [
                    cell.replace(one[0], "")
                    if (one := _OF_COUNT.search(cell)) and (one[1] or one[2]) in count
                    else cell
                    for cell, count in zip(cells, map(str.split, self._counts()), strict=True)
                ]

    # --- which columns ----------------------------------------------------------------------------

    def _value_columns(self) -> tuple[list[int], _Proportional | None]:
        """Return the columns with rates, one series each: those whose heading says so, else those that name networks or
        repeats, else the first in proportion to a rate, else all that may hold rates."""
        of_kind = {kind: [index for index, one in enumerate(self.kinds) if one == kind] for kind in set(self.kinds)}
        if any(map(_BANDWIDTH.search, self.headings)):  # a collective's latency is no time of a step
            of_kind[ColumnKind.ITERATION] = [
                index
                for index in of_kind.get(ColumnKind.ITERATION, ())
                if "latency" not in self.headings[index].lower()
            ]
            if not any(of_kind.get(kind) for kind in (ColumnKind.RATE, *TIMES)):
                raise self._no_rates()
        totals = [index for index in of_kind.get(ColumnKind.ITERATION, ()) if _TOTAL.search(self.headings[index])]
        for found in (
            of_kind.get(ColumnKind.RATE),
            totals,
            of_kind.get(ColumnKind.EPOCH),
            of_kind.get(ColumnKind.ITERATION),
        ):
            if found:
                return self._best(found), None
        unknown = [
            index
            for index in of_kind.get("", ())
            if self.headings[index]
            and self._has_numbers(index)
            and not any("%" in cell for cell in self.columns[index])
        ]
        labels = [index for index in of_kind.get(ColumnKind.LABEL, ()) if self._has_numbers(index)]
        if ran := list(filter(self._ran, unknown or labels)):
            return ran, None
        for like in _PROPORTIONAL:
            if columns := of_kind.get(like.kind, []):
                measured = [index for index in columns if not _EXTREME.search(self.headings[index])]
                return self._best(measured or columns), like
        if not unknown and not labels:
            raise self._no_rates()
        return unknown or labels, None

    def _no_rates(self) -> InputError:
        words = f"no column of rates among {', '.join(self.headings)[:200]}"
        return self.document.error(self.line, f"{words}; a unit says which, such as (images/s) or (s/iteration)")

    def _best(self, found: list[int]) -> list[int]:
        """Return the columns of rates or times that say most: not extremes, not those of one worker beside all, one
        middle of the same repeats. `InputError` where what is left was not measured."""
        exact = [index for index in found if self.headings[index] == "samples_per_second"]
        usual = [index for index in found if not _EXTREME.search(self.headings[index])] or found
        for other in (lambda head: unit_in(head) == "iterations/s", PER_WORKER.search):
            usual = [index for index in usual if not other(self.headings[index])] or usual
        middles: dict[str, list[int]] = {}
        for index in usual:
            if middle := _MIDDLE.search(self.headings[index]):
                others = middles.setdefault(self.headings[index].replace(middle[0], ""), [])
                others.insert(0 if middle[0].lower() == "median" else len(others), index)
        usual = [index for index in usual if not any(index in same[1:] for same in middles.values())]
        if all(_HOPED.search(self.headings[index].replace("_", " ")) for index in usual):
            raise self.document.error(self.line, _not_measured(self.headings[usual[0]]))
        tokens = [index for index in usual if unit_in(self.headings[index]) == "tokens/s"]
        return exact or tokens or usual

    def _setting_columns(self) -> list[int]:
        """Return the columns that tell runs apart: those whose heading says so, those of words in each row that are no
        names of single runs, and numbers in which rows of one count differ, such as batches."""
        counts = self._counts()
        found = [
            index
            for index, kind in enumerate(self.kinds)
            if kind == ColumnKind.SETTING and any(self.columns[index]) and not self._grows(index)
        ]
        unread = []
        for index, kind in enumerate(self.kinds):
            if kind or index in self.values or not any(self.columns[index]):
                continue
            words = all(self.columns[index]) and not any(map(is_numeric, self.columns[index]))
            if words and len(set(self.columns[index])) == len(self.body) and len(set(counts)) > 2:
                note = f"{self.headings[index]} differs in each row and is read as the name of a run"
                self.notes += [f"line {self.body[0][0]}: {note}"]
            elif words:
                found.append(index)
            else:
                unread.append(index)
        of_batches = (ColumnKind.WORKER_BATCH, ColumnKind.BATCH, ColumnKind.GLOBAL_BATCH, ColumnKind.ACCUMULATION)
        places = [(kind, index) for kind in of_batches for index in range(len(self.kinds)) if index not in self.values]
        batches = [index for kind, index in places if self.kinds[index] == kind]
        for index in (*batches, *unread):
            if self._splits(index, found, counts, alone=index in batches):
                found.append(index)
        names = [self.headings[index] for index in unread if index not in found and self.headings[index]]
        if names:
            self.notes.append(f"not understood and not read: {', '.join(names)[:200]}")
        return found

    def _grows(self, index: int) -> bool:
        """Return whether a column's sizes, such as ``(4096, 512)``, grow with the workers: each keeps its part."""
        count = next(self.kinds.index(kind) for kind in COUNTS if kind in self.kinds)
        each = set()
        for cell, text in zip(self.columns[index], self.columns[count], strict=True):
            workers, sizes = product_in(text) or (1, number_in(text)), re.findall(r"\d+", cell)
            if len(sizes) < 2 or not workers[1] > 0:
                return False
            each.add(prod(map(int, sizes)) / prod(workers))
        grown = len(each) == 1 and len(set(self.columns[index])) > 1
        self.scaling = WEAK if grown else self.scaling
        return grown

    def _deviation_columns(self) -> dict[int, int]:
        """Return the column with the deviations of each column of values: of the same words, or else behind it."""
        found: dict[int, int] = {}
        for index in (place for place, kind in enumerate(self.kinds) if kind == ColumnKind.SCATTER):
            words = _plain(self.headings[index])
            same = [one for one in self.values if words and _plain(self.headings[one]) == words]
            if (of := same[0] if same else index - 1) in self.values:
                found[of] = index
            else:
                self.notes.append(f"not understood and not read: {self.headings[index][:200]}")
        return found

    def _splits(self, index: int, settings: Sequence[int], counts: Sequence[str], *, alone: bool) -> bool:
        """Return whether rows of one count and equal settings differ in a column. Unless that is enough (`alone`), a
        value also has to occur at several counts, or, if there is one count only, with several settings."""
        alike: dict[tuple[str, ...], set[str]] = {}
        of: dict[str, set[str]] = {}
        for row, count in enumerate(counts):
            key = (count, *(self.columns[one][row] for one in settings))
            alike.setdefault(key, set()).add(self.columns[index][row])
            of.setdefault(self.columns[index][row], set()).add(count if len(set(counts)) > 1 else " ".join(key))
        return max(map(len, alike.values()), default=0) > 1 and (alone or max(map(len, of.values())) > 1)

    def _counts(self) -> list[str]:
        columns = [
            self.columns[index] for index, kind in enumerate(self.kinds) if kind in (*COUNTS, ColumnKind.PER_NODE)
        ]
        return [" ".join(cells) for cells in zip(*columns, strict=True)]

    def _has_numbers(self, index: int) -> bool:
        return any(map(is_numeric, self.columns[index]))

    def _ran(self, index: int) -> bool:
        """Return whether a heading names a network, or one of several repeats, as ``run 2``."""
        heading = self.headings[index]
        return bool(_RAN.fullmatch(heading) or (kind_of(heading) == ColumnKind.LABEL and heading[-1:].isdigit()))

    def _counted_in_each_node(self, value: int) -> bool:
        """Return whether GPUs beside nodes are those of each node: their number stays, and more nodes are faster."""
        if not {ColumnKind.NODES, ColumnKind.WORKERS} <= set(self.kinds) or ColumnKind.PER_NODE in self.kinds:
            return False
        nodes, workers = (self.columns[self.kinds.index(kind)] for kind in (ColumnKind.NODES, ColumnKind.WORKERS))
        rows = zip(nodes, self.columns[value], strict=True)
        read = [[number_in(cell, decimal_comma=self.comma) for cell in row] for row in rows]
        known = sorted(row for row in read if row[0] > 0 and row[1] > 0)
        if not known or len(set(workers)) > 1:
            return False
        first, last = known[0][1], known[-1][1]
        return (first / last if self.kinds[value] in TIMES else last / first) > FASTER

    def _is_of_epochs(self, time: str) -> bool:
        """Return whether a time without a word for what took it is that of the epoch that each row numbers."""
        heads = [heading.lower() for heading in self.headings]
        return "epoch" in heads and not any(_STEPS.search(heading) for heading in (time, *heads))

    def _headings_of(self, kind: str) -> list[str]:
        return [heading for heading, one in zip(self.headings, self.kinds, strict=True) if one == kind]

    # --- its rates --------------------------------------------------------------------------------

    def by_scaling(self) -> Iterator[Rates]:
        """Yield the rates of columns of strong and of weak scaling, and of all others, apart."""
        groups: dict[str, list[int]] = {}
        for index in self.values:
            groups.setdefault(_scaling_in(self.headings[index]), []).append(index)
        for scaling, self.values in groups.items():
            rates = self.rates()
            for mode in dict.fromkeys(map(_mode, rates.rows)):
                rows = [row for row in rates.rows if _mode(row) == mode]
                yield replace(rates, rows=rows, scaling=scaling or mode or rates.scaling)
            self.notes, self.left = [], []

    def rates(self) -> Rates:
        """Return the table's rates."""
        values, like = self.values, self.like
        if self._counted_in_each_node(values[0]):
            self.kinds[self.kinds.index(ColumnKind.WORKERS)] = ColumnKind.PER_NODE
        kind = self.kinds[values[0]]
        rows = list(_with_one_alone(list(chain.from_iterable(map(self._rows, range(len(self.body)))))))
        self._check_left(rows)
        heads = [self.headings[index] for index in values]
        seconds = kind if kind in TIMES else ""
        in_cell = next((one[1] for cell in self.columns[values[0]] if (one := _IN_CELL.fullmatch(cell))), "")
        of = EACH if PER_WORKER.search(" ".join([*heads, in_cell])) else ALL if _ALL.search(heads[0]) else ""
        if like:
            if like.percent and max((row.value or 0.0 for row in rows), default=0.0) > 1.5:
                rows = [replace(row, value=row.value and row.value / 100) for row in rows]
            if like.inverse:
                rows = [replace(row, value=row.value and 1 / row.value) for row in rows]
            if like.kind == ColumnKind.SPEEDUP:
                self._check_speedup(rows)
            unit = like.unit.format(day="day" if "day" in heads[0].lower() else "h")
            return Rates(rows, unit, of or like.of, "", self._counted(), tuple(self.notes))
        unit = unit_in(" ".join([*heads, *self.columns[values[0]][:3]])) or "samples/s"
        of_epochs = "epoch" in heads[0].lower()
        if seconds == ColumnKind.ITERATION and self._is_of_epochs(heads[0]):
            seconds, of_epochs = ColumnKind.EPOCH, True
        if kind == ColumnKind.RATE and unit == "iterations/s":
            seconds = ColumnKind.ITERATION
            rows = [replace(row, value=row.value and 1 / row.value) for row in rows]
        if seconds == ColumnKind.EPOCH:
            unit = "epochs/h" if of_epochs else "runs/h"
        elif not kind or kind == ColumnKind.LABEL:
            self._check_named(values, rows)
        if ColumnKind.BATCH in self.kinds:
            series = dict.fromkeys(row.series for row in rows)
            rows = [row for one in series for row in _with_batches([row for row in rows if row.series == one], seconds)]
        if seconds and ColumnKind.WORK in self.kinds and not _MIDDLE.fullmatch(heads[0]):
            done = self._headings_of(ColumnKind.WORK)[0]
            of_part = of_epochs or _STEPS.search(heads[0])
            if self._is_data_set(done, heads[0]):
                self.notes.append(
                    f"{done} is the same in each row, the data set's size perhaps: nothing is divided by it"
                )
            elif bool(of_part) == bool(_STEPS.search(done.partition("/")[2] or done.partition("per")[2])):
                return self._rates_of_work(rows)
        scaling = self._scaling_by_speedup(rows) if seconds == ColumnKind.ITERATION else ""
        scaling = scaling or self.scaling
        of = "" if seconds else of
        return Rates(rows, unit, of, seconds, self._counted(), tuple(self.notes), scaling=scaling)

    def _scaling_by_speedup(self, rows: Sequence[RateRow]) -> str:
        """Return `WEAK` or `STRONG` where speedups, or efficiencies, fit the times of steps in only one of them."""
        kind = next((one for one in (ColumnKind.SPEEDUP, ColumnKind.EFFICIENCY) if one in self.kinds), None)
        if kind is None or len({row.series for row in rows}) > 1:
            return ""
        said = self._numbers(kind)
        known = sorted(
            (row.workers, row.value, said[row.line] * (row.workers if kind == ColumnKind.EFFICIENCY else 1))
            for row in rows
            if row.value and said[row.line] > 0
        )
        if len(known) < 2:
            return ""
        first, seconds, begin = known[0]

        def fits(more: Callable[[int], float]) -> bool:
            return all(
                abs(more(count) * seconds / value / (speedup / begin) - 1) <= _SPEEDUP_FITS
                for count, value, speedup in known
            )

        possible = [name for name, more in ((STRONG, lambda _: 1.0), (WEAK, lambda count: count / first)) if fits(more)]
        return possible[0] if len(possible) == 1 else ""

    def _is_data_set(self, done: str, time: str) -> bool:
        """Return whether samples beside times of whole trainings are the same in all rows: they are the size of the
        data set then, and the number of epochs is unknown."""
        numbers = {number for number in self._numbers(ColumnKind.WORK).values() if number > 0}
        of_samples = not re.search(r"epoch|step|iter|batch", f"{done} {time}", re.IGNORECASE)
        return of_samples and len(numbers) == 1 and "train" in time.lower()

    def _rates_of_work(self, rows: Sequence[RateRow]) -> Rates:
        """Return the rates of times of which a column says how much was done in them."""
        done, (heading, *_) = self._numbers(ColumnKind.WORK), self._headings_of(ColumnKind.WORK)
        of = [replace(row, value=row.value and done[row.line] / row.value) for row in rows if done[row.line] > 0]
        unit = re.split(r" ?/| per ", heading)[0]
        return Rates(of, f"{unit}/s", ALL, "", self._counted(), tuple(self.notes))

    def _numbers(self, kind: str) -> dict[int, float]:
        """Return the numbers in the first column of a kind by their lines; NaN where a cell has none."""
        cells = self.columns[self.kinds.index(kind)]
        numbers = (number_in(cell, decimal_comma=self.comma) for cell in cells)
        return dict(zip((line for line, _ in self.body), numbers, strict=True))

    def _check_left(self, rows: Sequence[RateRow]) -> None:
        """Note what lines are left out, or refuse the table where too little remains."""
        if self.left and len({row.workers for row in rows if row.value is not None}) < 2:
            raise self.left[0]
        if rows and all(row.value is None for row in rows) and not self.left:
            heads = ", ".join(self.headings[index] for index in self.values)
            raise self.document.error(
                self.line, f"no numbers below {heads[:60]}; a rate or time on each count is needed"
            )
        if not rows:
            raise InputError(
                f"{self.document.path}: no rows below the heading of line {self.line}; one for each count is expected"
            )
        begin = f"{self.document.path}, "
        self.notes += [str(error).removeprefix(begin).partition(";")[0] + "; left out" for error in self.left]

    def _check_speedup(self, rows: Sequence[RateRow]) -> None:
        """Refuse speedups that are not 1 at the smallest count, or the count itself: they are of something else."""
        least = min((row for row in rows if row.value), key=lambda row: row.workers, default=None)
        if least and abs((least.value or 0) - 1) <= FIRST_SPEEDUP:
            return  # all speedups are relative to this one
        for name in dict.fromkeys(row.series for row in rows):
            first = min(
                (row for row in rows if row.series == name and row.value), key=lambda row: row.workers, default=None
            )
            ratio = first.value if first and first.value else 1.0
            if first and abs(ratio - 1) > FIRST_SPEEDUP and abs(ratio / first.workers - 1) > 0.1:
                what = f"{self.headings[self.values[0]]} is {ratio:g} on {first.workers}, the smallest count, and not 1"
                ask = "a speedup of something else says nothing of scaling; give the rates or times that it is made of"
                raise self.document.error(first.line, f"{what}: {ask}")

    def _check_named(self, values: Sequence[int], rows: Sequence[RateRow]) -> None:
        """Refuse columns that do not say what they hold, unless they name networks or repeats and do not fall with the
        workers."""
        known = sorted((row.workers, row.value) for row in rows if row.value)
        heading = self.headings[values[0]][:40]
        words = ", ".join(self.headings[index] for index in values)[:200]
        if known and known[-1][1] < 0.95 * known[0][1]:
            what = f"{heading} falls with the workers and is a rate or a time"
        elif not all(map(self._ran, values)):
            what = f"nothing says whether {words} {'are rates or times' if len(values) > 1 else 'is a rate or a time'}"
        else:
            return
        raise self.document.error(
            self.line, f"{what}; a unit says which, such as {heading} (images/s), (s/iteration) or (minutes)"
        )

    def _counted(self) -> str:
        for kind in (ColumnKind.WORKERS, ColumnKind.PER_NODE):
            if kind in self.kinds:
                name = self.headings[self.kinds.index(kind)].lower()
                return "GPUs" if "gpu" in name or not kind_of(re.sub(r"\w*\d\w*", "", name)) else "workers"
        return "GPUs" if self.each else "nodes"

    def _rows(self, row: int) -> Iterator[RateRow]:
        number = self.body[row][0]
        try:
            workers = self._count(row, ColumnKind.WORKERS if ColumnKind.WORKERS in self.kinds else ColumnKind.NODES)
        except NoRow as error:
            self.left.append(self.document.error(number, str(error)))
            return
        per_node = self._optional(row, ColumnKind.PER_NODE) or self.each
        if ColumnKind.WORKERS not in self.kinds:
            workers *= int(per_node or 1)
        elif per_node is None and (nodes := self._optional(row, ColumnKind.NODES)):
            per_node = workers / nodes
        if ColumnKind.WORKERS in self.kinds and (
            product := product_in(self.columns[self.kinds.index(ColumnKind.WORKERS)][row])
        ):
            head = self.headings[self.kinds.index(ColumnKind.WORKERS)].lower().partition("node")
            per_node = float(product[1 if "gpu" not in head[0] or not head[1] else 0])
        batch, total, steps = (
            self._batch(row, kind)
            for kind in (ColumnKind.WORKER_BATCH, ColumnKind.GLOBAL_BATCH, ColumnKind.ACCUMULATION)
        )
        # What all workers process together is said once: by its own column, or else by the accumulated micro-batches.
        batch = None if total else batch * (steps or 1.0) if batch else self._batch(row, ColumnKind.BATCH)
        name = self._series(row)
        repeats = all(self.kinds[index] == ColumnKind.LABEL for index in self.values)
        for index in self.values:
            series = name if repeats or not self.several else f"{name} {self.headings[index].strip('*` ')}".strip()
            cell = self.columns[index][row]
            beside = f"{cell} ± {self.columns[self.deviations[index]][row]}" if index in self.deviations else cell
            deviation = deviation_in(beside, self.comma)
            for text in ends_of(cell):
                yield RateRow(
                    series, workers, self._rate(number, text, index), per_node, batch, number, total, deviation
                )  # fmt: skip

    def _series(self, row: int) -> str:
        """Return the cells of settings that differ between rows, or else those of words."""
        groups: set[tuple[str, ...]] = {()}
        chosen: list[int] = []
        for index in self.settings:  # this setting must tell more rows apart
            more = {tuple(cells) for cells in zip(*(self.columns[one] for one in (*chosen, index)), strict=True)}
            if len(more) > len(groups):
                groups, chosen = more, [*chosen, index]
        chosen = chosen or [index for index in self.settings if not self._has_numbers(index)]
        words = " ".join(
            f"{self.headings[index]} {cell}" if is_number(cell) and self.headings[index] != "series" else cell
            for index in chosen
            if (cell := self.columns[index][row])
        )
        several = self.several and any(self.kinds[index] != ColumnKind.LABEL for index in self.values)
        return re.sub(r"[*`]", "", words) if words or several else self.name

    def _count(self, row: int, kind: str) -> int:
        """Return the count of a row; `NoRow` where words stand in its place."""
        index = self.kinds.index(kind)
        text = self.columns[index][row]
        value = number_in(text, decimal_comma=self.comma)
        words = not re.search(r"\d|^(inf|nan)$", text, re.IGNORECASE)
        if product := product_in(text):
            value = float(product[0] * product[1])
        elif re.match(r"[\d.,]+\s*(?:[-–/:+x×*]\s*\d|\+)", text):
            value = nan
        if not 1 <= value <= MAX_WORKERS or value != int(value):
            expected = "a whole number from 1 on is expected, such as 8"
            what = f"{self.headings[index]} is {text[:40] or 'empty'}; {expected}"
            raise NoRow(what) if words or value == 0 else self.document.error(self.body[row][0], what)
        return int(value)

    def _optional(self, row: int, kind: str) -> float | None:
        if kind not in self.kinds:
            return None
        index = self.kinds.index(kind)
        text = self.columns[index][row]
        if MISSING.fullmatch(text):
            return None
        value = number_in(text, decimal_comma=self.comma)
        if not MIN_RATE <= value <= MAX_RATE:
            what = f"{self.headings[index]} is {text[:40]}; a positive number is expected, or nothing if unknown"
            raise self.document.error(self.body[row][0], what)
        return value

    def _batch(self, row: int, kind: str) -> float | None:
        """Return the number in a column of batches; None for several in one cell, such as ``64,32``."""
        if kind not in self.kinds or not _WHOLE.fullmatch(text := self.columns[self.kinds.index(kind)][row]):
            return self._optional(row, kind) if kind in self.kinds and not re.search(r"\d\D+\d", text) else None
        return number_in(text) or None

    def _rate(self, number: int, text: str, index: int) -> float | None:
        """Return the number of a cell; None where it is none, which is noted."""
        heading, kind = self.headings[index], self.kinds[index]
        if MISSING.fullmatch(text):
            if text.strip("-–— "):
                self.notes.append(f"line {number}: {text[:40]} is no rate")
            return None
        if bound := _BOUND.match(text):
            what = f"{heading} is {text[:40]}: {'less' if bound[1] else 'more'} than it, and no number"
            self.left.append(self.document.error(number, what))
            return None
        inverse = _inverse_kind(kind, text)
        kind = inverse or kind
        of_kind = per_second if kind == ColumnKind.RATE else seconds_in if kind in TIMES else None
        value = of_kind(text, heading, self.comma) if of_kind else number_in(text, decimal_comma=self.comma)
        value = 1 / value if inverse and value > 0 else value
        if MIN_RATE <= value <= MAX_RATE:
            return value
        expected = "a time is expected" if kind in TIMES and re.match(r"\d", text) else (
            "a positive number is expected, or nothing (or OOM) where nothing was measured"
        )  # fmt: skip
        error = self.document.error(number, f"{heading} is {text[:40]}; {expected}")
        if value == 0 or (isnan(value) and not re.search(r"\d", text)):
            self.left.append(error)
            return None
        raise error


def _with_one_alone(rows: Sequence[RateRow]) -> Iterator[RateRow]:
    """Yield rows with that of ``single GPU`` as the first of each setting that begins with more."""
    alone = [row for row in rows if row.workers == 1 and _ALONE.fullmatch(row.series)]
    begun = {row.series for row in rows if row.workers == 1}
    others = dict.fromkeys(row.series for row in rows if row.series not in begun)
    names = {row.series for row in alone}
    if not others or len(names) != 1 or any(row.series in names and row.workers > 1 for row in rows):
        yield from rows
        return
    yield from (replace(row, series=series) for series in others for row in alone)
    yield from (row for row in rows if row not in alone)


def _inverse_kind(kind: str, text: str) -> str:
    """Return what the unit in a cell says where it is the inverse of its column's: ``1.25s/it`` below ``2.00it/s``."""
    unit = _IN_CELL.fullmatch(text)
    of_unit = kind_of(unit[1]) if unit else ""
    steps = unit and _STEPS.search(unit[1])
    return of_unit if steps and {kind, of_unit} == {ColumnKind.RATE, ColumnKind.ITERATION} else ""


def _with_batches(rows: Sequence[RateRow], seconds: str) -> Iterator[RateRow]:
    """Yield rows whose ``batch`` is that of all workers if it grows with them, and else of each; times with one batch
    for all counts do not say which, and batches that fall with the workers are no setting of one curve."""
    known = [row for row in rows if row.batch_per_worker]
    split = {row.batch_per_worker / row.workers for row in known if row.batch_per_worker}
    several = len({row.workers for row in known}) > 1
    rising = [row.batch_per_worker or 0.0 for row in sorted(known, key=lambda row: row.workers)]
    for row in rows:
        if several and rising[-1] < rising[0]:
            yield replace(row, series=f"{row.series} batch {row.batch_per_worker or 0:g}")
            continue
        if several and len(split) == 1:
            yield replace(row, batch_per_worker=None, global_batch=row.batch_per_worker)
        elif several and seconds and len({row.batch_per_worker for row in known}) == 1:
            yield replace(row, batch_per_worker=None)
        else:
            yield row


def numbered_headings(head: str, row: str) -> list[str]:
    """Return the headings above the numbers of a row with as many cells; none where fewer than two are."""
    heads, cells = ([cell.strip(" *`") for cell in re.split(r"[,;|\t]", line.strip())] for line in (head, row))
    names = [name for name, cell in zip(heads, cells, strict=False) if name and re.fullmatch(r"~?\d[\d.]*%?", cell)]
    return names if len(heads) == len(cells) and len(names) > 1 else []


def _which_counts(head: str, row: str) -> str:
    """Return the question about a table without a heading of worker counts: which column of numbers has them."""
    names = ", ".join(numbered_headings(head, row))[:200]
    expected = (
        f"numbers are below {names}: write gpus or nodes above the counts, and units above rates or times, such as "
        "(images/s), (s/iteration) or (minutes)"
    )
    return f"no heading of worker counts in {head.strip()[:80]!r}; {expected if names else EXPECTED}"


def counts_asked(document: Document) -> str:
    """Return the question about a text that begins with a table without a heading of worker counts; else nothing."""
    line, below = [*filter(str.strip, document.raw_lines), "", ""][:2]
    forms = [re.sub(r"\d+", "0", one.strip())[:20] for one in (line, below)]
    cells = re.split(r"[,;|\t]", line)
    tabular = below and forms[0] != forms[1] and len(cells) > 1 and all(len(cell.split()) < PROSE for cell in cells)
    tabular = tabular and not line.rstrip().endswith((".", "?", "!"))
    if tabular and (
        any(kind_of(cell) not in ("", ColumnKind.SETTING) for cell in cells) or numbered_headings(line, below)
    ):
        return _which_counts(line, below)
    return ""


def unknown(document: Document, known: str) -> InputError:
    """Return the error for a text without a reader: what its first line lacks as a heading, else the known formats."""
    if script := re.search(r"^(?:import|from) torch\b", document.text, re.MULTILINE):
        return document.error(
            document.text.count("\n", 0, script.start()) + 1,
            "a training script is run, not read:  with stallpoint.probe(model, optimizer) as probe:  around its loop "
            "and  probe.step()  behind each update print at its end which rank, phase and layer holds the others up",
        )
    lines = [(index, line) for index, line in enumerate(document.raw_lines, start=1) if line.strip()]
    number, line = lines[0]
    if re.search(r"\bnum_workers\b.*[,;|\t]|[,;|\t].*\bnum_workers\b", line):
        what = "num_workers may be those of a data loader, and there is no heading of worker counts beside it"
        return document.error(number, f"{what}; write gpus, ranks or workers if they train")
    if re.fullmatch(r"[\d.,;\s]+", line) and re.search(r"\d[\s;,]+\d", line):
        return document.error(number, f"numbers without a heading: {line.strip()[:60]!r}; {EXPECTED}")
    if asked := counts_asked(document) or question(document):
        return document.error(number, asked)
    for (place, head), (_, ruled), (_, row) in zip(lines, lines[1:], lines[2:], strict=False):
        kinds = {kind_of(cell) for cell in head.split("|")}
        if RULED.fullmatch(ruled) and (kinds & {ColumnKind.RATE, *TIMES} or numbered_headings(head, row)):
            return document.error(place, _which_counts(head, row))
    return document.error(
        number,
        f"{line.strip()[:60]!r} begins nothing that is known; {known}; for a training log, --pattern"
        + (document.cut and f"; {document.cut}"),
    )
