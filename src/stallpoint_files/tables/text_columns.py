"""Columns of a table: headings, cells, and the kind of content, by heading or by the unit in cells, which wins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.tables.grids import MAX_ROWS, Grid, is_number
from stallpoint_files.texts.headings import COUNTS, TIMES, ColumnKind, kind_of
from stallpoint_files.texts.numbers import MISSING, is_numeric, seconds_in, unit_in, without_deviation

MIDDLE = re.compile(r"(?<![a-z])(?:median|mean|average|avg)(?![a-z])", re.IGNORECASE)
"""Word for an average in a heading, in order of robustness against outliers."""
OF_STEPS = re.compile(r"iter|step|batch|\bit\b", re.IGNORECASE)
"""Words of headings and units that refer to a step."""
UNIT_IN_CELL = re.compile(r"\W*[\d.,]+(?: ?[-–] ?[\d.,]+)? *([a-zA-Zµμ]\w*([ /]+\w+)*)")
_FACTOR = re.compile(r"\W*[\d.]+ ?[x×](?!\w)", re.IGNORECASE)
_LONGER_THAN_STEPS = re.compile(r"\d\s*(m(in\w*)?|h\w*|d(ays?)?)\b|\d:\d\d")
"""Times in minutes or longer, which are not step times."""
_LONGEST_STEP = 1e6
"""Maximum step time of a column of step times, s."""
_SHORTEST = re.compile(r"min(?:[ _]|[ _]?[(\[])(?:[mu]?s|sec(?:ond)?s?)[)\]]?", re.IGNORECASE)
"""Headings of the shortest repeat, ``min_s``, which do not mean minutes."""
_NUMBERED_EPOCH = re.compile(r"epoch *#?\d", re.IGNORECASE)
"""Headings of a certain epoch's time: ``epoch 1+ (warm)``."""


@dataclass(eq=False)
class TextColumn:
    """A column of a table that is being read."""

    heading: str
    cells: list[str]
    kind: str = ""

    @property
    def has_numbers(self) -> bool:
        """Whether a cell begins with a number."""
        return any(map(is_numeric, self.cells))


def columns_in(document: Document, grid: Grid) -> tuple[list[int], list[TextColumn]]:
    """Return the line numbers of a table's rows and its columns; `InputError` if a row has more cells than headings."""
    headings, in_blanks = grid.rows[0][1], not grid.separator.strip()
    texts = len(headings) > 1 and not in_blanks
    rows = [row for row in grid.rows[1:] if any(row[1]) and not (texts and len(row[1]) == 1)]
    if len(rows) > MAX_ROWS:
        raise InputError(f"{document.path}: more than {MAX_ROWS:,} rows; give those of one study")
    if in_blanks and {len(cells) for _, cells in rows} == {len(headings) + 1}:
        headings = ["", *headings]  # pandas writes no heading above its index
    if in_blanks:  # text around aligned columns is not part of the table
        rows = [row for row in rows if len(row[1]) == len(headings)]
    for line, cells in rows:
        if any(cells[len(headings) :]):
            hint = "a number with a comma in it goes in quotes" if grid.separator == "," else "check the row"
            what = f"{len(cells)} cells for {len(headings)} columns ({', '.join(headings)})"
            raise document.error(line, f"{what}; {hint}")
    columns = [
        TextColumn(heading, [cells[place].strip().strip("*`") if place < len(cells) else "" for _, cells in rows])
        for place, heading in enumerate(headings)
    ]
    _append_units(columns)
    return _of_one_metric([line for line, _ in rows], columns)


def _append_units(columns: Sequence[TextColumn]) -> None:
    """Append units from a column of units to the numbers of the column before it."""
    for numbers, units in pairwise(columns):
        if units.heading.strip(" *`").lower() in ("unit", "units"):
            pairs = zip(numbers.cells, units.cells, strict=True)
            numbers.cells = [f"{number} {unit}" if is_number(number) else number for number, unit in pairs]
            units.cells = [""] * len(units.cells)


def _of_one_metric(lines: list[int], columns: list[TextColumn]) -> tuple[list[int], list[TextColumn]]:
    """Return the rows of the first rate or time if a column names the quantity of each ``value``; else all rows."""
    heads = [column.heading.strip(" *`").lower() for column in columns]
    for names in columns if "value" in heads else ():
        rates = (name for name in names.cells if kind_of(name) in (ColumnKind.RATE, *TIMES) and not is_numeric(name))
        if what := next(rates, ""):
            kept = [place for place, name in enumerate(names.cells) if name == what]
            return [lines[place] for place in kept], [
                TextColumn(what if head == "value" else head, [column.cells[place] for place in kept])
                for head, column in zip(heads, columns, strict=True)
            ]
    return lines, columns


def kind_of_column(column: TextColumn, headings: Sequence[str]) -> str:
    """Return the kind of a column's content, by its heading among all `headings`, or else by the unit in its cells."""
    heading, cells = column.heading, [cell for cell in column.cells if not MISSING.fullmatch(cell)]
    kind = kind_of(heading)
    if kind in COUNTS and cells and not any(map(is_numeric, cells)):
        counts = sum(kind_of(head) in COUNTS for head in headings)
        return ColumnKind.SETTING if counts > 1 else kind  # cells without numbers are names, not counts
    if kind == ColumnKind.NODES and cells and all(re.fullmatch(r"[\d.]+ ?[kmKM]", cell) for cell in cells):
        return ""  # those of a graph
    if kind == ColumnKind.ITERATION and not OF_STEPS.search(heading) and cells:
        kind = ColumnKind.EPOCH if _LONGER_THAN_STEPS.search(cells[0]) else kind
    if kind == ColumnKind.ITERATION and any(seconds_in(cell, heading, False) > _LONGEST_STEP for cell in cells):
        return ""
    if _SHORTEST.fullmatch(heading) or (heading == "min" and any(map(MIDDLE.search, headings))):
        return ColumnKind.OTHER
    if kind == ColumnKind.RATE and cells and not unit_in(heading) and not re.search(r"\d", "".join(cells)):
        return ""  # Good, Excellent
    if kind == ColumnKind.RATE and cells and all(map(_FACTOR.match, cells)):
        return ColumnKind.SPEEDUP
    unit = UNIT_IN_CELL.fullmatch(without_deviation(cells[0])) if cells else None
    if not unit or kind not in ("", ColumnKind.RATE, ColumnKind.LABEL, *TIMES):
        return kind
    of_unit = kind_of(unit[1])
    if of_unit == ColumnKind.OTHER:
        return ""
    if kind in ("", ColumnKind.LABEL) and of_unit in TIMES and _NUMBERED_EPOCH.match(heading):
        return ColumnKind.EPOCH
    if kind and of_unit in (ColumnKind.RATE, *TIMES):  # a cell's unit wins, but does not say what is timed
        return kind if kind in TIMES and of_unit in TIMES else of_unit
    kind = kind or kind_of(f"{heading} {unit[1]}")
    return kind if kind in (ColumnKind.RATE, *TIMES) else ""
