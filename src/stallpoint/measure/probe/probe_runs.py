"""A rank's recording of an entire run, read file by file: phases of each iteration, usual times of layers, states.

Only the medians of each file of layers are kept, as tables of layers exceed memory in a run of hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallpoint.measure.probe import probe_files
from stallpoint.measure.probe.probe_files import STATES, RankRecords
from stallpoint.records.tables import ITERATIONS, LAYERS, PHASES

Reals: TypeAlias = npt.NDArray[np.float64]
_OF_ITERATIONS = ("iteration", "warmup", "start", *PHASES)
_OF_LAYERS = (
    "iteration", "layer_index", "layer", "forward", "backward", "gradient_ready", "all_reduce_start", "bucket",
    "gradient_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class RankRun:
    """A rank's iterations after the warm-up."""

    probe: Mapping[str, Any]
    """Its row of `PROBES`."""
    steps: npt.NDArray[np.int64]
    """Numbers of the iterations."""
    start: Reals
    """Start of each iteration, s since the first of the script."""
    phases: Reals
    """Seconds in each of `PHASES` [iterations, phases]."""
    entering: Reals
    """Time from complete gradients until the rank had entered their collectives, s; between iterations whose layers
    were timed it is interpolated."""
    layers: Mapping[str, tuple[float, float]]
    """Usual forward and backward time of each layer, s."""
    gradients: int
    """Bytes of all gradients."""
    states: Sequence[Mapping[str, Any]]
    """Rows of `STATES`, by time."""
    began: datetime | None
    """Time when the script opened the probe; None if no folder names it."""

    def within(self, first: int, last: int) -> RankRun:
        """Return the iterations from `first` to before `last`."""
        of = (self.steps >= first) & (self.steps < last)
        return replace(
            self, steps=self.steps[of], start=self.start[of], phases=self.phases[of], entering=self.entering[of]
        )


def run_in(folder: Path) -> RankRun:
    """Return the run in the folder of a recording; `InputError` for damaged files."""
    return _run(
        probe_files.probe_row(folder),
        probe_files.stream(ITERATIONS, folder, _OF_ITERATIONS),
        probe_files.stream(LAYERS, folder, _OF_LAYERS),
        [row for part in probe_files.stream(STATES, folder) for row in part.to_pylist()],
        _began(folder),
    )


def run_of(records: RankRecords) -> RankRun:
    """Return the run of `records` in memory."""
    iterations, layers = (records.tables[table.name] for table in (ITERATIONS, LAYERS))
    return _run(records.probe, [iterations.select(_OF_ITERATIONS)], [layers.select(_OF_LAYERS)], [], None)


def last_run(folder: Path, rank: int) -> RankRun | None:
    """Return a rank's latest run below `folder`; None without one."""
    found = probe_files.recordings(folder, rank)
    return run_in(found[-1]) if found else None


def _run(
    probe: Mapping[str, Any],
    iterations: Iterable[pa.Table],
    layers: Iterable[pa.Table],
    states: Sequence[Mapping[str, Any]],
    began: datetime | None,
) -> RankRun:
    parts = [ITERATIONS_EMPTY, *iterations]
    whole = pa.concat_tables([part.select(_OF_ITERATIONS) for part in parts])
    whole = whole.filter(np.logical_not(whole["warmup"].to_numpy()))
    if len(whole) and whole["iteration"][0].as_py() == 0:  # no iteration is marked as warm-up within a study
        whole = whole.slice(1)
    steps = whole["iteration"].to_numpy()
    phases = np.stack([whole[phase].to_numpy() for phase in PHASES], axis=1) if len(whole) else np.empty((0, 6))
    entering: dict[int, float] = {}
    medians, gradients = [], 0
    names: list[str] = []
    for part in layers:
        if not len(part):
            continue
        entering |= _entering(part)
        usual = _usual_times(part)
        if usual is not None:
            medians.append(usual)
        step = part["iteration"].to_numpy()
        last = part.filter(step == step[-1])
        gradients, names = int(last["gradient_bytes"].to_numpy().sum()), last["layer"].to_pylist()
    usual_of = np.median(medians, axis=0) if medians else np.empty((0, 2))
    times = {
        name: (float(forward), float(backward)) for name, (forward, backward) in zip(names, usual_of, strict=False)
    }
    start = whole["start"].to_numpy().astype(float)
    late = np.interp(steps, [*entering], [*entering.values()]) if entering else np.zeros(len(steps))
    return RankRun(probe, steps, start, phases, late, times, gradients, states, began)


ITERATIONS_EMPTY = probe_files.script_table(ITERATIONS).schema.empty_table()


def _entering(table: pa.Table) -> dict[int, float]:
    """Return each iteration's time from complete gradients until the rank had entered their collectives, s."""
    carried = table.filter(table["bucket"].to_numpy() >= 0)
    if not len(carried):
        return {}
    step, message = (carried[name].to_numpy() for name in ("iteration", "bucket"))
    ready, start = (carried[name].to_numpy(zero_copy_only=False) for name in ("gradient_ready", "all_reduce_start"))
    keys, which = np.unique(np.stack([step, message]), axis=1, return_inverse=True)
    last, begun = np.full(keys.shape[1], -np.inf), np.full(keys.shape[1], -np.inf)
    np.maximum.at(last, which.ravel(), np.nan_to_num(ready, nan=-np.inf))
    np.maximum.at(begun, which.ravel(), start)
    waited = np.where(np.isfinite(last), np.maximum(0.0, begun - last), 0.0)
    iterations, which = np.unique(keys[0], return_inverse=True)
    return dict(zip(iterations.tolist(), np.bincount(which.ravel(), waited).tolist(), strict=True))


def _usual_times(table: pa.Table) -> Reals | None:
    """Medians of forward and backward time [layers, 2] after the first iteration; every iteration has all layers."""
    table = table.filter(table["iteration"].to_numpy() > 0)
    if not len(table):
        return None
    order = np.argsort(table["layer_index"].to_numpy(), kind="stable")
    layers = len(np.unique(table["layer_index"].to_numpy()))
    both = [np.median(table[name].to_numpy()[order].reshape(layers, -1), axis=1) for name in ("forward", "backward")]
    return np.stack(both, axis=1)


def _began(folder: Path) -> datetime | None:
    try:
        return datetime.strptime(folder.name, probe_files.START).replace(tzinfo=UTC)
    except ValueError:
        return None
