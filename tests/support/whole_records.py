"""Rows of whole records, whatever was measured."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from stallpoint.records.tables import (
    COLLECTIVES,
    ENVIRONMENTS,
    FLAG,
    INT,
    INTERVENED,
    ITERATIONS,
    LAYERS,
    REAL,
    TEXT,
    Table,
)
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.train_kind import TrainCell

STARTED = datetime(2026, 1, 2, tzinfo=UTC)
LAYER_COUNT = 3
POSSIBLE = {"iteration_time": 8.0, "measuring": 500.0, "duration": 1000.0, "gflops": 2e-9}
"""Values that fit the others, which are 1."""


def measured(cell: Cell, table: Table, visits: int = 2) -> list[dict[str, Any]]:
    """Rows of `table` as a job writes them that visits the cell so often, whatever was measured."""
    once = {"cell": cell.path, "kind": cell.kind}
    defaults = {TEXT: "x", INT: 1, REAL: 1.0, FLAG: False}
    inner: list[dict[str, Any]] = [{}]
    if table in (ITERATIONS, INTERVENED, LAYERS) and isinstance(cell, TrainCell):
        count = cell.warmup + cell.iterations
        inner = [{"iteration": at, "warmup": at < cell.warmup, "start": 8.0 * at} for at in range(count)]
    if table is LAYERS:
        part = {"forward": 0.1, "backward": 0.1}
        inner = [{**one, **part, "layer_index": place} for one in inner for place in range(LAYER_COUNT)]
    if table is COLLECTIVES and isinstance(cell, CollectivesCell):
        pairs = product(range(cell.samples + 1), cell.message_bytes)
        inner = [{"sample": sample, "message_bytes": size} for sample, size in pairs]
    names = {*cell.axes, "hardware", "nodes", "ranks", "repeat"}
    names |= {"worker_batch", "global_batch"} if isinstance(cell, TrainCell) else set()
    same = {**POSSIBLE, **{name: getattr(cell, name) for name in names}, **once}
    count = 1 if table is ENVIRONMENTS else visits
    found = []
    for visit in range(1, count + 1):
        started = STARTED + timedelta(hours=visit - 1)
        here = {**same, "visit": visit, "position": visit}
        for rank, one in product(range(cell.ranks), inner):
            row = {**here, **one, "rank": rank}
            found.append(
                {column.name: row.get(column.name, defaults.get(column.type, started)) for column in table.columns}
            )
    return found
