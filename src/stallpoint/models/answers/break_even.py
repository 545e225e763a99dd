"""After how many epochs copying a shared training set to the nodes' own disks has paid.

Keuper & Pfreundt (2016, section IV) advise to stage. It costs its time once, and saves in each epoch what workers wait
less for data: break-even = staging / (wait for the shared storage - wait for the copy), both in an epoch of the set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from stallpoint.cells import TrainCell
from stallpoint.models.base.measured import Measured, trained
from stallpoint.models.base.statistics import REPLICATES, Ensemble, bootstrap, columns, estimate, generator, groups

PAYS, NEVER, UNDECIDED = "pays", "never pays", "undecided"


def table(points: Sequence[Measured], runs: pd.DataFrame, staging: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Rows of the break_even table: points on a staged storage beside those on the same set where it is shared.

    The two agree in everything but the storage. `staging` holds what copying took on each node.
    """
    cells = trained(runs)
    taken = {place: _Staged(place, rows, seed) for place, rows in groups(staging, ["hardware", "storage"])}
    return [
        row
        for measured, other in permutations(points, 2)
        if _is_staged(measured, other, cells) and (measured.point.hardware, measured.point.storage) in taken
        for row in _rows(measured, other, taken[measured.point.hardware, measured.point.storage])
    ]


class _Staged:
    """What staging a set on some hardware took."""

    def __init__(self, place: tuple[str, str], rows: pd.DataFrame, seed: int) -> None:
        self.job_nodes = int(rows["job_nodes"].max())
        rows = rows[rows["job_nodes"] == self.job_nodes]
        self.samples = int(rows["samples"].iloc[-1])
        times = rows.groupby(["cell", "visit"])
        # A job has staged when its slowest node has.
        self.seconds = bootstrap(rows["seconds"], times.ngroup(), generator(seed, "staging", *place), np.max)


def _is_staged(measured: Measured, other: Measured, cells: dict[str, TrainCell]) -> bool:
    """Whether the second is the first, but for reading the set where the first has it from."""
    if _without_storage(measured) != _without_storage(other):
        return False
    staged, shared = (cells[one.cells[0]] for one in (measured, other))
    same = (staged.storage_path, staged.storage_format) == (shared.storage_path, shared.storage_format)
    return bool(staged.stage_to) and not shared.stage_to and same


def _without_storage(measured: Measured) -> dict[str, object]:
    return {name: value for name, value in vars(measured.point).items() if name != "storage"}


def _rows(measured: Measured, other: Measured, staged: _Staged) -> Iterator[dict[str, object]]:
    iterations = staged.samples / measured.point.global_batch
    local, shared = (iterations * one.parts.data_wait for one in (measured, other))
    gain = shared - local
    verdict = verdict_of(gain)
    epochs = staged.seconds / gain if verdict == PAYS else np.full(1 + REPLICATES, np.nan)
    yield {
        **measured.point.labels(),
        "shared": other.point.storage,
        "job_nodes": staged.job_nodes,
        **columns("staging", staged.seconds),
        **columns("shared_wait", shared),
        **columns("staged_wait", local),
        "verdict": verdict,
        **columns("epochs", np.where(epochs > 0, epochs, np.inf) if verdict == PAYS else epochs),
    }


def verdict_of(gain: Ensemble) -> str:
    """Whether an epoch surely waits less (`gain`, s), surely does not, or neither."""
    _, low, high = estimate(gain)
    return PAYS if low > 0 else NEVER if high < 0 else UNDECIDED
