"""Wall times to request from Slurm for jobs that prepare training data, and for jobs that make tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from stallpoint.schedule.planning import plan
from stallpoint.study.work import EPOCH_SAMPLES, ERROR_FACTOR, SAMPLE_ENCODED

LISTED, GENERATED = 0.001, 0.016
"""Time to find a sample and its size on a shared file system, and to generate a JPEG of ImageNet's shapes, s."""
START, CELL, ROW = 30.0, 0.2, 1e-6
"""Time of a process that makes tables: to start, for each cell, and for each row of layers, s. 672 cells took 69 s, 205
million rows 143 s (``benchmarks/run.py scale many-cells``)."""


def storage_minutes(name: str, storages: Mapping[str, Mapping[str, Any]], results: Path) -> int:
    """Return the time limit, in minutes, to prepare the storage entry `name`; an unknown size counts as ImageNet's."""
    entry = storages[name]
    samples = plan.samples_of(storages, results).get(name, EPOCH_SAMPLES)
    sample_seconds = LISTED + (GENERATED if "generate" in entry else 0.0)
    if "convert_from" in entry:
        sample_seconds += SAMPLE_ENCODED + GENERATED
    if entry["max_corrupt"]:  # the check for corrupt samples decodes each one
        sample_seconds += SAMPLE_ENCODED
    return _limit_minutes(START + sample_seconds * samples)


def tables_minutes(cells: int, layer_files: Iterable[Path] = ()) -> int:
    """Return the time limit, in minutes, to make the tables of `cells` cells, with rows for layers in `layer_files`."""
    rows = 0
    for path in layer_files:
        with path.open("rb") as file:
            rows += pq.read_metadata(file).num_rows
    return _limit_minutes(START + CELL * cells + ROW * rows)


def _limit_minutes(seconds: float) -> int:
    return max(plan.MIN_MINUTES, math.ceil(plan.MARGIN * ERROR_FACTOR * seconds / 60))
