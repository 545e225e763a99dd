"""After how many epochs copying a training set to the nodes' own disks, or converting it, has paid.

Keuper & Pfreundt (2016, section IV) advise both. Each costs its time once, and saves in each epoch what workers wait
less for data: break-even = seconds / (wait before - wait after), both in an epoch of the set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd

from stallpoint.models.base.measured import Measured, trained
from stallpoint.models.base.statistics import (
    REPLICATES,
    Ensemble,
    bootstrap,
    columns,
    estimate,
    generator,
    groups,
    unknown_ensemble,
)
from stallpoint.study.kinds.train_kind import TrainCell

PAYS, NEVER, UNDECIDED = "pays", "never pays", "undecided"
STAGING, PACKING = "staging", "packing"


@dataclass(frozen=True)
class _Remedy:
    """What was done to the set of a storage, once."""

    name: str
    samples: int
    seconds: Ensemble
    source: str = ""
    """Path of what was packed."""

    def is_between(self, before: TrainCell, after: TrainCell) -> bool:
        """Whether `after` reads what this made of that which `before` reads."""
        if before.stage_to:
            return False
        if self.name == STAGING:
            here, there = ((one.storage_path, one.storage_format) for one in (before, after))
            return bool(after.stage_to) and here == there
        return not after.stage_to and os.path.normpath(before.storage_path) == os.path.normpath(self.source)


def table(
    points: Sequence[Measured], runs: pd.DataFrame, staging: pd.DataFrame, conversions: pd.DataFrame, seed: int
) -> list[dict[str, object]]:
    """Rows of the break_even table: points with staging or packing beside those without.

    The two agree in everything but the storage. `staging` holds what copying took on each node, `conversions` what
    converting took.
    """
    cells = trained(runs)
    done: dict[tuple[str, str], list[_Remedy]] = {}
    for place, rows in groups(staging, ["hardware", "storage"]):
        done.setdefault(place, []).append(_staged(place, rows, seed))
    for place, rows in groups(conversions, ["hardware", "storage"]):
        done.setdefault(place, []).append(_packed(rows))
    return [
        _row(remedy, after, before)
        for after, before in permutations(points, 2)
        if _without_storage(after) == _without_storage(before)
        for remedy in done.get((after.point.hardware, after.point.storage), [])
        if remedy.is_between(cells[before.cells[0]], cells[after.cells[0]])
    ]


def _staged(place: tuple[str, str], rows: pd.DataFrame, seed: int) -> _Remedy:
    rows = rows[rows["job_nodes"] == rows["job_nodes"].max()]
    times = rows.groupby(["cell", "visit"])
    # A job has staged when its slowest node has.
    seconds = bootstrap(rows["seconds"], times.ngroup(), generator(seed, "staging", *place), np.max)
    return _Remedy(STAGING, int(rows["samples"].iloc[-1]), seconds)


def _packed(rows: pd.DataFrame) -> _Remedy:
    last = rows.iloc[-1]
    return _Remedy(PACKING, int(last["samples"]), np.full(1 + REPLICATES, float(last["seconds"])), str(last["source"]))


def _without_storage(measured: Measured) -> dict[str, object]:
    return {name: value for name, value in vars(measured.point).items() if name != "storage"}


def _row(remedy: _Remedy, measured: Measured, other: Measured) -> dict[str, object]:
    iterations = remedy.samples / measured.point.global_batch
    after, before = (iterations * one.parts.data_wait for one in (measured, other))
    gain = before - after
    verdict = verdict_of(gain)
    epochs = remedy.seconds / gain if verdict == PAYS else unknown_ensemble()
    return {
        **measured.point.labels(),
        "remedy": remedy.name,
        "before": other.point.storage,
        **columns("seconds", remedy.seconds),
        **columns("wait_before", before),
        **columns("wait_after", after),
        "verdict": verdict,
        **columns("epochs", np.where(epochs > 0, epochs, np.inf) if verdict == PAYS else epochs),
    }


def verdict_of(gain: Ensemble) -> str:
    """Whether an epoch surely waits less (`gain`, s), surely does not, or neither."""
    _, low, high = estimate(gain)
    return PAYS if low > 0 else NEVER if high < 0 else UNDECIDED
