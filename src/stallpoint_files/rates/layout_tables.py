"""Tables of layouts: one run in each row, with its parallel degrees, batch sizes, rate and memory.

Columns are recognised by their headings (``dp``, ``pp``, ``tp``, ``ep``, ``zero``, ``mbs``, ``gradacc``, ``gbs``,
``memory_gb``), rates as in `rate_tables`. A degree without a column is 1. A row without a rate asks for a
prediction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.tables.counted_table import CountedTable
from stallpoint_files.tables.grids import Grid, is_number, tables
from stallpoint_files.tables.text_columns import TextColumn
from stallpoint_files.texts.headings import BRACKETS, PER_WORKER, ColumnKind, kind_of
from stallpoint_files.texts.numbers import number_in, unit_in

_HEADINGS = {
    "data": r"dp|ddp|data[ _]?parallel(ism)?([ _]?size)?|replicas",
    "pipeline": r"pp|pipeline[ _]?(parallel(ism)?)?([ _]?size)?|(pipeline[ _])?stages",
    "tensor": r"tp|tensor[ _]?(model[ _]?)?parallel(ism)?([ _]?size)?",
    "expert": r"ep|expert[ _]?(model[ _]?)?parallel(ism)?([ _]?size)?",
    "zero": r"zero([ _]?(stage|level))?",
    "micro_batch": r"mbs|micro[ _]?batch([ _]?size)?",
    "accumulation": r"ga|(batch|grad(ient)?)[ _]?acc(um(ulation)?)?([ _]?steps)?|micro[ _]?batches",
    "batch": r"gbs|(global|total)[ _]?batch([ _]?size)?",
    "memory": r"(peak[ _]?|gpu[ _]?|max[ _]?)*mem(ory)?([ _]?(gb|gib|usage))*",
}
_DEGREES = ("data", "pipeline", "tensor", "expert")


@dataclass(frozen=True)
class LayoutRow:
    """One run, or a layout that asks for a prediction."""

    series: str
    data: float
    pipeline: float
    tensor: float
    expert: float
    zero: float
    micro_batch: float
    accumulation: float
    per_node: float | None
    rate: float | None
    """Total rate of all workers, samples/s; None if not measured."""
    memory: float | None
    """Memory of a worker, GB."""
    asked: bool
    """Whether the rate's cell is empty, which asks for a prediction (unlike the cell of a run out of memory)."""
    line: int


@dataclass(frozen=True)
class LayoutTable:
    """Layouts from one table."""

    rows: Sequence[LayoutRow]
    unit: str
    notes: Sequence[str]


def recognised(document: Document) -> bool:
    """Return whether headings name a rate and two parallel degrees, one of them of pipelines or tensors.

    If every other degree than that of data parallelism is 1 in all rows, the table is a curve: a table of rates.
    """
    return not all(map(_is_curve, tables(document, _is_head)))


def _is_curve(grid: Grid) -> bool:
    others = [index for index, cell in enumerate(grid.rows[0][1]) if _kind(cell) in _DEGREES[1:]]
    return all(number_in(cells[index]) == 1 for _, cells in grid.rows[1:] for index in others if index < len(cells))


def _kind(heading: str) -> str:
    name = BRACKETS.sub("", heading).strip(" *`_").lower().replace("-", "_")
    return next((kind for kind, pattern in _HEADINGS.items() if re.fullmatch(pattern, name)), "") or kind_of(heading)


def _is_head(cells: Sequence[str]) -> bool:
    kinds = {_kind(cell) for cell in cells}
    if any(map(is_number, cells)):
        return False
    return len(kinds & set(_DEGREES)) > 1 and all(kinds & of for of in ({"pipeline", "tensor"}, {"rate", "iteration"}))


def read(document: Document) -> list[LayoutTable]:
    """Return the layouts in each table; `InputError` names the wrong line."""
    if found := tables(document, _is_head):
        return [_Layouts(document, grid, "").layouts() for grid in found]
    raise InputError(f"{document.path}, line 1: no heading of parallel degrees (dp, pp, tp, ep) and a rate")


class _Layouts(CountedTable):
    """A table while it is read."""

    @override
    def kind_of(self, column: TextColumn) -> str:
        return _kind(column.heading)

    @override
    def value_columns(self) -> list[TextColumn]:
        return self.of(ColumnKind.RATE, ColumnKind.ITERATION)

    @override
    def setting_columns(self) -> list[TextColumn]:
        return self.of(ColumnKind.SETTING)

    def layouts(self) -> LayoutTable:
        """Return the table's layouts."""
        rows = {line: self._layout(row) for row, line in enumerate(self.lines)}
        uneven = [str(line) for line, layout in rows.items() if not layout]
        notes = []
        if uneven:
            listed = ", ".join(uneven[:5]) + (", ..." if len(uneven) > 5 else "")
            notes.append(f"{len(uneven)} rows are left out, whose dp x micro-batch x accumulation is not the batch "
                         f"(lines {listed})")  # fmt: skip
        units = " ".join(column.heading for column in self.values)
        unit = unit_in(units.replace("_", " ")) or unit_in(units) or "samples/s"
        return LayoutTable([layout for layout in rows.values() if layout], unit, notes)

    def _layout(self, row: int) -> LayoutRow | None:
        """Return the layout of a row; None if its batch sizes contradict one another."""
        pipeline, tensor, expert = (self._integer(row, kind) or 1.0 for kind in _DEGREES[1:])
        nodes, workers, per_node = (self._integer(row, kind) for kind in ("nodes", "workers", "workers_per_node"))
        if workers is None and nodes and per_node:
            workers = nodes * per_node
        data = self._integer(row, "data") or (workers / (pipeline * tensor) if workers else None)
        if data is None or data % 1:
            what = "no data-parallel degree (dp), and no number of workers that gives it"
            raise self.document.error(self.lines[row], what)
        micro, steps, batch = (self._integer(row, kind) for kind in ("micro_batch", "accumulation", "batch"))
        if micro is None:
            micro = batch / (data * (steps or 1.0)) if batch else 1.0
        if steps is None:
            steps = batch / (data * micro) if batch else 1.0
        if steps < 1 or micro <= 0 or (batch and abs(data * micro * steps / batch - 1) > 1e-6):
            return None
        workers = data * pipeline * tensor
        measured = [self._rate(row, column, workers, data * micro * steps) for column in self.values]
        return LayoutRow(
            " ".join(filter(None, (column.cells[row] for column in self.settings))) or self.name,
            data, pipeline, tensor, expert, self._integer(row, "zero", 0.0) or 0.0, micro, steps,
            per_node or (workers / nodes if nodes else None), max((one for one in measured if one), default=None),
            self.number(row, "memory"), not any(column.cells[row].strip("-–—? ") for column in self.values),
            self.lines[row],
        )  # fmt: skip

    def _integer(self, row: int, kind: str, least: float = 1.0) -> float | None:
        """Return the integer in the row's column of a kind; None without one."""
        value, column = self.number(row, kind, least), self.first(kind)
        if column and value is not None and value % 1:
            what = f"{column.heading} is {column.cells[row]}; a whole number is expected"
            raise self.document.error(self.lines[row], what)
        return value

    def _rate(self, row: int, column: TextColumn, workers: float, batch: float) -> float | None:
        """Return the total rate of all workers, per second."""
        value = self.amount(row, column, column.cells[row])
        if value is None or column.kind == ColumnKind.RATE:
            return value and value * (workers if PER_WORKER.search(column.heading) else 1)
        return batch / value


def series(table: LayoutTable) -> Iterator[tuple[str, list[LayoutRow]]]:
    """Yield the rows of each series, in the order of their first rows."""
    for name in dict.fromkeys(row.series for row in table.rows):
        yield name, [row for row in table.rows if row.series == name]
