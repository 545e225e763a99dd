"""Tables of rates as people write them: CSV, TSV, ``;``, Markdown or aligned columns, in words, units and numbers of
their own.

A column is known by what its heading says (``gpus``, ``img/s``, ``ms/iter``, ``epoch time``); worker counts and one
column of rates or times are needed, all else is optional. A cell that says that nothing was measured (OOM, ERROR, a
dash, nothing) is no rate, and is noted with its line.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import ceil, isnan, nan

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document

MAX_WORKERS = 10**9
MIN_RATE, MAX_RATE = 1e-15, 1e15
"""Rates are between these: whatever is computed from them stays finite."""
MAX_ROWS = 200_000
FASTER = 1.2
"""Factor from which on as many workers on more nodes would be too much faster to be as many."""

EACH, ALL = "each", "all"
"""Rates are those of each worker, or of all."""


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


@dataclass(frozen=True)
class Rates:
    """What a file says of rates."""

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


_HEADINGS = {
    "workers_per_node": r"(workers?|gpus?|ranks?|process(es)?|tasks|devices)[ _]*(per|/|each)[ "
    r"_]*(node|host|server)|ppn",
    "nodes": r"(num|number of|n|#)?[ _]*(nodes?|hosts?|servers?|machines?)",
    "batch": r"(mini[ _-]?)?(batch|bs)([ _]*size)?",
    "global_batch": r"(global|total|effective)[ _]*(mini[ _-]?)?batch([ _]*size)?|gbs",
    "batch_per_worker": r"((local|micro|per[ _-]*(gpu|worker|device))[ _]*)?(mini[ _-]?)?(batch|bs)([ _]*size)?"
    r"([ _]*(per|/)[ _]*(gpu|worker|device|rank))?|mbs",
    "workers": r"(num(ber)?([ _]of)?|n|no\.?|total|#|nb)?[ "
    r"_]*(workers?|gpus?|ranks?|process(es)?|procs?|nprocs|tasks|devices|"
    r"accelerators|gcds?|tpus?|xpus?|hpus?|npus?|cards?|chips?|tiles?|cores)([ _]*(count|s))?|np|n|world[ _]?size|dp|"
    r"#?[ _]*(nodes?[ _]*[x×*][ _]*#?(gpus?|workers?|ranks?)|(gpus?|workers?|ranks?)[ _]*[x×*][ _]*#?nodes?)\b.*",
}
PER_WORKER = re.compile(r"(/|per|each|pro|_s)[ _]*(gpu|worker|dev|rank|process|card|chip|accelerator|gcd|xpu)", re.I)
BRACKETS = re.compile(r"\([^()]*\)|\[[^][]*\]")
"""Remarks in headings."""
_SECONDS = re.compile(
    r"\b(ms|[uµμ]s|milli\w*|micro\w*|s|secs?|seconds?|\w*time|duration|elapsed|latency|mins?|minutes?|h|hrs?|hours?)\b",
    re.IGNORECASE,
)
_EACH_STEP = re.compile(r"(?<![a-z/])(s|sec|seconds?|ms|time)\)? ?(/|per) ?(it|iter|step|batch)", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"(?<![a-z])[(\[] ?(ms|[uµμ]s|s|secs?|seconds?|min|minutes|h|hours?) ?[)\]]", re.IGNORECASE)
"""Units of times, which say more than ``speed`` or ``performance`` before them."""
_RUN = re.compile(r"epoch|train|total|wall|run|elapsed|accuracy|solution|hours?|\bhrs?\b|\bh\b", re.IGNORECASE)
"""Headings of times of the same work on any count: an epoch, a run."""
_PART = re.compile(
    r"forward|backward|compute|comm|sync|data|load|wait|start|warm|(gpu|node|core|device)[ -]?h", re.IGNORECASE
)
"""Headings of times that are a part of an iteration, or no time at all."""
_IN_SECONDS = {
    **dict.fromkeys(("us", "µs", "μs", "micro"), 1e-6),
    "ms": 1e-3,
    "milli": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_TIME_UNIT = re.compile(
    r"(?<![a-z])(ms|milli|[uµμ]s|micro|s(?=ec|\b)|m(?=in(?:ute)?s?\b|\b)|h(?=r|our|\b))", re.IGNORECASE
)
_DIGITS = r"(?<!\d)(?<!\d[.,])\d++(?:[.,]\d++)*+[.,]?+"
"""A number with its points and commas, from its beginning on: begun at each of its digits, a search takes the square
of its length."""
_TIMES = re.compile(rf"({_DIGITS})\s*(milli|micro|ms|[uµμ]s|h|m|s)[a-z]*", re.IGNORECASE)
_STEP = re.compile(r"iter(ation)?s?|steps?|(mini)?batch(es)?|\bit\b", re.IGNORECASE)
_RATE = re.compile(
    r"/ ?s\b|/ ?sec|per[ _]?s(ec(ond)?)?\b|throughput|\brates?\b|speed|\btps\b|\bfps\b|tok(ens?)?/|performance|\bips\b|"
    r"\bwps\b|_per_s|(/|per)[ _]?(min(ute)?|h|hr|hour|day)\b",
    re.IGNORECASE,
)
_UNITS = re.compile(
    r"(tok(?:en)?s?|im(?:a)?ge?s?|img|samples?|seq(?:uence)?s?|frames?|words?|examples?|records?|steps?|it(?:er(?:ation)?)?s?|"
    r"batch(?:es)?|epochs?)[ _]*(?:/|per|p)[ _]*(?:s\b|sec|second|min|h\b|hr|hour|d\b|day)",
    re.IGNORECASE,
)
_UNIT_WORDS = {
    "t": "tokens/s",
    "im": "images/s",
    "sa": "samples/s",
    "se": "sequences/s",
    "f": "frames/s",
    "w": "words/s",
    "it": "iterations/s",
    "st": "iterations/s",
    "b": "iterations/s",
    "ep": "epochs/s",
}
_LONGER = re.compile(r"(?:/|per)[ _]?(min|h|d)(?:utes?|rs?|ours?|ays?)?(?![a-z])", re.IGNORECASE)
_LONGER_IN_SECONDS = {"min": 60.0, "h": 3600.0, "d": 86400.0}
_PREFIX = re.compile(r"(?<![A-Za-z])([kKM])[ _]?(?=tok|im|sam|seq)")
"""Thousands or millions of what a rate counts."""
_OF = r"(?:gpus?|workers?|ranks?|nodes?|processes|devices|accelerators|cards?)"
_COUNTED = re.compile(rf"\W*(?:on )?(\d+) ?[x×]? ?({_OF})\W*", re.IGNORECASE)
_AMOUNT = (
    rf"(?P<rate>{_DIGITS}(?: ?[kKM]\b)?) ?(?P<unit>(?:{_UNITS.pattern})(?:/(?:gpu|worker|device))?"
    r"|(?:ms|s|sec|seconds)(?: ?/ ?| per | an )(?:it|iter|iteration|step|batch)\b)"
)
_COUNT = (
    rf"\b(?P<count>\d+) ?[x×]? ?(?P<of>{_OF})\b"
    r"(?: ?[(,] ?(?:(?:on|over|across) )?(?P<nodes>\d+) ?(?:nodes?|hosts?|servers?|machines?)\b\)?)?"
)
_COUNT_ALONE = re.compile(_COUNT + r"\W*", re.IGNORECASE)
_IN_SENTENCE = (
    re.compile(rf"{_COUNT}[^\d]*?{_AMOUNT}", re.IGNORECASE),
    re.compile(rf"{_AMOUNT}[^\d,;.]*?\b(?:on|with|using|from|at|for) {_COUNT}", re.IGNORECASE),
)
"""Rates in a line of text, with the count before or after them."""
_NO_RATE = re.compile(
    r"loss|acc|mem|efficien|speed[ _-]?up|flop|mfu|utili[sz]|%|compute_seconds|learning|cost|price|dollar|[$€]|"
    r"power(?! ?\d)|watt|energy|joule|kwh|[(\[]k?[wj][)\]]|bytes?|bandwidth|"
    r"(?<![a-z0-9])(lr|(alg|bus)?bw|[kmgt]i?b(ps|its?)?)(?![a-z0-9])|"
    r"(error|hit|miss|drop(out)?|decay|success|failure|acceptance|sampling|compression)[ _-]*rate|"
    r"(clock|link|network|disk)[ _-]*(rate|speed)",
    re.IGNORECASE,
)
"""Headings of numbers that are neither rates nor times."""
_RAN = re.compile(
    r"(\w*net|inception|vgg|bert|gpt|t5|llama|mi[sx]tral|qwen|bloom|opt|falcon|vit|swin|\w*former|g?nmt|dlrm|ncf|ssd|yolo)"
    r"[ _-]?v?\d*(?![a-z]).*",
    re.IGNORECASE,
)
"""Headings that name the network that ran; the numbers below it may be its rates."""
_SCATTER = re.compile(
    r"(?<![a-z/])(std(dev|err)?|sd|sem|stderr|err(or)?|dev(iation)?|var(iance)?|ci\d*|conf(idence)?|[±σ])(?![a-z])",
    re.IGNORECASE,
)
"""Headings of how far repeats scatter."""
_EXTREME = re.compile(r"(?<![a-z])(min(imum)?|max(imum)?|best|worst|p\d\d|peak)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class _Proportional:
    """Columns that rise and fall with a rate, for tables without one."""

    heading: re.Pattern[str]
    unit: str
    of: str
    percent: bool = False


_PROPORTIONAL = (
    _Proportional(re.compile(r"flop", re.I), "TFLOP/s", ""),
    _Proportional(re.compile(r"speed[ _-]?up", re.I), "times the first", ALL),
    _Proportional(re.compile(r"\bmfu\b|utili[sz]ation", re.I), "workers at peak", EACH, percent=True),
    _Proportional(re.compile(r"efficien", re.I), "ideal workers", EACH, percent=True),
)
_SERIES = re.compile(
    r"series|models?|networks?|config(uration)?s?|benchmarks?|setup|mode|framework|strategy|method", re.I
)
_LABEL = re.compile(r"(runs?|names?|jobs?|ids?|rep(eat)?s?|trials?|try|seeds?|date)[ _#]*\d*", re.IGNORECASE)
"""Headings of what tells one run from the next."""
_MACHINES = re.compile(r"config|set-?up|layout|hardware|cluster|system|scale", re.IGNORECASE)
_PRODUCT = re.compile(r"(\d+)\s*[x×*]\s*(\d+)\b.*")
"""Counts such as ``2x8``: nodes by workers of each."""
MISSING = re.compile(
    r"|-+|[–—]+|n/?a|nan|none|null|\?+|x|tbd|oom.*|.*out of memory.*|err(or)?\b.*|fail(ed|ure)?\b.*|crash(ed)?\b.*|"
    r"time ?out\b.*|hang(s|ed)?\b.*|killed\b.*|not (run|measured|supported|available)",
    re.IGNORECASE | re.DOTALL,
)
"""Cells that say that nothing was measured."""
_SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}
_NUMBER = re.compile(
    r"(?P<digits>[+-]?(?:\d[\d.,'’_ \u00a0\u202f]*\d|\d|[.,]\d+)(?:[.,](?=\s|$))?(?:[eE][+-]?\d+)?)\s*(?P<rest>.*)",
    re.DOTALL,
)


def unit_in(text: str) -> str:
    """Return the unit that a heading or a cell names, such as ``images/s``; empty where it names none."""
    found = _UNITS.search(text)
    if not found:
        return "tokens/s" if re.search(r"\btps\b|tok", text, re.I) else ""
    word = found[1].lower()
    return next(
        unit for begin, unit in sorted(_UNIT_WORDS.items(), key=lambda one: -len(one[0])) if word.startswith(begin)
    )


def number_in(text: str, *, decimal_comma: bool) -> float:
    """Return the number that a cell begins with, its thousands, deviation and unit read past; NaN if none."""
    cell = text.strip().strip("*`\"'").lstrip("~≈≅<>=")
    if clock := re.fullmatch(r"\s*(?:(\d+):)?(\d+):(\d\d(?:\.\d+)?)\s*(?:min|h|s|m)?\.?", cell):
        hours, minutes, seconds = clock.groups()
        return 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
    found = _NUMBER.match(cell.strip())
    if not found or (not found["digits"].isascii() and not re.search(r"[’\u00a0\u202f]", found["digits"])):
        return nan
    digits, rest = found["digits"].strip(), found["rest"].strip()
    digits = re.sub(r"(?<=\d)['’_ \u00a0\u202f](?=\d{3}(?!\d))", "", digits)
    if decimal_comma or re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})+,\d+", digits):
        digits = digits.replace(".", "") if re.fullmatch(r"\d{1,3}(\.\d{3})+(,\d*)?", digits) else digits
        digits = digits.replace(",", ".")
    elif re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", digits):
        digits = digits.replace(",", "")
    elif re.fullmatch(r"[+-]?\d+,\d+", digits):  # no thousands: a decimal comma
        digits = digits.replace(",", ".")
    try:
        value = float(digits)
    except ValueError:
        return nan
    scale = re.match(r"([kKMBG])(?![A-Za-z])", rest)
    return value * _SUFFIXES[scale[1].lower()] if scale else value


@dataclass(frozen=True)
class Grid:
    """Cells of a table, each row with its line."""

    rows: Sequence[tuple[int, list[str]]]
    separator: str


def grids(document: Document) -> Iterator[Grid]:
    """Yield the table in each way that it may be written in, the likeliest first."""
    for grid in _as_written(document):
        yield grid
        yield from _with_a_column_for_each_count(document, grid)
        yield from _with_counts_in_a_row(grid)
        yield from _with_counts_in_words(grid)
    yield from _in_sentences(document)


def _with_a_column_for_each_count(document: Document, grid: Grid) -> Iterator[Grid]:
    """Yield a table with headings such as ``1 GPU`` and ``2 GPUs`` as one with a row for each count."""
    for index, (line, cells) in enumerate(grid.rows[:40]):
        counts = {place: found for place, cell in enumerate(cells) if (found := _COUNTED.fullmatch(cell))}
        if len(counts) < 2:
            continue
        others = [place for place in range(len(cells)) if place not in counts]
        what = next((line for line in document.raw_lines if _RATE.search(line) or _SECONDS.search(line)), "")
        names = (BRACKETS.sub("", cells[place]).strip() or "series" for place in others)
        heads = [*names, next(iter(counts.values()))[2], what.strip()]
        rows = [
            (number, [*(row[other] for other in others), found[1], row[place]])
            for number, row in grid.rows[index + 1 :]
            if len(row) == len(cells)
            for place, found in counts.items()
        ]
        if kind_of(heads[-1]) not in ("rate", "iteration", "epoch"):
            what = (
                "what its numbers are is expected in the heading or a line of its own: img/s, s/iteration, epoch time"
            )
            raise document.error(line, f"a column for each count ({', '.join(cells)[:80]}); {what}")
        yield Grid([(line, heads), *rows], grid.separator)
        return


def _with_counts_in_a_row(grid: Grid) -> Iterator[Grid]:
    """Yield a table whose first row is ``GPUs, 1, 2, 4`` as one with a row for each count."""
    texts = [cells for _, cells in grid.rows[:40]]
    if len(texts) < 2 or len(texts[0]) < 3 or len(set(map(len, texts))) > 1:
        return
    heads, *columns = zip(*texts, strict=True)
    if kind_of(heads[0]) in ("workers", "nodes") and all(_is_number(column[0]) for column in columns):
        first, second = (line for line, _ in grid.rows[:2])
        yield Grid([(first, list(heads)), *((second, list(column)) for column in columns)], grid.separator)


def _with_counts_in_words(grid: Grid) -> Iterator[Grid]:
    """Yield a table with cells such as ``16 GPUs (2 nodes)`` or ``2x8`` below any heading as one of counts."""
    pairs = zip(grid.rows[0][1], grid.rows[1][1], strict=False) if len(grid.rows) > 2 else ()
    for place, (head, first) in enumerate(pairs):
        if not (_COUNT_ALONE.fullmatch(first) or _PRODUCT.fullmatch(first)):
            continue
        texts = [row[place] if place < len(row) else "" for _, row in grid.rows[1:]]
        if _MACHINES.search(head) and all(map(_PRODUCT.fullmatch, texts)):  # not sizes of images
            yield _replaced(grid, place, [["workers"], *([text] for text in texts)])
        found = [one for one in takewhile(bool, map(_COUNT_ALONE.fullmatch, texts)) if one]
        if len(found) == len(texts) and len({one["of"].lower().rstrip("s") for one in found}) == 1:
            nodes = "nodes" if all(one["nodes"] for one in found) else ""
            yield _replaced(
                grid, place, [[found[0]["of"], nodes], *([one["count"], one["nodes"] or ""] for one in found)]
            )


def _replaced(grid: Grid, place: int, cells: Sequence[Sequence[str]]) -> Grid:
    """Return the table with `cells` of each row in place of a column."""
    rows = [(line, [*row[:place], *new, *row[place + 1 :]]) for (line, row), new in zip(grid.rows, cells, strict=True)]
    return Grid(rows, grid.separator)


def _in_sentences(document: Document) -> Iterator[Grid]:
    """Yield the rates in lines such as ``8 GPUs (2 nodes): 1200 img/s`` as a table."""
    lines = list(enumerate(document.lines, start=1))
    rates = max(
        ([(line, found) for line, text in lines for found in one.finditer(text)] for one in _IN_SENTENCE), key=len
    )
    kinds = {(one["of"].lower().rstrip("s"), unit_in(one["unit"]) or one["unit"].lower()) for _, one in rates}
    if len(rates) < 2 or len(kinds) > 1:
        return
    head = [rates[0][1]["of"], rates[0][1]["unit"]]
    per_node = max((int(one["count"]) / int(one["nodes"]) for _, one in rates if int(one["nodes"] or 0)), default=0.0)
    if per_node:  # counts without a word of nodes fill one
        rows = [
            [one["count"], one["rate"], one["nodes"] or str(ceil(int(one["count"]) / per_node))] for _, one in rates
        ]
        head.append("nodes")
    else:
        rows = [[one["count"], one["rate"]] for _, one in rates]
    yield Grid([(rates[0][0], head), *((line, row) for (line, _), row in zip(rates, rows, strict=True))], ",")


def _objects(document: Document) -> list[tuple[int, dict[str, object]]]:
    """Return the rows of a table in JSON: a list of objects, or an object on each line."""
    whole = document.text.lstrip().startswith("[")
    try:
        if whole:
            found = [(1, one) for one in json.loads(document.text)]
        else:
            found = [(line, json.loads(text)) for line, text in enumerate(document.raw_lines, start=1) if text.strip()]
    except (ValueError, RecursionError):
        return []
    flat = all(
        isinstance(one, dict) and not any(isinstance(cell, dict | list) for cell in one.values()) for _, one in found
    )
    return found if flat else []


def _as_written(document: Document) -> Iterator[Grid]:
    if objects := _objects(document):
        heads = list(dict.fromkeys(head for _, one in objects for head in one))
        rows = [(line, [str(one.get(head, "")) for head in heads]) for line, one in objects]
        yield Grid([(objects[0][0], heads), *rows], ",")
        return
    lines = [(number, line) for number, line in enumerate(document.raw_lines, start=1) if line.strip()]
    piped = [(number, line) for number, line in lines if line.count("|") >= 2 or line.strip().startswith("|")]
    if "&" in document.text and not piped:  # LaTeX
        piped = [
            (number, line.split("\\\\")[0].replace("\\", "").replace("&", "|")) for number, line in lines if "&" in line
        ]
    if len(piped) >= 2:
        cells = [(number, [cell.strip() for cell in line.strip().strip("|").split("|")]) for number, line in piped]
        yield Grid([row for row in cells if not all(re.fullmatch(r":?-*:?", cell) for cell in row[1])], "|")
    for separator in ("\t", ";", ","):
        if sum(separator in line for _, line in lines) * 2 >= len(lines):
            yield Grid(list(separated(lines, separator)), separator)
    yield Grid([(number, re.split(r"\s{2,}|\t", line.strip())) for number, line in lines], "  ")
    yield Grid([(number, line.split()) for number, line in lines], " ")


def separated(lines: Iterable[tuple[int, str]], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line, with its number."""
    for number, line in lines:
        try:
            (row,) = csv.reader([line], delimiter=separator, skipinitialspace=True, strict=True)
        except (csv.Error, ValueError):
            row = line.split(separator)
        if any(cell.strip() for cell in row):
            yield number, [cell.strip() for cell in row]


def kind_of(heading: str) -> str:
    """Return what a column holds: a name of `_HEADINGS`, ``rate``, ``iteration``, ``epoch``, ``part`` (of a time),
    ``series``, or nothing."""
    name = BRACKETS.sub("", heading).strip(" *`_").lower().replace("-", "_")
    for kind, pattern in _HEADINGS.items():
        if re.fullmatch(pattern, name):
            return kind
    if _NO_RATE.search(heading) or _SCATTER.search(heading):
        return ""
    words = heading.replace("_", " ")
    if _EACH_STEP.search(words):
        return "iteration"
    if _RATE.search(heading) and not _IN_BRACKETS.search(words):
        return "rate"
    if _SECONDS.search(words):
        of_run = _RUN.search(words) and not _STEP.search(words)
        return "part" if _PART.search(words) else "epoch" if of_run else "iteration"
    return "series" if _SERIES.fullmatch(name) else ""


def recognised(document: Document) -> bool:
    """Return whether the text has a heading of worker counts beside others, and a row of numbers."""
    return any(headed(document, _is_head))


def headed(document: Document, is_head: Callable[[Sequence[str]], bool]) -> Iterator[tuple[Grid, int]]:
    """Yield the table in each way in which it has a row of headings, with the place of that row."""
    for grid in grids(document):
        place = next((index for index, (_, cells) in enumerate(grid.rows[:40]) if is_head(cells)), None)
        if place is not None:
            yield grid, place


def _is_head(cells: Sequence[str]) -> bool:
    kinds = [kind_of(cell) for cell in cells]
    return len(cells) >= 2 and ("workers" in kinds or "nodes" in kinds) and not any(map(_is_number, cells))


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[\d.,]+", cell) is not None


EXPECTED = (
    "expected is a table with a heading for each column: workers (or gpus, ranks, nodes) and a rate "
    "(samples_per_second, "
    "tokens/s, images/s) or a time (s/iteration, epoch time); series and workers_per_node are optional"
)


def read(document: Document) -> Rates:
    """Return the rates in the table; `InputError` names the line, what was expected, and how to write it."""
    for grid, head in headed(document, _is_head):
        return _Table(document, grid, head).rates()
    raise InputError(f"{document.path}, line 1: no heading of worker counts; {EXPECTED}")


class _Table:
    """One table while it is read."""

    def __init__(self, document: Document, grid: Grid, head: int) -> None:
        self.document, self.grid = document, grid
        self.line, self.headings = grid.rows[head]
        self.body = list(grid.rows[head + 1 :])
        self.notes: list[str] = []
        if len(self.body) > MAX_ROWS:
            raise InputError(f"{document.path}: more than {MAX_ROWS:,} rows; give those of one study")
        if not grid.separator.strip() and {len(cells) for _, cells in self.body} == {len(self.headings) + 1}:
            self.headings = ["", *self.headings]  # pandas writes no heading above its index
        self._check_widths()
        self.columns = [[self._cell(cells, index) for _, cells in self.body] for index in range(len(self.headings))]
        self.decimal_comma = grid.separator != "," and self._has_decimal_comma(grid.separator)
        self.kinds = list(map(self._kind, range(len(self.headings))))
        self.series = self._series_columns()

    def _check_widths(self) -> None:
        for number, cells in self.body:
            if len(cells) > len(self.headings) and any(cells[len(self.headings) :]):
                hint = "a number with a comma in it goes in quotes" if self.grid.separator == "," else "check the row"
                raise self.document.error(
                    number, f"{len(cells)} cells for {len(self.headings)} columns ({', '.join(self.headings)}); {hint}"
                )

    def _has_decimal_comma(self, separator: str) -> bool:
        """Return whether numbers are written as ``1.180,5``, or as ``1.180`` beside ``360``."""
        comma = r"\d,\d" if separator == ";" else r"\b0,\d|\d,(\d\d?|\d{4,})\b"
        points = [cell for column in self.columns for cell in column if re.search(r"\d\.\d+$", cell)]
        if any(re.search(comma, cell) for column in self.columns for cell in column):
            return not points
        return any(
            any(re.fullmatch(r"\d{3,}", cell) for cell in column) and set(points) and set(points) <= set(column)
            for column in self.columns
        ) and all(re.fullmatch(r"[1-9]\d{0,2}(\.\d{3})+", cell) for cell in points)

    def _kind(self, index: int) -> str:
        """Return what a column holds: what its heading says, or else the unit in its cells."""
        heading, cells = self.headings[index], [cell for cell in self.columns[index] if not MISSING.fullmatch(cell)]
        kind = kind_of(heading)
        if kind in ("workers", "nodes") and cells and not any(map(self._number, cells)):
            counts = sum(kind_of(head) in ("workers", "nodes") for head in self.headings)
            return "" if counts > 1 else kind  # their names
        unit = re.fullmatch(r"[\d.,]+ *([a-zA-Zµμ]\w*([ /]+\w+)*)", cells[0]) if cells else None
        times = ("iteration", "epoch")
        if not unit or kind not in ("", "rate", *times):
            return kind
        if _NO_RATE.search(unit[1]):
            return ""
        of_unit = kind_of(unit[1])
        if kind and of_unit in ("rate", *times):  # the unit in a cell wins, but does not say which time it is
            return kind if kind in times and of_unit in times else of_unit
        kind = kind or kind_of(f"{heading} {unit[1]}")
        return kind if kind in ("rate", *times) else ""

    def _series_columns(self) -> list[int]:
        """Return the columns that name a series: those whose heading says so, else those of words in each row that are
        no names of single runs. What stands once for the rows below it is written into each."""
        for index, kind in enumerate(self.kinds):
            if kind == "series" and self.columns[index] and self.columns[index][0]:
                for row, (_, cells) in enumerate(self.body):
                    if row and index < len(cells) and not cells[index]:
                        cells[index] = self._cell(self.body[row - 1][1], index)
        counts = next((self.columns[index] for index, kind in enumerate(self.kinds) if kind in ("workers", "nodes")))
        if named := [index for index, kind in enumerate(self.kinds) if kind == "series"]:
            return named + self._swept(counts)
        words = [
            index
            for index, kind in enumerate(self.kinds)
            if not kind and all(self.columns[index]) and not any(map(self._number, self.columns[index]))
        ]
        runs = [index for index in words if len(set(self.columns[index])) == len(self.body) and len(set(counts)) > 2]
        for index in runs:
            note = f"{self.headings[index]} differs in each row and is read as the name of a run"
            self.notes += [f"line {self.body[0][0]}: {note}"]
        return [index for index in words if index not in runs] + self._swept(counts)

    def _swept(self, counts: Sequence[str]) -> list[int]:
        """Return the columns of settings in numbers, such as batches: each of their values was measured on the same
        several counts."""
        found = []
        for index, kind in enumerate(self.kinds):
            if kind in ("", "batch", "batch_per_worker") and not _LABEL.fullmatch(self.headings[index]):
                on: dict[str, set[str]] = {}
                for cell, count in zip(self.columns[index], counts, strict=True):
                    on.setdefault(cell, set()).add(count)
                if len(on) > 1 and all(map(self._number, on)) and min(map(len, on.values())) > 1:
                    found += [index] if len(set(map(frozenset, on.values()))) == 1 else []
        return found

    def _counted_in_each_node(self, value: int) -> bool:
        """Return whether GPUs beside nodes are those of each node: their number stays, and more nodes are faster."""
        if not {"nodes", "workers"} <= set(self.kinds) or "workers_per_node" in self.kinds:
            return False
        nodes, workers = (self.columns[self.kinds.index(kind)] for kind in ("nodes", "workers"))
        rows = zip(nodes, self.columns[value], strict=True)
        read = [[number_in(cell, decimal_comma=self.decimal_comma) for cell in row] for row in rows]
        known = sorted(row for row in read if row[0] > 0 and row[1] > 0)
        if not known or len(set(workers)) > 1:
            return False
        first, last = known[0][1], known[-1][1]
        return (first / last if self.kinds[value] in ("iteration", "epoch") else last / first) > FASTER

    def rates(self) -> Rates:
        """Return the table's rates."""
        values, like = self._value_columns()
        if self._counted_in_each_node(values[0]):
            self.kinds[self.kinds.index("workers")] = "workers_per_node"
        first = self.headings[values[0]]
        kind = self.kinds[values[0]]
        rows = [row for number, cells in self.body for row in self._rows(number, cells, values)]
        if not rows:
            raise InputError(
                f"{self.document.path}: no rows below the heading of line {self.line}; one for each count is expected"
            )
        words = " ".join(
            [self.headings[index] for index in values] + [self._cell(cells, values[0]) for _, cells in self.body[:3]]
        )
        seconds = kind if kind in ("iteration", "epoch") else ""
        of = EACH if PER_WORKER.search(" ".join(self.headings[index] for index in values)) else ""
        if re.search(r"(?<![a-z])(total|aggregated?|global|all)(?![a-z])", first, re.I) and not of:
            of = ALL
        if like:
            of = of or like.of
            if like.percent and max((row.value or 0.0 for row in rows), default=0.0) > 1.5:
                rows = [replace(row, value=row.value and row.value / 100) for row in rows]
            return Rates(rows, like.unit, of, "", self._counted(), tuple(self.notes))
        unit = unit_in(words) or "samples/s"
        if kind == "rate" and unit == "iterations/s":
            seconds = "iteration"
            rows = [replace(row, value=row.value and 1 / row.value) for row in rows]
        if seconds == "epoch":
            unit = "epochs/h" if "epoch" in first.lower() else "runs/h"
        elif not kind:
            self._check_named(values, rows)
        if "batch" in self.kinds:
            rows = list(_with_batches(rows, seconds))
        return Rates(rows, unit, "" if seconds else of, seconds, self._counted(), tuple(self.notes))

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
            self.line, f"{what}; a unit says which, such as {heading} (images/s) or (s/iteration)"
        )

    def _ran(self, index: int) -> bool:
        """Return whether a heading names a network, or one of several repeats, as ``run 2``."""
        heading = self.headings[index]
        return bool(_RAN.fullmatch(heading) or (_LABEL.fullmatch(heading) and heading[-1].isdigit()))

    def _value_columns(self) -> tuple[list[int], _Proportional | None]:
        """Return the columns with rates, one series each: those whose heading says so, else those that name networks or
        repeats, else the first in proportion to a rate, else all that may hold rates."""
        for kind in ("rate", "epoch", "iteration"):
            if found := [index for index, one in enumerate(self.kinds) if one == kind]:
                best = [index for index in found if self.headings[index] == "samples_per_second"]
                usual = [index for index in found if not _EXTREME.search(self.headings[index])] or found
                for other in (lambda head: unit_in(head) == "iterations/s", PER_WORKER.search):
                    usual = [index for index in usual if not other(self.headings[index])] or usual
                return best or usual, None
        found = [
            index
            for index, kind in enumerate(self.kinds)
            if not kind
            and self.headings[index]
            and not _NO_RATE.search(self.headings[index])
            and not _SCATTER.search(self.headings[index])
            and any(map(self._number, self.columns[index]))
        ]
        unlabelled = [index for index in found if not _LABEL.fullmatch(self.headings[index])]
        if ran := list(filter(self._ran, unlabelled or found)):
            return ran, None
        for like in _PROPORTIONAL:
            if column := [index for index, head in enumerate(self.headings) if like.heading.search(head)][:1]:
                return column, like
        found = unlabelled or found
        if not found:
            raise self.document.error(
                self.line, f"no column of rates among {', '.join(self.headings)[:200]}; {EXPECTED}"
            )
        return found, None

    def _number(self, cell: str) -> bool:
        return not isnan(number_in(cell, decimal_comma=self.decimal_comma))

    @staticmethod
    def _cell(cells: Sequence[str], index: int) -> str:
        return cells[index] if index < len(cells) else ""

    def _counted(self) -> str:
        for kind in ("workers", "workers_per_node"):
            if kind in self.kinds:
                return "GPUs" if "gpu" in self.headings[self.kinds.index(kind)].lower() else "workers"
        return "nodes"

    def _rows(self, number: int, cells: list[str], values: Sequence[int]) -> Iterator[RateRow]:
        if "workers" in self.kinds:
            workers = self._count(number, cells, "workers")
        else:
            workers = self._count(number, cells, "nodes") * int(self._optional(number, cells, "workers_per_node") or 1)
        per_node = self._optional(number, cells, "workers_per_node")
        if per_node is None and "workers" in self.kinds and (nodes := self._optional(number, cells, "nodes")):
            per_node = workers / nodes
        if "workers" in self.kinds and (product := _PRODUCT.fullmatch(cells[self.kinds.index("workers")])):
            head = self.headings[self.kinds.index("workers")].lower().partition("node")
            per_node = float(product[2 if "gpu" not in head[0] or not head[1] else 1])
        batch = self._optional(number, cells, "batch_per_worker") or self._optional(number, cells, "batch")
        total = self._optional(number, cells, "global_batch")
        name = self._series(cells, values)
        repeats = all(_LABEL.fullmatch(self.headings[index]) for index in values)
        for index in values:
            series = name if repeats or len(values) == 1 else " ".join(filter(None, (name, self.headings[index])))
            yield RateRow(series, workers, self._rate(number, cells, index), per_node, batch, number, total)

    def _series(self, cells: Sequence[str], values: Sequence[int]) -> str:
        words = " ".join(
            f"{self.headings[index]} {cell}" if self._number(cell) and self.kinds[index] != "series" else cell
            for index in self.series
            if (cell := self._cell(cells, index))
        )
        several = len(values) > 1 and not all(_LABEL.fullmatch(self.headings[index]) for index in values)
        return re.sub(r"[*`]", "", words) if words or several else self.document.path.stem

    def _count(self, number: int, cells: Sequence[str], kind: str) -> int:
        index = self.kinds.index(kind)
        text = self._cell(cells, index)
        value = number_in(text, decimal_comma=self.decimal_comma)
        if product := _PRODUCT.fullmatch(text):
            value = float(product[1]) * float(product[2])
        elif re.match(r"[\d.,]+\s*[-–/:+x×*]\s*\d", text):
            value = nan
        if not 1 <= value <= MAX_WORKERS or value != int(value):
            raise self.document.error(
                number,
                f"{self.headings[index]} is {text[:40] or 'empty'}; a whole number from 1 on is expected, such as 8",
            )
        return int(value)

    def _optional(self, number: int, cells: Sequence[str], kind: str) -> float | None:
        if kind not in self.kinds:
            return None
        index = self.kinds.index(kind)
        text = self._cell(cells, index)
        if MISSING.fullmatch(text):
            return None
        return self._positive(number, text, self.headings[index], "or nothing if unknown")

    def _positive(self, number: int, text: str, heading: str, otherwise: str) -> float:
        value = number_in(text, decimal_comma=self.decimal_comma)
        if not MIN_RATE <= value <= MAX_RATE:
            raise self.document.error(number, f"{heading} is {text[:40]}; a positive number is expected, {otherwise}")
        return value

    def _rate(self, number: int, cells: Sequence[str], index: int) -> float | None:
        text = self._cell(cells, index).strip().strip("*`")
        if MISSING.fullmatch(text):
            if text.strip("-–— "):
                self.notes.append(f"line {number}: {text[:40]} is no rate")
            return None
        value = self._positive(number, text, self.headings[index], "or nothing (or OOM) where nothing was measured")
        if self.kinds[index] == "rate":
            words = self.headings[index] + re.sub(r"^[^A-Za-z/]*([kKMBG]\b)?", " ", text)
            longer, prefix = _LONGER.search(words), _PREFIX.search(words)
            value *= _SUFFIXES[prefix[1].lower()] if prefix else 1.0
            return value / (_LONGER_IN_SECONDS[longer[1].lower()] if longer else 1.0)
        if self.kinds[index] not in ("iteration", "epoch") or ":" in text:
            return value
        plain = re.sub(r"\(?(?:(?<!\s)\s+)?(±|\+/?-)\s*[\d.,]+\s*\)?", "", text)
        if parts := _TIMES.findall(plain):
            seconds = sum(
                number_in(of, decimal_comma=self.decimal_comma) * _IN_SECONDS[unit.lower()] for of, unit in parts
            )
            if not MIN_RATE <= seconds <= MAX_RATE:
                raise self.document.error(number, f"{self.headings[index]} is {text[:40]}; a time is expected")
            return seconds
        unit = _TIME_UNIT.search(self.headings[index].replace("_", " "))
        return value * (_IN_SECONDS[unit[1].lower()] if unit else 1.0)


def _with_batches(rows: Sequence[RateRow], seconds: str) -> Iterator[RateRow]:
    """Yield rows whose ``batch`` is that of all workers if it grows with them, and else of each; times with one batch
    for all counts do not say which."""
    known = [row for row in rows if row.batch_per_worker]
    split = {row.batch_per_worker / row.workers for row in known if row.batch_per_worker}
    several = len({row.workers for row in known}) > 1
    for row in rows:
        if several and len(split) == 1:
            yield replace(row, batch_per_worker=None, global_batch=row.batch_per_worker)
        elif several and seconds and len({row.batch_per_worker for row in known}) == 1:
            yield replace(row, batch_per_worker=None)
        else:
            yield row


def unknown(document: Document, known: str) -> InputError:
    """Return the error of a text that no reader knows: what its first line lacks of a table, or what is known."""
    if script := re.search(r"^(?:import|from) torch\b", document.text, re.MULTILINE):
        return document.error(
            document.text.count("\n", 0, script.start()) + 1,
            "a training script is run, not read:  with stallpoint.probe(model, optimizer) as probe:  around its loop "
            "and  probe.step()  behind each update print at its end which rank, phase and layer holds the others up",
        )
    lines = [(index, line) for index, line in enumerate(document.raw_lines, start=1) if line.strip()]
    number, line = lines[0]
    form, *others = (re.sub(r"\d+", "0", one.strip())[:20] for _, one in lines[:2])
    if re.fullmatch(r"[\d.,;\s]+", line) and re.search(r"\d[\s;,]+\d", line):
        return document.error(number, f"numbers without a heading: {line.strip()[:60]!r}; {EXPECTED}")
    tabular = others and form not in others and re.search(r"[,;|\t]", line)
    if tabular and any(
        kind_of(cell) not in ("", "series") for grid in grids(document) for _, cells in grid.rows[:1] for cell in cells
    ):
        return document.error(number, f"no heading of worker counts in {line.strip()[:80]!r}; {EXPECTED}")
    return document.error(
        number,
        f"{line.strip()[:60]!r} begins nothing that is known; {known}; for a training log, --pattern"
        + (document.cut and f"; {document.cut}"),
    )
