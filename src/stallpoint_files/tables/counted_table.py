"""Tables with a column of counts: workers, mini-batches and settings of their rows, and numbers in cells.

Rows are one series only if all columns that distinguish runs are equal. Excluded rows are noted with their lines; a
column that is not understood is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import isnan, nan, prod

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.tables.grids import Grid, is_number, product_in
from stallpoint_files.tables.text_columns import OF_STEPS, UNIT_IN_CELL, TextColumn, columns_in, kind_of_column
from stallpoint_files.texts.counts import COUNT_AHEAD
from stallpoint_files.texts.headings import CHIP, COUNTS, TIMES, ColumnKind, kind_of
from stallpoint_files.texts.numbers import (
    MAX_RATE,
    MAX_WORKERS,
    MIN_RATE,
    MISSING,
    decimal_comma,
    number_in,
    per_second,
    seconds_in,
)

_OF_NODE = re.compile(rf"\b(\d{{1,3}}) ?x? ?(?:gpus?|{CHIP}s?)\b", re.IGNORECASE)
"""Workers of each node, given in the heading of nodes."""
_DEGREE = re.compile(r"\b[tpced]p ?=? ?\d", re.IGNORECASE)
_OF_COUNT = re.compile(
    r"\s*(?:\b(?P<nodes>\d{1,4}) ?[x×*] ?(?P<each>\d{1,4})$|[x×] ?(?P<last>\d+)$|"
    r"\b(?P<count>\d+)[ -]?(?:nodes?|gpus?|workers?|devices?)\b)",
    re.IGNORECASE,
)
_BOUND = re.compile(r"\s*(?:(<|≤|less than|under)|>|≥|more than|over)\s*~?\d", re.IGNORECASE)
"""Cells with a bound instead of a number, such as ``>24h``."""
_NAME = re.compile(r"\W*names?\W*", re.IGNORECASE)
"""Headings of names, which may name settings."""
_SIZE = re.compile(r"(?:input|problem|data|domain|grid|mesh)[_ ]?size|n[_ ]?total", re.IGNORECASE)
"""Headings of the total problem size of all workers."""
_WHOLE = re.compile(r"\d{1,3}(,\d{3})+|\d+(\.0*)?|\d+ ?k", re.IGNORECASE)
BATCHES = (ColumnKind.WORKER_BATCH, ColumnKind.BATCH, ColumnKind.GLOBAL_BATCH, ColumnKind.ACCUMULATION)


class NotANumber(InputError):
    """Error that a cell has no number of the kind that its heading says: a count, a rate or a time."""


class CountedTable:
    """A table while it is read."""

    def __init__(self, document: Document, grid: Grid, name: str) -> None:
        self.document, self.line = document, grid.rows[0][0]
        self.name = name or document.path.stem
        self.notes: list[str] = []
        self.left: list[InputError] = []
        """Errors in excluded lines."""
        self.lines, self.columns = columns_in(document, grid)
        self.headings = [column.heading for column in self.columns]
        cells = [column.cells for column in self.columns]
        self.comma = grid.separator != "," and decimal_comma(cells, grid.separator)
        for column in self.columns:
            column.kind = self.kind_of(column)
        self._fill_down()
        self._part_counts_from_settings()
        self.values = self.value_columns()
        self.settings = self.setting_columns()
        self.deviations = self._deviation_columns()

    # --- columns of the table ---------------------------------------------------------------------

    def kind_of(self, column: TextColumn) -> str:
        """Return the kind of a column's content."""
        return kind_of_column(column, self.headings)

    def value_columns(self) -> list[TextColumn]:
        """Return the columns with measured values."""
        raise NotImplementedError

    def of(self, *kinds: str) -> list[TextColumn]:
        """Return the columns whose kind is one of `kinds`."""
        return [column for column in self.columns if column.kind in kinds]

    def first(self, *kinds: str) -> TextColumn | None:
        """Return the first column of the first of `kinds` that the table has; None without one."""
        return next((column for kind in kinds for column in self.of(kind)), None)

    def _fill_down(self) -> None:
        """Copy a setting that is written once for several rows into each of these rows."""
        for column in self.of(ColumnKind.SETTING):
            if column.cells and column.cells[0]:
                for row in range(1, len(column.cells)):
                    column.cells[row] = column.cells[row] or column.cells[row - 1]

    def _part_counts_from_settings(self) -> None:
        """Remove counts that other columns also give from settings: ``2 nodes NCCL``, ``DDP ×2``."""
        for column in self.of(ColumnKind.SETTING, ColumnKind.UNKNOWN):
            ahead = [COUNT_AHEAD.match(cell) for cell in column.cells]
            rest = [cell[one.end() :].strip() for cell, one in zip(column.cells, ahead, strict=True) if one]
            if len(rest) == len(column.cells) and any(rest):
                column.cells, column.kind = rest, ColumnKind.SETTING
            elif column.kind == ColumnKind.SETTING or not column.has_numbers:
                column.cells = [
                    cell.replace(one[0], "") if (one := _OF_COUNT.search(cell)) and _count_of(one) in count else cell
                    for cell, count in zip(column.cells, map(str.split, self.counts), strict=True)
                ]

    def setting_columns(self) -> list[TextColumn]:
        """Return the columns that distinguish series: those with such a heading, columns of words that do not name
        single runs, and numbers in which rows of one count differ, such as batches."""
        found = [
            column for column in self.of(ColumnKind.SETTING) if any(column.cells) and column not in self.growing_sizes
        ]
        unread = []
        self.notes += [f"{one.heading} grows with the workers: each keeps its part" for one in self.growing_sizes]
        for column in self.of(ColumnKind.UNKNOWN):
            if column in (*self.values, *self.growing_sizes) or not any(column.cells):
                continue
            words = all(column.cells) and not column.has_numbers
            least = len(self.lines) if all(map(_DEGREE.search, column.cells)) else 3  # layouts of a count are no runs
            if words and len(set(column.cells)) == len(self.lines) and len(set(self.counts)) >= least:
                note = f"{column.heading} differs in each row and is read as the name of a run"
                self.notes += [f"line {self.lines[0]}: {note}"]
            elif words:
                found.append(column)
            else:
                unread.append(column)
        for column in (column for kind in BATCHES for column in self.of(kind) if column not in self.values):
            if self._distinguishes(column, found, alone=True):
                found.append(column)
        named = [one for one in self.of(ColumnKind.LABEL) if _NAME.fullmatch(one.heading) and not one.has_numbers]
        for column in (*unread, *named):
            if self._distinguishes(column, found, alone=False):
                found.append(column)
        names = [column.heading for column in unread if column not in found and column.heading]
        if names:
            self.notes.append(f"not understood and not read: {', '.join(names)[:200]}")
        return found

    @cached_property
    def growing_sizes(self) -> list[TextColumn]:
        """Columns of sizes, such as ``(4096, 512)``, in proportion to the workers: each keeps its part."""
        sizes = (one for one in self.of(ColumnKind.UNKNOWN) if _SIZE.fullmatch(one.heading.strip(" *`")))
        return list(filter(self._grows, (*self.of(ColumnKind.SETTING), *sizes)))

    def _grows(self, column: TextColumn) -> bool:
        counts = self.first(*COUNTS)
        each = set()
        for cell, text in zip(column.cells, counts.cells if counts else (), strict=False):
            workers, sizes = product_in(text) or (1, number_in(text)), re.findall(r"\d+", cell)
            named = is_number(cell) and _SIZE.fullmatch(column.heading.strip(" *`"))
            if not workers[1] > 0 or not (named or len(sizes) > 1):
                return False
            each.add((number_in(cell) if named else prod(map(int, sizes))) / prod(workers))
        return len(each) == 1 and len(set(column.cells)) > 1

    def _distinguishes(self, column: TextColumn, settings: Sequence[TextColumn], *, alone: bool) -> bool:
        """Return whether rows of one count and equal settings differ in a column. Unless `alone`, a value must also
        occur at several counts or, if there is only one count, with several settings."""
        alike: dict[tuple[str, ...], set[str]] = {}
        of: dict[str, set[str]] = {}
        for row, (count, cell) in enumerate(zip(self.counts, column.cells, strict=True)):
            key = (count, *(one.cells[row] for one in settings))
            alike.setdefault(key, set()).add(cell)
            of.setdefault(cell, set()).add(count if len(set(self.counts)) > 1 else " ".join(key))
        return max(map(len, alike.values()), default=0) > 1 and (alone or max(map(len, of.values())) > 1)

    def _deviation_columns(self) -> dict[TextColumn, TextColumn]:
        """Return the deviation column of each value column: with the same words in its heading, or next to it."""
        found: dict[TextColumn, TextColumn] = {}
        for place, column in enumerate(self.columns):
            if column.kind == ColumnKind.SCATTER:
                words = _plain(column.heading)
                same = [one for one in self.values if words and _plain(one.heading) == words]
                of = same[0] if same else self.columns[place - 1] if place else None
                if of in self.values:
                    found[of] = column
                else:
                    self.notes.append(f"not understood and not read: {column.heading[:200]}")
        return found

    # --- rows of the table ------------------------------------------------------------------------

    @cached_property
    def counts(self) -> list[str]:
        """Joined cells of all columns of counts, by row."""
        cells = [column.cells for column in self.of(*COUNTS, ColumnKind.PER_NODE)]
        return [" ".join(of_row) for of_row in zip(*cells, strict=True)] if cells else [""] * len(self.lines)

    @cached_property
    def _per_node(self) -> float | None:
        """Workers of each node, if the heading of nodes gives them."""
        found = _OF_NODE.search(" ".join(column.heading for column in self.of(ColumnKind.NODES)))
        return float(found[1]) if found else None

    @property
    def counted(self) -> str:
        """Unit of the counts: GPUs, workers, or nodes if no column gives the workers of a node."""
        if column := self.first(ColumnKind.WORKERS, ColumnKind.PER_NODE):
            name = column.heading.lower()
            chips = re.search(r"\d", name) and not kind_of(re.sub(r"\w*\d\w*", "", name))
            return "threads" if "thread" in name else "GPUs" if "gpu" in name or chips else "workers"
        return "GPUs" if self._per_node else "nodes"

    def workers(self, row: int) -> tuple[int, float | None] | None:
        """Return the number of workers of a row, and of workers per node; None if the cell has no number."""
        column = self.first(*COUNTS)
        if not column:
            raise self.document.error(self.line, "no column has counts of workers; numbers from 1 on are expected")
        if not (count := self._count(row, column)):
            return None
        per_node = self.number(row, ColumnKind.PER_NODE) or self._per_node
        if column.kind == ColumnKind.NODES:
            return count * int(per_node or 1), per_node
        if product := product_in(column.cells[row]):
            head = column.heading.lower().partition("node")
            return count, float(product[1 if "gpu" not in head[0] or not head[1] else 0])
        nodes = None if per_node else self.number(row, ColumnKind.NODES)
        return count, count / nodes if nodes else per_node

    def _count(self, row: int, column: TextColumn) -> int | None:
        text = column.cells[row]
        value = number_in(text, decimal_comma=self.comma)
        words = not re.search(r"\d|^(inf|nan)$", text, re.IGNORECASE)
        if product := product_in(text):
            value = float(product[0] * product[1])
        elif re.match(r"[\d.,]+\s*(?:[-–/:+x×*]\s*\d|\+)", text):
            value = nan
        if value == 0:
            self.notes.append(f"line {self.lines[row]}: {column.heading} is 0; left out")
            return None
        if not 1 <= value <= MAX_WORKERS or value != int(value):
            what = f"{column.heading} is {text[:40] or 'empty'}; a whole number from 1 on is expected, such as 8"
            self.left.append(self.document.error(self.lines[row], what, NotANumber))
            if not words and any(not MISSING.fullmatch(one.cells[row]) for one in self.values):
                raise self.left[-1]
            return None
        return int(value)

    @cached_property
    def _naming_columns(self) -> list[TextColumn]:
        """Settings each of which distinguishes more rows than those before it; without any, settings in words."""
        groups: set[tuple[str, ...]] = {()}
        chosen: list[TextColumn] = []
        for column in self.settings:
            more = set(zip(*(one.cells for one in (*chosen, column)), strict=True))
            if len(more) > len(groups):
                groups, chosen = more, [*chosen, column]
        return chosen or [column for column in self.settings if not column.has_numbers]

    def series(self, row: int) -> str:
        """Return the name of a row's series: its cells of the settings that differ between rows, or else in words."""
        words = " ".join(
            f"{column.heading} {cell}" if is_number(cell) and column.heading != "series" else cell
            for column in self._naming_columns
            if (cell := column.cells[row])
        )
        several = len(self.values) > 1 and any(column.kind != ColumnKind.LABEL for column in self.values)
        return re.sub(r"[*`]", "", words) if words or several else self.name

    # --- numbers in cells -------------------------------------------------------------------------

    def number(self, row: int, kind: str, least: float = MIN_RATE) -> float | None:
        """Return the number, at least `least`, in the row's column of a kind; None without one."""
        column = self.first(kind)
        if not column or MISSING.fullmatch(text := column.cells[row]):
            return None
        value = number_in(text, decimal_comma=self.comma)
        if not least <= value <= MAX_RATE:
            what = f"{column.heading} is {text[:40]}; a positive number is expected, or nothing if unknown"
            raise self.document.error(self.lines[row], what, NotANumber)
        return value

    def batch(self, row: int, kind: str) -> float | None:
        """Return the number in the row's column of batches; None for several in one cell, such as ``64,32``."""
        text = column.cells[row] if (column := self.first(kind)) else ""
        if _WHOLE.fullmatch(text):
            return number_in(text) or None
        return self.number(row, kind) if not re.search(r"\d\D+\d", text) else None

    def amount(self, row: int, column: TextColumn, text: str, kind: str = "") -> float | None:
        """Return the number of a cell, in s for a time, per second for a rate; None if the cell has no number."""
        line, kind = self.lines[row], kind or column.kind
        if MISSING.fullmatch(text):
            if text.strip("-–— "):
                self.notes.append(f"line {line}: {text[:40]} is no rate")
            return None
        if bound := _BOUND.match(text):
            what = f"{column.heading} is {text[:40]}: {'less' if bound[1] else 'more'} than it, and no number"
            self.left.append(self.document.error(line, what))
            return None
        inverse = _inverse_kind(kind, text)
        kind = inverse or kind
        of_kind = per_second if kind == ColumnKind.RATE else seconds_in if kind in TIMES else None
        value = of_kind(text, column.heading, self.comma) if of_kind else number_in(text, decimal_comma=self.comma)
        value = 1 / value if inverse and value > 0 else value
        if MIN_RATE <= value <= MAX_RATE:
            return value
        expected = "a time is expected" if kind in TIMES and re.match(r"\d", text) else (
            "a positive number is expected, or nothing (or OOM) where nothing was measured"
        )  # fmt: skip
        error = self.document.error(line, f"{column.heading} is {text[:40]}; {expected}", NotANumber)
        if value == 0 or (isnan(value) and not re.search(r"\d", text)):
            self.left.append(error)
            return None
        raise error


def left_out(document: Document, errors: Iterable[InputError]) -> list[str]:
    """Return notes on the excluded lines."""
    begin = f"{document.path}, "
    return [str(error).removeprefix(begin).partition(";")[0] + "; left out" for error in errors]


def _count_of(found: re.Match[str]) -> str:
    """Return the count that a setting says: ``2x4`` is 8."""
    return str(int(found["nodes"]) * int(found["each"])) if found["nodes"] else found["last"] or found["count"]


def _plain(heading: str) -> str:
    """Return a heading without the words for means and deviations."""
    return re.sub(r"(?:std|stdev|sd|sem|ci|dev\w*|mean|median|average|avg)(?![a-z])|\W|_", "", heading.lower())


def _inverse_kind(kind: str, text: str) -> str:
    """Return a cell's kind if its unit is the inverse of its column's (``1.25s/it`` below ``2.00it/s``); else empty."""
    unit = UNIT_IN_CELL.fullmatch(text)
    of_unit = kind_of(unit[1]) if unit else ""
    steps = unit and OF_STEPS.search(unit[1])
    return of_unit if steps and {kind, of_unit} == {ColumnKind.RATE, ColumnKind.ITERATION} else ""
