"""A rank's recording of an entire run, read file by file: phases of each iteration, usual times of layers, states.

The rows of layers in a run of hours would exceed memory. So of each file only medians of these rows are kept.
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
_ITERATION_COLUMNS = ("iteration", "warmup", "start", *PHASES)
_LAYER_COLUMNS = (
    "iteration", "layer_index", "layer", "forward", "backward", "gradient_ready", "all_reduce_start", "bucket",
    "gradient_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class RankRun:
    """A rank's iterations after the warm-up."""

    probe: Mapping[str, Any]
    """The rank's row of `PROBES`."""
    steps: npt.NDArray[np.int64]
    """Numbers of the iterations."""
    start: Reals
    """Start of each iteration, s since the first of the script."""
    phases: Reals
    """Seconds in each of `PHASES` [iterations, phases]."""
    entering: Reals
    """Time from complete gradients until the rank entered their collectives, s, summed over an iteration; interpolated
    for iterations whose layers were not timed."""
    layers: Mapping[str, tuple[float, float]]
    """Median forward and backward time of each layer, s."""
    gradients: int
    """Bytes of all gradients."""
    states: Sequence[Mapping[str, Any]]
    """Rows of `STATES`, by time."""
    began: datetime | None
    """Time when the script opened the probe; None for records that are not in a folder."""

    def within(self, first: int, last: int) -> RankRun:
        """Return the part of the run from iteration number `first` to the one before `last`."""
        mask = (self.steps >= first) & (self.steps < last)
        columns = {name: getattr(self, name)[mask] for name in ("steps", "start", "phases", "entering")}
        return replace(self, **columns)


def run_in(folder: Path) -> RankRun:
    """Return the run in the folder of a recording; `InputError` for damaged files."""
    return _run(
        probe_files.probe_row(folder),
        probe_files.stream(ITERATIONS, folder, _ITERATION_COLUMNS),
        probe_files.stream(LAYERS, folder, _LAYER_COLUMNS),
        [row for part in probe_files.stream(STATES, folder) for row in part.to_pylist()],
        _began(folder),
    )


def run_of(records: RankRecords) -> RankRun:
    """Return the run of a rank from its `records`, which do not say when it began, and hold no states."""
    iterations, layers = (records.tables[table.name] for table in (ITERATIONS, LAYERS))
    return _run(records.probe, [iterations.select(_ITERATION_COLUMNS)], [layers.select(_LAYER_COLUMNS)], [], None)


def last_run(folder: Path, rank: int) -> RankRun | None:
    """Return a rank's latest run below `folder`; None without any run."""
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
    rows = pa.concat_tables([part.select(_ITERATION_COLUMNS) for part in parts])
    rows = rows.filter(np.logical_not(rows["warmup"].to_numpy()))
    if len(rows) and rows["iteration"][0].as_py() == 0:  # a study's records do not mark the warm-up yet
        rows = rows.slice(1)
    steps = rows["iteration"].to_numpy()
    phases = np.stack([rows[phase].to_numpy() for phase in PHASES], axis=1) if len(rows) else np.empty((0, 6))
    entering: dict[int, float] = {}
    medians, gradients = [], 0
    names: list[str] = []
    for part in layers:
        if not len(part):
            continue
        entering |= _entering(part)
        part_medians = _usual_times(part)
        if part_medians is not None:
            medians.append(part_medians)
        step = part["iteration"].to_numpy()
        last = part.filter(step == step[-1])
        gradients, names = int(last["gradient_bytes"].to_numpy().sum()), last["layer"].to_pylist()
    layer_medians = np.median(medians, axis=0) if medians else np.empty((0, 2))
    times = {
        name: (float(forward), float(backward)) for name, (forward, backward) in zip(names, layer_medians, strict=False)
    }
    start = rows["start"].to_numpy().astype(float)
    delays = np.interp(steps, [*entering], [*entering.values()]) if entering else np.zeros(len(steps))
    return RankRun(probe, steps, start, phases, delays, times, gradients, states, began)


ITERATIONS_EMPTY = probe_files.script_table(ITERATIONS).schema.empty_table()


def _entering(table: pa.Table) -> dict[int, float]:
    """Return for each iteration the time that the rank took to enter collectives whose gradients were complete, s.
    `table` has rows of `LAYERS`."""
    rows = table.filter(table["bucket"].to_numpy() >= 0)
    if not len(rows):
        return {}
    step, message = (rows[name].to_numpy() for name in ("iteration", "bucket"))
    ready, start = (rows[name].to_numpy(zero_copy_only=False) for name in ("gradient_ready", "all_reduce_start"))
    keys, index = np.unique(np.stack([step, message]), axis=1, return_inverse=True)
    completions, entries = np.full(keys.shape[1], -np.inf), np.full(keys.shape[1], -np.inf)
    np.maximum.at(completions, index.ravel(), np.nan_to_num(ready, nan=-np.inf))
    np.maximum.at(entries, index.ravel(), start)
    delays = np.where(np.isfinite(completions), np.maximum(0.0, entries - completions), 0.0)
    iterations, index = np.unique(keys[0], return_inverse=True)
    return dict(zip(iterations.tolist(), np.bincount(index.ravel(), delays).tolist(), strict=True))


def _usual_times(table: pa.Table) -> Reals | None:
    """Return median forward and backward times [layers, 2] from rows of `LAYERS`, without the first iteration."""
    table = table.filter(table["iteration"].to_numpy() > 0)
    if not len(table):
        return None
    order = np.argsort(table["layer_index"].to_numpy(), kind="stable")
    layers = len(np.unique(table["layer_index"].to_numpy()))
    medians = [np.median(table[name].to_numpy()[order].reshape(layers, -1), axis=1) for name in ("forward", "backward")]
    return np.stack(medians, axis=1)


def _began(folder: Path) -> datetime | None:
    try:
        return datetime.strptime(folder.name, probe_files.START).replace(tzinfo=UTC)
    except ValueError:
        return None
