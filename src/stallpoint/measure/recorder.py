"""Rows of one rank, collected during measurements; they become tables only at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stallpoint.measure.machine.energy import EnergyMeter
from stallpoint.records.parquet import to_arrow
from stallpoint.records.tables import TABLES, Table
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.train_kind import TrainCell

_Block = tuple[int, dict[str, Any]]


class Recorder:
    """Collector of rows for the raw tables; it fills in the columns that are constant in the cell.

    Adding rows is one list append, which is almost free for the measured loop; another thread can save them at any
    moment.
    """

    def __init__(self, cell: Cell, rank: int, visit: int = 1, checkpoint: Path | None = None) -> None:
        self._constants = {**constants(cell, rank), "visit": visit}
        self.checkpoint = checkpoint
        """File for the checkpoint of an interrupted visit."""
        self.visit = visit
        """Number of the visit to the cell, from 1."""
        self.prepared = datetime.now(UTC)
        """Time when all ranks began to measure, after preparing."""
        self.energy: EnergyMeter | None = None
        """Meter that counts while the visit is measured."""
        self.measuring = 0.0
        """Time of measuring, warm-up included, s."""
        self.excluded_samples = 0
        """Samples of the storage that cannot be decoded and are excluded."""
        self._blocks: dict[str, list[_Block]] = {}

    def begin(self) -> None:
        """Note that all ranks begin to measure."""
        self.prepared = datetime.now(UTC)
        if self.energy:
            self.energy.begin()

    def add(self, table: Table, **values: object) -> None:
        """Add a row for each item of the lists, tuples or arrays in `values`; add one row if all values are single.

        Single values are repeated in each row. All calls for a table must name the same columns. Lists are not copied.
        """
        lengths = {len(value) for value in values.values() if isinstance(value, list | tuple | np.ndarray)}
        if len(lengths) > 1:
            raise ValueError(f"table {table.name}: columns of different lengths {sorted(lengths)}")
        self._blocks.setdefault(table.name, []).append((lengths.pop() if lengths else 1, values))

    @property
    def tables(self) -> list[Table]:
        """Return the tables that have rows."""
        return [TABLES[name] for name in self._blocks]

    def arrow(self, table: Table) -> pa.Table:
        """Return the rows of `table` so far, with the cell's own columns."""
        blocks = list(self._blocks.get(table.name, ()))
        rows = sum(length for length, _ in blocks)
        measured = blocks[0][1] if blocks else {}
        columns = {name: _column(blocks, name) for name in measured}
        if not rows:
            return table.schema.empty_table()
        for column in table.columns:
            if column.name not in columns:
                columns[column.name] = pa.repeat(pa.scalar(self._constants[column.name], column.type), rows)
        return to_arrow(table, columns)


def _column(blocks: list[_Block], name: str) -> list[Any]:
    """Return one column of all added rows; a single value is repeated in each row that was added with it."""
    return list(
        chain.from_iterable(
            values[name] if isinstance(values[name], list | tuple | np.ndarray) else repeat(values[name], length)
            for length, values in blocks
        )
    )


def constants(cell: Cell, rank: int = 0) -> dict[str, Any]:
    """Return the columns that are constant over the rows of a rank: the cell's axes, and columns derived from them."""
    columns: dict[str, Any] = {axis: getattr(cell, axis) for axis in cell.axes}
    if isinstance(cell, TrainCell):
        columns |= {"worker_batch": cell.worker_batch, "global_batch": cell.global_batch}
    cell_columns = {name: getattr(cell, name) for name in ("kind", "hardware", "nodes", "workers_per_node", "ranks")}
    return columns | cell_columns | {"cell": cell.path, "rank": rank}
