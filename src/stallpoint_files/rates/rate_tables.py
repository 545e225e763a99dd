"""Tables of rates as people write them, in various words, units and number formats.

Worker counts and one column of rates or times are needed, all else is optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.rates.rate_columns import GUESSED, HOPED, Proportional, names_run, not_measured, rate_columns
from stallpoint_files.rates.rate_rows import ALL, EACH, STRONG, WEAK, RateRow, Rates
from stallpoint_files.tables.counted_table import CountedTable, left_out
from stallpoint_files.tables.grids import Grid, is_number, tables
from stallpoint_files.tables.text_columns import MIDDLE, OF_STEPS, UNIT_IN_CELL, TextColumn
from stallpoint_files.texts.headings import COUNTS, PER_WORKER, TIMES, ColumnKind, count_in_place, kind_of
from stallpoint_files.texts.languages import in_english
from stallpoint_files.texts.numbers import deviation_in, ends_of, number_in, other_unit, unit_in

FASTER = 1.2
"""Minimum speedup on more nodes at a constant number of GPUs for that number to be per node."""
FIRST_SPEEDUP = 0.03
"""Maximum distance from 1 of the speedup at the smallest count."""
POSTED = 4000
"""Maximum number of characters of a text that may be a post with a setup."""
_NEAR = 5
"""Number of lines above a table that decide between weak and strong scaling, if the text names both."""
_PARAGRAPH = 12
"""Maximum number of lines of the paragraph above a table."""
_LONGEST_TITLE = 80
"""Maximum number of characters of a table's title; a longer line is a sentence about anything."""
_ALONE = re.compile(
    r"(?:(?P<of>.+) )?(?:single|(?:single|one|1)[ -]?x? ?(?:gpu|device|worker|process|card)|baseline|serial)",
    re.IGNORECASE,
)
"""Settings that name the single worker with which the curves of all other settings, of its model, begin."""
_ALL = re.compile(r"(?<![a-z])(total|aggregated?|global|all)(?![a-z])", re.IGNORECASE)
_SPEEDUP_FITS = 0.05
_SCALING_WORDS = {
    STRONG: r"strong scaling|(global|total|effective)[ -]batch( size)? "
    r"(is |was )?(the same|kept|fixed|constant|unchanged|stay(s|ed))|"
    r"(same|fixed|constant) (global|total|effective)[ -]batch",
    WEAK: r"weak scaling|(per|each)[ -](gpu|device|worker|card)[ -]((train|micro|mini)[ -]?)?batch|"
    r"batch( size)?( per |/)(gpu|device|worker) (is |was )?(the same|kept|fixed|constant|unchanged|stay(s|ed))|"
    r"batch( size)?( of)? \d+ (on|for|per) (each|every)? ?(gpu|device|worker)|"
    r"(each|every) (gpu|device|worker) (has|keeps|gets) (a (mini-?)?batch|\d+ samples)",
}
"""Expressions for weak scaling (each worker keeps its mini-batch) and strong scaling (one is split)."""
_MODE = re.compile(rf"(?<![a-z])(?:{WEAK}|{STRONG})(?![a-z])", re.IGNORECASE)
_TIME_ALONE = re.compile(r"(?:time|elapsed|seconds)\W*(?:in )?(?:s|sec|secs|seconds)?\W*", re.IGNORECASE)
"""Headings of times that do not say what was timed."""
_OF_RUNS = re.compile(
    r"\b(?:(?:training|run(?:ning)?|total|execution|end[- ]to[- ]end) ?time|wall[- ]?clock|time to (?:train|solution))",
    re.IGNORECASE,
)
"""Words above a table by which its times are those of complete runs."""


def recognised(document: Document) -> bool:
    """Return whether the text has headings, one of them of worker counts, and a row of numbers."""
    return bool(_tables(document))


@lru_cache(maxsize=1)
def _tables(document: Document) -> list[Grid]:
    return tables(document, _is_head)


_SENTENCE = 12
"""Maximum number of words in a row of headings; more are a sentence."""


def _is_head(cells: Sequence[str]) -> bool:
    kinds = [kind_of(cell) for cell in cells]
    return (
        len(cells) >= 2
        and (ColumnKind.WORKERS in kinds or ColumnKind.NODES in kinds or count_in_place(cells) != "")
        and not any(map(is_number, cells))
        and not (cells[-1].endswith((":", "?", "!")) and len(" ".join(cells).split()) > _SENTENCE)
    )


EXPECTED = (
    "expected is a table with a heading for each column: workers (or gpus, ranks, nodes) and a rate "
    "(samples_per_second, tokens/s, images/s) or a time (s/iteration, epoch time); series and "
    "workers_per_node are optional"
)


def read(document: Document) -> list[Rates]:
    """Return the rates in each table; `InputError` names the line, what was expected, and how to write it."""
    found = _tables(document)
    if not found:
        raise InputError(f"{document.path}, line 1: no heading of worker counts; {EXPECTED}")
    hoped = [
        next(filter(is_hoped, (grid.above, *_titles(document, grid))), "") or _guess_above(document, grid)
        for grid in found
    ]
    measured = [grid for grid, title in zip(found, hoped, strict=True) if not title]
    if not measured:
        raise document.error(found[0].rows[0][0], not_measured(hoped[0]))
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
    read[0] = replace(read[0], notes=(*left_out(document, left), *read[0].notes))
    text = document.text if len(document.text) <= POSTED else ""
    return [replace(one, text=text, scaling=one.scaling or scaling, tables=len(read)) for one in read]


def _joined(grids: Sequence[Grid]) -> Iterator[Grid]:
    """Yield the tables; successive tables with one count each and equal headings and titles are joined."""
    last: Grid | None = None
    counts: set[str] = set()
    for grid in grids:
        heads = grid.rows[0][1]
        counted = (head for kind in COUNTS for head in heads if kind_of(head) == kind)
        place = heads.index(next(counted, "") or count_in_place(heads))
        own = {cells[place] for _, cells in grid.rows[1:] if place < len(cells)}
        titles = {re.sub(r"\d+|s\b", "", one.above) for one in (last, grid) if one}
        if last and len(own) == 1 and not own & counts and heads == last.rows[0][1] and len(titles) == 1:
            last = replace(last, rows=[*last.rows, *grid.rows[1:]], above="")
        else:
            if last:
                yield last
            last, counts = grid, set()
        counts |= own
    if last:
        yield last


def _titles(document: Document, grid: Grid) -> Iterator[str]:
    """Yield the Markdown headings of the sections that contain a table, the innermost first."""
    level = 7
    for line in reversed(document.raw_lines[: grid.rows[0][0] - 1]):
        marks = len(line) - len(line.lstrip("#"))
        if 0 < marks < level:
            level = marks
            yield line


def is_hoped(title: str) -> bool:
    """Return whether a title says that what is below it was expected, not measured."""
    return len(title) <= _LONGEST_TITLE and HOPED.search(title) is not None


def _guess_above(document: Document, grid: Grid) -> str:
    """Return the words in the paragraph above a table that call its numbers estimates; empty without such words."""
    above = document.raw_lines[max(grid.rows[0][0] - _PARAGRAPH, 0) : grid.rows[0][0] - 1]
    paragraph = "\n".join(above).rstrip().rpartition("\n\n")[2].replace("\n", " ")
    found = GUESSED.search(paragraph)
    return found[0] if found else ""


def _scaling_in(text: str) -> str:
    """Return `WEAK` or `STRONG` if a text names exactly one of them; else empty."""
    said = [name for name, words in _SCALING_WORDS.items() if re.search(words, text, re.IGNORECASE)]
    return said[0] if len(said) == 1 else ""


def _mode(row: RateRow) -> str:
    """Return `WEAK` or `STRONG` if a row's setting names it; else empty."""
    found = _MODE.search(row.series)
    return found[0].lower() if found else ""


class RateTable(CountedTable):
    """A table of rates while it is read."""

    like: Proportional | None = None
    """Kind of the values, if they are in proportion to rates; else None."""

    def __init__(self, document: Document, grid: Grid, name: str) -> None:
        super().__init__(document, grid, name)
        self.above = " ".join(document.raw_lines[max(self.line - _NEAR, 0) : self.line - 1])
        self.scaling = WEAK if self.growing_sizes else _scaling_in(in_english(self.above))
        if self._counted_in_each_node(self.values[0]):
            self.of(ColumnKind.WORKERS)[0].kind = ColumnKind.PER_NODE

    @override
    def kind_of(self, column: TextColumn) -> str:
        counted = self._count_in_place and column.heading == self._count_in_place
        return ColumnKind.WORKERS if counted else super().kind_of(column)

    @cached_property
    def _count_in_place(self) -> str:
        return count_in_place(self.headings)

    @override
    def value_columns(self) -> list[TextColumn]:
        columns, self.like = rate_columns(self)
        return columns

    def _counted_in_each_node(self, values: TextColumn) -> bool:
        """Return whether a column of GPUs counts those of each node: at a constant number, more nodes are faster."""
        nodes, workers = self.first(ColumnKind.NODES), self.first(ColumnKind.WORKERS)
        if not nodes or not workers or self.of(ColumnKind.PER_NODE):
            return False
        alike: dict[str, list[tuple[float, float]]] = {}
        for count, *row in zip(workers.cells, self._numbers(nodes), self._numbers(values), strict=True):
            if min(row) > 0:
                alike.setdefault(count, []).append((row[0], row[1]))
        ends = [(min(rows), max(rows)) for rows in alike.values()]
        faster = [
            (one[1] / other[1] if values.kind in TIMES else other[1] / one[1]) > FASTER
            for one, other in ends
            if other[0] > one[0]
        ]
        return bool(faster) and all(faster)

    def by_scaling(self) -> Iterator[Rates]:
        """Yield separate rates for columns, or rows, of strong scaling, of weak scaling, and of neither."""
        groups: dict[str, list[TextColumn]] = {}
        for column in self.values:
            groups.setdefault(_scaling_in(column.heading), []).append(column)
        for scaling, values in groups.items():
            rates = self._rates(values)
            for mode in dict.fromkeys(map(_mode, rates.rows)):
                rows = [row for row in rates.rows if _mode(row) == mode]
                yield replace(rates, rows=rows, scaling=scaling or mode or rates.scaling)
            self.notes, self.left = [], []

    def _rates(self, values: Sequence[TextColumn]) -> Rates:
        first = values[0]
        rows = [row for place in range(len(self.lines)) for row in self._rows(place, values)]
        rows = list(_with_common_first(rows))
        self._check_left(values, rows)
        heads = " ".join(column.heading for column in values)
        in_cell = next((one[1] for cell in first.cells if (one := UNIT_IN_CELL.fullmatch(cell))), "")
        of = EACH if PER_WORKER.search(f"{heads} {in_cell}") else ALL if _ALL.search(first.heading) else ""
        if self.like:
            return self._in_proportion(self.like, first, of, rows)
        said = " ".join([heads, *first.cells[:3]])
        unit = unit_in(said) or other_unit(said) or "samples/s"
        seconds = first.kind if first.kind in TIMES else ""
        of_epochs = "epoch" in first.heading.lower()
        if seconds == ColumnKind.ITERATION and self._is_of_epochs(first.heading):
            seconds, of_epochs = ColumnKind.EPOCH, True
        if seconds == ColumnKind.ITERATION and self._is_of_runs(first.heading):
            seconds = ColumnKind.EPOCH
        if first.kind == ColumnKind.RATE and unit == "iterations/s":
            seconds, rows = ColumnKind.ITERATION, list(map(_inverse, rows))
        if seconds == ColumnKind.EPOCH:
            unit = "epochs/h" if of_epochs else "runs/h"
        elif first.kind in ("", ColumnKind.LABEL):
            self._check_named(values, rows)
        if self.of(ColumnKind.BATCH):
            series = dict.fromkeys(row.series for row in rows)
            rows = [row for one in series for row in _with_batches([row for row in rows if row.series == one], seconds)]
        if seconds and (work := self._work_of(first, of_epochs)):
            done = self._numbers(work)
            rows = [row for row in rows if done[row.place] > 0]
            rows = [replace(row, value=row.value and done[row.place] / row.value) for row in rows]
            unit = re.split(r" ?/| per ", work.heading)[0]
            return Rates(rows, f"{unit}/s", ALL, "", self.counted, tuple(self.notes))
        scaling = self._scaling_by_speedup(rows) if seconds else ""
        if seconds == ColumnKind.EPOCH and (self.growing_sizes or scaling == WEAK):
            rows = [replace(row, value=row.value and 3600 * row.workers / row.value) for row in rows]
            return Rates(rows, f"single-worker {unit}", ALL, "", self.counted, tuple(self.notes), scaling=WEAK)
        scaling = scaling if seconds == ColumnKind.ITERATION else ""  # epoch times do not show mini-batches
        return Rates(
            rows, unit, "" if seconds else of, seconds, self.counted, tuple(self.notes),
            scaling=scaling or self.scaling,
        )  # fmt: skip

    def _in_proportion(self, like: Proportional, values: TextColumn, of: str, rows: Sequence[RateRow]) -> Rates:
        """Return rates from values in proportion to them."""
        if like.percent and max((row.value or 0.0 for row in rows), default=0.0) > 1.5:
            rows = [replace(row, value=row.value and row.value / 100) for row in rows]
        if like.inverse:
            rows = list(map(_inverse, rows))
        if like.kind == ColumnKind.SPEEDUP:
            self._check_speedup(values, rows)
        unit = like.unit.format(day="day" if "day" in values.heading.lower() else "h")
        return Rates(rows, unit, of or like.of, "", self.counted, tuple(self.notes))

    def _is_of_epochs(self, time: str) -> bool:
        """Return whether an unspecified time is that of an epoch, as each row has an epoch's number."""
        heads = [heading.lower() for heading in self.headings]
        return "epoch" in heads and not any(OF_STEPS.search(heading) for heading in (time, *heads))

    def _is_of_runs(self, time: str) -> bool:
        """Return whether an unspecified time is that of a run, by the lines above or a column of equal work."""
        said = _OF_RUNS.search(self.above) and not OF_STEPS.search(self.above)
        work = self.first(ColumnKind.WORK)
        alone = _TIME_ALONE.fullmatch(time.strip(" *`")) is not None
        return alone and bool(said or (work and self._of_same_samples(work, time)))

    def _of_same_samples(self, work: TextColumn, time: str) -> bool:
        """Return whether times of trainings, or unspecified times, have the same number of samples in each row, which
        may be the data set's size."""
        different = {number for number in self._numbers(work) if number > 0}
        of_samples = not re.search(r"epoch|step|iter|batch", f"{work.heading} {time}", re.IGNORECASE)
        return of_samples and len(different) == 1 and bool("train" in time.lower() or _TIME_ALONE.fullmatch(time))

    def _work_of(self, time: TextColumn, of_epochs: bool) -> TextColumn | None:
        """Return the column with the work done in a time; None without one."""
        work = self.first(ColumnKind.WORK)
        if not work or MIDDLE.fullmatch(time.heading):
            return None
        if self._of_same_samples(work, time.heading):
            self.notes.append(
                f"{work.heading} is the same in each row, the data set's size perhaps: nothing is divided by it"
            )
            return None
        in_steps = OF_STEPS.search(work.heading.partition("/")[2] or work.heading.partition("per")[2])
        return work if bool(of_epochs or OF_STEPS.search(time.heading)) == bool(in_steps) else None

    def _scaling_by_speedup(self, rows: Sequence[RateRow]) -> str:
        """Return `WEAK` or `STRONG` if given speedups or efficiencies fit the step times of only one; else empty."""
        column = self.first(ColumnKind.SPEEDUP, ColumnKind.EFFICIENCY)
        if not column or len({row.series for row in rows}) > 1:
            return ""
        said, each = self._numbers(column), column.kind == ColumnKind.EFFICIENCY
        known = sorted(
            (row.workers, row.value, said[row.place] * (row.workers if each else 1))
            for row in rows
            if row.value and said[row.place] > 0
        )
        if len(known) < 2:
            return ""
        first, seconds, begin = known[0]
        strong, weak = (
            all(
                abs((count / first) ** power * seconds / value / (speedup / begin) - 1) <= _SPEEDUP_FITS
                for count, value, speedup in known
            )
            for power in (0, 1)
        )
        return "" if strong == weak else STRONG if strong else WEAK

    def _numbers(self, column: TextColumn) -> list[float]:
        """Return the numbers in a column, NaN for cells without one."""
        return [number_in(cell, decimal_comma=self.comma) for cell in column.cells]

    # --- refused tables ---------------------------------------------------------------------------

    def _check_left(self, values: Sequence[TextColumn], rows: Sequence[RateRow]) -> None:
        """Note the excluded lines, or refuse the table if too few remain."""
        if self.left and len({row.workers for row in rows if row.value is not None}) < 2:
            raise self.left[0]
        if rows and all(row.value is None for row in rows) and not self.left:
            heads = ", ".join(column.heading for column in values)
            raise self.document.error(
                self.line, f"no numbers below {heads[:60]}; a rate or time on each count is needed"
            )
        if not rows:
            raise InputError(
                f"{self.document.path}: no rows below the heading of line {self.line}; one for each count is expected"
            )
        self.notes += left_out(self.document, self.left)

    def _check_speedup(self, values: TextColumn, rows: Sequence[RateRow]) -> None:
        """Refuse speedups that are neither 1 nor the count at the smallest count: they are of something else."""
        known = sorted((row for row in rows if row.value), key=lambda row: row.workers)
        if known and abs((known[0].value or 0) - 1) <= FIRST_SPEEDUP:
            return  # all speedups are relative to the smallest count
        for name in dict.fromkeys(row.series for row in rows if row.value):
            first = next(row for row in known if row.series == name)
            ratio = first.value or 1.0
            if abs(ratio - 1) > FIRST_SPEEDUP and abs(ratio / first.workers - 1) > 0.1:
                what = f"{values.heading} is {ratio:g} on {first.workers}, the smallest count, and not 1"
                ask = "a speedup of something else says nothing of scaling; give the rates or times that it is made of"
                raise self.document.error(first.line, f"{what}: {ask}")

    def _check_named(self, values: Sequence[TextColumn], rows: Sequence[RateRow]) -> None:
        """Refuse columns of unknown quantity, unless they name networks or repeats and do not fall with the workers."""
        known = sorted((row.workers, row.value) for row in rows if row.value)
        heading = values[0].heading[:40]
        words = ", ".join(column.heading for column in values)[:200]
        if known and known[-1][1] < 0.95 * known[0][1]:
            what = f"{heading} falls with the workers and is a rate or a time"
        elif not all(map(names_run, values)):
            what = f"nothing says whether {words} {'are rates or times' if len(values) > 1 else 'is a rate or a time'}"
        else:
            return
        raise self.document.error(
            self.line, f"{what}; a unit says which, such as {heading} (images/s), (s/iteration) or (minutes)"
        )

    # --- rows of the table ------------------------------------------------------------------------

    def _rows(self, row: int, values: Sequence[TextColumn]) -> Iterator[RateRow]:
        line = self.lines[row]
        if not (counted := self.workers(row)):
            return
        workers, per_node = counted
        batch, total, steps = (
            self.batch(row, kind)
            for kind in (ColumnKind.WORKER_BATCH, ColumnKind.GLOBAL_BATCH, ColumnKind.ACCUMULATION)
        )
        # The global mini-batch has its own column, or else follows from the accumulated micro-batches.
        batch = None if total else batch * (steps or 1.0) if batch else self.batch(row, ColumnKind.BATCH)
        name = self.series(row)
        named = len(self.values) > 1 and not all(column.kind == ColumnKind.LABEL for column in values)
        for column in values:
            series = f"{name} {column.heading.strip('*` ')}".strip() if named else name
            cell = column.cells[row]
            by = self.deviations.get(column)
            deviation = deviation_in(f"{cell} ± {by.cells[row]}" if by else cell, self.comma)
            for text in ends_of(cell):
                value = self.amount(row, column, text)
                yield RateRow(series, workers, value, per_node, batch, line, total, deviation, row)


def _inverse(row: RateRow) -> RateRow:
    """Return a row with the inverse of its value."""
    return replace(row, value=row.value and 1 / row.value)


def _with_common_first(rows: Sequence[RateRow]) -> Sequence[RateRow]:
    """Return rows with that of ``single GPU`` as the first row of each setting of its model that begins with more."""
    begun = {row.series for row in rows if row.workers == 1}
    alone: dict[str, list[RateRow]] = {}
    for row in rows:
        if row.workers == 1 and (found := _ALONE.fullmatch(row.series)):
            alone.setdefault(found["of"] or "", []).append(row)
    for model, first in alone.items():
        names = {row.series for row in first}
        others = dict.fromkeys(row.series for row in rows if row.series not in begun and row.series.startswith(model))
        if others and len(names) == 1 and not any(row.series in names and row.workers > 1 for row in rows):
            begins = [replace(row, series=series) for series in others for row in first]
            rows = [*begins, *(row for row in rows if row not in first)]
    return rows


def _with_batches(rows: Sequence[RateRow], seconds: str) -> Iterator[RateRow]:
    """Yield the rows with ``batch`` as the global mini-batch if it is in proportion to the workers, else as a worker's.
    It is dropped if times have one batch for all counts; batches that fall with the workers become separate series."""
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
