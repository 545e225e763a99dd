"""One training cell's raw records, read for export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stallpoint.errors import InputError
from stallpoint.records.parquet import read
from stallpoint.records.tables import ENVIRONMENTS, ITERATIONS, LAYERS, RUNS
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.train_kind import TrainCell


@dataclass(frozen=True)
class TrainRecords:
    """Records of a training cell."""

    cell: TrainCell
    iterations: pd.DataFrame
    layers: pd.DataFrame
    nodes: dict[int, str]
    """Name of each rank's node; empty where unknown."""


def train_records(folder: Path) -> TrainRecords:
    """Return the records in a cell's folder; raise `InputError` where it could not run, or did not train."""
    (run,) = read(RUNS, folder / f"{RUNS.name}.parquet").to_pylist()
    if run["status"] == "failed":
        raise InputError(f"{folder}: nothing to export, the cell could not run: {run['reason']}")
    cell = cell_from_json(run["settings"])
    if not isinstance(cell, TrainCell):
        raise InputError(f"{folder}: nothing to export, {cell.kind} cells have no iterations")
    iterations, layers = (read(table, folder / f"{table.name}.parquet").to_pandas() for table in (ITERATIONS, LAYERS))
    return TrainRecords(cell, _one_after_the_other(iterations), layers, _nodes(folder / f"{ENVIRONMENTS.name}.parquet"))


def _one_after_the_other(iterations: pd.DataFrame) -> pd.DataFrame:
    """Return iterations with starts continued from visit to visit, as if visits were contiguous."""
    ends = (iterations["start"] + iterations["iteration_time"]).groupby(iterations["visit"]).max()
    begins = (ends.cumsum() - ends).to_dict()
    return iterations.assign(start=iterations["start"] + iterations["visit"].map(begins))


def _nodes(file: Path) -> dict[int, str]:
    rows: list[dict[str, Any]] = read(ENVIRONMENTS, file).to_pylist() if file.exists() else []
    return {row["rank"]: row["node"] for row in rows}


def all_reduces(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the all-reduces among rows of `LAYERS`: rank, iteration, start, end, bytes, and the layers each one
    carried."""
    reduced = layers[layers["bucket"] >= 0]
    by_message = reduced.groupby(["rank", "iteration", "bucket", "all_reduce_start", "all_reduce_end"], as_index=False)
    return by_message.agg(
        gradient_bytes=("gradient_bytes", "sum"), bucket_bytes=("bucket_bytes", "sum"), layers=("layer", " ".join)
    )
