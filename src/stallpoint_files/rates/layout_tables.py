"""Tables of layouts: one run in each row, with its parallel degrees, batch sizes, rate and memory.

Columns are known by their headings (``dp``, ``pp``, ``tp``, ``ep``, ``zero``, ``mbs``, ``gradacc``, ``gbs``,
``memory_gb``), rates and numbers as in `rate_tables`. A degree without a column is 1. A row without a rate asks for a
prediction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stallpoint.errors import InputError
from stallpoint.inputs.documents import Document
from stallpoint_files.rates.rate_tables import MAX_RATE, MAX_WORKERS, MIN_RATE
from stallpoint_files.texts.grids import MAX_ROWS, Grid, is_number, tables
from stallpoint_files.texts.headings import BRACKETS, PER_WORKER, kind_of
from stallpoint_files.texts.numbers import MISSING, number_in, unit_in

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
    """Of all workers, a second; None where nothing was measured."""
    memory: float | None
    """Of a worker, GB."""
    asked: bool
    """Whether nothing stands in place of the rate, which asks for a prediction; a run out of memory does not."""
    line: int


@dataclass(frozen=True)
class LayoutTable:
    """What a file says of layouts."""

    rows: Sequence[LayoutRow]
    unit: str
    notes: Sequence[str]


def recognised(document: Document) -> bool:
    """Return whether a heading has a rate and two parallel degrees, one of them that of pipelines or tensors.

    Where every degree but that of data parallelism is 1 in all rows, the table is a curve, and one of rates.
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
    """Return the layouts in each table; `InputError` names the line that is wrong."""
    if found := tables(document, _is_head):
        return [_read(document, grid) for grid in found]
    raise InputError(f"{document.path}, line 1: no heading of parallel degrees (dp, pp, tp, ep) and a rate")


def _read(document: Document, grid: Grid) -> LayoutTable:
    _, headings = grid.rows[0]
    kinds = [_kind(cell) for cell in headings]
    body = [row for row in grid.rows[1:] if len(row[1]) > 1]
    if len(body) > MAX_ROWS:
        raise InputError(f"{document.path}: more than {MAX_ROWS:,} rows; give those of one study")
    columns = {kind: index for index, kind in reversed(list(enumerate(kinds)))}
    values = [index for index, kind in enumerate(kinds) if kind in ("rate", "iteration")]
    named = [index for index, kind in enumerate(kinds) if kind == "series"]
    rows: list[LayoutRow] = []
    uneven: list[int] = []
    for line, cells in body:
        row = _Row(document, line, headings, cells, columns)
        layout = row.layout(" ".join(filter(None, (row.text(index) for index in named))), values, kinds)
        if row.uneven:
            uneven.append(line)
        else:
            rows.append(layout)
    notes = []
    if uneven:
        listed = ", ".join(map(str, uneven[:5])) + (", ..." if len(uneven) > 5 else "")
        notes.append(f"{len(uneven)} rows are left out, whose dp x micro-batch x accumulation is not the batch "
                     f"(lines {listed})")  # fmt: skip
    units = " ".join(headings[index] for index in values)
    return LayoutTable(rows, unit_in(units.replace("_", " ")) or unit_in(units) or "samples/s", notes)


class _Row:
    """One row while it is read."""

    def __init__(
        self, document: Document, line: int, headings: Sequence[str], cells: Sequence[str], columns: Mapping[str, int]
    ) -> None:
        self.document, self.line, self.headings, self.cells, self.columns = document, line, headings, cells, columns
        self.uneven = False

    def text(self, index: int) -> str:
        return self.cells[index].strip().strip("*`") if index < len(self.cells) else ""

    def number(self, index: int, low: float = MIN_RATE, high: float = MAX_RATE) -> float | None:
        """Return the number in a cell; None where nothing was measured."""
        text = self.text(index)
        if MISSING.fullmatch(text):
            return None
        value = number_in(text, decimal_comma=False)
        if not low <= value <= high:
            raise self.document.error(
                self.line, f"{self.headings[index]} is {text[:40]}; a number from {low:g} on is expected"
            )
        return value

    def count(self, kind: str, otherwise: float | None = None, low: float = 1) -> float | None:
        """Return the whole number in the column of a kind; `otherwise` without one."""
        index = self.columns.get(kind)
        if index is None:
            return otherwise
        value = self.number(index, low, MAX_WORKERS)
        if value is not None and value % 1:
            raise self.document.error(
                self.line, f"{self.headings[index]} is {self.text(index)}; a whole number is expected"
            )
        return otherwise if value is None else value

    def layout(self, series: str, values: Sequence[int], kinds: Sequence[str]) -> LayoutRow:
        """Return the row; `uneven` is then whether its batch sizes contradict each other."""
        pipeline, tensor, expert = (self.count(kind, 1.0) or 1.0 for kind in _DEGREES[1:])
        nodes, workers = self.count("nodes"), self.count("workers")
        per_node = self.count("workers_per_node")
        if workers is None and nodes and per_node:
            workers = nodes * per_node
        data = self.count("data", workers / (pipeline * tensor) if workers else None)
        if data is None or data % 1:
            raise self.document.error(self.line, "no data-parallel degree (dp), and no number of workers that gives it")
        micro, steps, batch = self.count("micro_batch"), self.count("accumulation"), self.count("batch")
        if micro is None:
            micro = batch / (data * (steps or 1.0)) if batch else 1.0
        if steps is None:
            steps = batch / (data * micro) if batch else 1.0
        workers = data * pipeline * tensor
        self.uneven = steps < 1 or micro <= 0 or bool(batch and abs(data * micro * steps / batch - 1) > 1e-6)
        measured = [self._rate(index, kinds[index], workers, data * micro * steps) for index in values]
        memory = self.number(self.columns["memory"]) if "memory" in self.columns else None
        return LayoutRow(
            series or self.document.path.stem, data, pipeline, tensor, expert, self.count("zero", 0.0, 0) or 0.0,
            micro, steps, per_node or (workers / nodes if nodes else None),
            max((one for one in measured if one), default=None), memory,
            not any(self.text(index).strip("-–—? ") for index in values), self.line,
        )  # fmt: skip

    def _rate(self, index: int, kind: str, workers: float, batch: float) -> float | None:
        """Return the rate of all workers."""
        value = self.number(index)
        if value is None or kind == "rate":
            return value and value * (workers if PER_WORKER.search(self.headings[index]) else 1)
        milli = re.search(r"\bms\b|millisec", self.headings[index].replace("_", " "), re.I)
        return batch / (value / 1e3 if milli else value)


def series(table: LayoutTable) -> Iterator[tuple[str, list[LayoutRow]]]:
    """Yield the rows of each series, in the order of their first rows."""
    for name in dict.fromkeys(row.series for row in table.rows):
        yield name, [row for row in table.rows if row.series == name]
