"""Memory to request for the workflow's rule ``fit``, and warnings about cells that may run out of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from stallpoint.errors import InputError
from stallpoint.records.parquet import read
from stallpoint.records.tables import LARGEST_BATCH
from stallpoint.study.kinds.train_kind import TrainCell

FIT_MB = 1500
"""Memory of the rule `fit` in a small study, MB."""
CELL_MB, ROW_MB = 2.0, 1e-3
"""Largest additional memory for each cell, and for each row of iterations, MB (``benchmarks/run.py scale many-cells``);
rows of layers are more numerous, but read in parts."""


def fit_memory(runs: Path, iterations: Path) -> int:
    """Return the memory to request for the rule ``fit``, MB, by the rows in the files `runs` and `iterations`."""

    def rows(path: Path) -> int:
        with path.open("rb") as file:
            return int(pq.read_metadata(file).num_rows)

    return round(FIT_MB + CELL_MB * rows(runs) + ROW_MB * rows(iterations))


def expected(cells: Iterable[object], models: Path) -> list[str]:
    """Return a warning for each network, hardware and mini-batch that may exceed memory, from tables in `models`."""
    train_cells = [cell for cell in cells if type(cell) is TrainCell]
    file = models / f"{LARGEST_BATCH.name}.parquet"
    if not train_cells or not file.exists():
        return []
    known_rows: list[dict[str, Any]] = []
    with suppress(InputError):  # a table of an older version counts as missing
        known_rows = read(LARGEST_BATCH, file).to_pylist()
    return list(dict.fromkeys(line for cell in train_cells for line in _warnings(cell, known_rows)))


def _warnings(cell: TrainCell, known_rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in known_rows:
        matches = (row["network"], row["hardware"], row["workers_per_node"]) == (
            cell.network, cell.hardware, cell.workers_per_node,
        )  # fmt: skip
        on_curve = matches and (row["sync"], row["prefetch"], row["shards"]) == (cell.sync, cell.prefetch, cell.shards)
        description = f"{cell.network} on {cell.hardware}, {cell.sync}: b = {cell.worker_batch:,}"
        smallest_failed = row["smallest_failed"]
        # A mini-batch that exceeds the memory of an isolated worker (preset none) exceeds it with any preset.
        if matches and smallest_failed and cell.worker_batch >= smallest_failed and (on_curve or row["sync"] == "none"):
            yield f"{description} is expected to fail: b = {smallest_failed:,.0f} ran out of memory"
        elif on_curve and row["basis"] == "predicted" and cell.worker_batch > row["largest_batch_low"]:
            is_sure = cell.worker_batch > row["largest_batch_high"]
            low, value, high = (row[f"largest_batch{end}"] for end in ("_low", "", "_high"))
            fits = f"up to {value:,.0f} [{low:,.0f}, {high:,.0f}] is predicted to fit"
            yield f"{description} {'is expected to fail' if is_sure else 'may fail'}: {row['memory']} memory, {fits}"
