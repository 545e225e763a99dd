"""Measured points of scaling curves, with ensembles of the parts of an iteration, reduced over ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.lagging import is_waited_for
from stallpoint.base.statistics import (
    Ensemble,
    bootstrap,
    generator,
    groups,
    scatter_of_parts,
    unknown_ensemble,
    visits_of,
)
from stallpoint.loops import MIN_SHORT_ITEMS, for_each
from stallpoint.records import tables as records
from stallpoint.strategies.presets import Preset, preset_from
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.kinds.imported_kinds import ImportedTrainCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.workers import Placement

SERIES = tuple(column.name for column in records.SERIES)
PLACELESS_AXES = tuple(name for name in SERIES if name != records.WORKERS_PER_NODE.name)
"""Axes of a series, except the workers per node."""
POINT = (*SERIES, "nodes", "ranks", "global_batch", "worker_batch")
TIMES = records.TIMES
READING_PARTS = ("read", "decode")
STEP_COLUMNS = (*POINT, "cell", "repeat", "visit", "iteration")
FULLY_CONNECTED = "fully-connected"
MATRIX_LAYERS = ("convolution", FULLY_CONNECTED, "attention")
"""Layer types dominated by matrix products whose shape or number depends on b (Keuper & Pfreundt, section III; see
`networks.products`)."""
_DEVIATES_WITH = {
    "communication": ("exposed_communication",),
    "matrix": ("forward", "backward"),
    "fully_connected": ("forward", "backward"),
}
"""Times outside the critical path, and the parts with which each deviates from visit to visit."""

STRAGGLING = "straggling"
PATH_PARTS = (
    "data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update", STRAGGLING,
)  # fmt: skip
"""Parts of the critical path, in the order of an iteration."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Times of the parts of an iteration, s: means over workers that do not lag. Ensembles [1 + REPLICATES], or NaN.

    The parts in `PATH_PARTS` add up to `iteration_time`. Any other time is within one of them, or overlapped.
    """

    iteration_time: Ensemble
    data_wait: Ensemble = field(default_factory=unknown_ensemble)
    """Exposed wait for a mini-batch."""
    host_to_device: Ensemble = field(default_factory=unknown_ensemble)
    forward: Ensemble = field(default_factory=unknown_ensemble)
    backward: Ensemble = field(default_factory=unknown_ensemble)
    communication: Ensemble = field(default_factory=unknown_ensemble)
    """All communication, hidden or exposed."""
    exposed_communication: Ensemble = field(default_factory=unknown_ensemble)
    """Communication after the backward pass."""
    update: Ensemble = field(default_factory=unknown_ensemble)
    straggling: Ensemble = field(default_factory=unknown_ensemble)
    """Time of the slowest worker beyond the mean of those that do not lag."""
    matrix: Ensemble = field(default_factory=unknown_ensemble)
    """Forward and backward of the layers in `MATRIX_LAYERS`."""
    fully_connected: Ensemble = field(default_factory=unknown_ensemble)
    """Forward and backward of the fully-connected layers among `MATRIX_LAYERS`."""

    @classmethod
    def measured(cls, **known: Ensemble) -> Parts:
        """Return the `known` parts of an iteration, and straggling: iteration time minus the known `PATH_PARTS`."""
        straggling = known["iteration_time"] - sum(known[name] for name in PATH_PARTS if name in known)
        return cls(**known, straggling=straggling)

    @property
    def compute(self) -> Ensemble:
        """Time of the forward pass, the backward pass and the update, s."""
        return self.forward + self.backward + self.update


UNKNOWN_PARTS = Parts(iteration_time=unknown_ensemble())
"""Parts of a point without data."""


@dataclass(frozen=True)
class Point:
    """One point of a scaling curve: the labels of the curve (`SERIES`), nodes, ranks and mini-batches."""

    network: str
    hardware: str
    storage: str
    scaling: str
    sync: str
    prefetch: int
    batch: int
    workers_per_node: int
    """Workers on a full node of the point's curve; for a standalone point, on each of its own nodes."""
    nodes: int
    ranks: int
    global_batch: int
    worker_batch: int

    @property
    def series(self) -> tuple[str | int, ...]:
        """Labels of the scaling curve of this point, in the order of `SERIES`."""
        return tuple(getattr(self, name) for name in SERIES)

    @property
    def without_placement(self) -> tuple[str | int, ...]:
        """Labels of the point's series, except the workers per node (`PLACELESS_AXES`)."""
        return tuple(getattr(self, name) for name in PLACELESS_AXES)

    @property
    def placement(self) -> Placement:
        """Number of nodes, and number of workers on each node."""
        return self.nodes, self.ranks // self.nodes

    @property
    def standalone(self) -> Point:
        """The same point, on the curve in which a full node has as many workers as each of this point's nodes."""
        return self.on_curve(self.placement[1])

    def on_curve(self, per_node: int) -> Point:
        """Return the same point on the curve with `per_node` workers on a full node."""
        return self if self.workers_per_node == per_node else replace(self, workers_per_node=per_node)

    def labels(self, *further: str) -> dict[str, str | int]:
        """Return the point's values for a model table: columns of `SERIES`, nodes, ranks and the columns `further`."""
        return {name: getattr(self, name) for name in (*SERIES, "nodes", "ranks", *further)}


def point_key(point: Point | TrainCell) -> tuple[object, ...]:
    """Return the key of a point: its values of `PLACELESS_AXES`, nodes and ranks, which are equal on all its curves."""
    return tuple(getattr(point, name) for name in (*PLACELESS_AXES, "nodes", "ranks"))


@dataclass(frozen=True)
class Measured:
    """A measured point of a scaling curve: its cells, and the parts of its iterations."""

    point: Point
    cells: tuple[str, ...]
    parts: Parts
    of_cells: tuple[float, ...] = ()
    """Median iteration time of each of `cells`, s."""
    composed: bool = False
    """Whether the iteration time is a sum of parts, because one of `cells` recorded only parts."""
    visits: int = 0
    """Number of visits; 0 if unknown."""
    placements: int = 0
    """Number of placements that its cells ran in; 0 on a single machine, or if unknown."""

    def on_curve(self, per_node: int) -> Measured:
        """Return the measured point on the curve with `per_node` workers on a full node."""
        return replace(self, point=self.point.on_curve(per_node))


def kept(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without warm-up. If no row is warm-up, this is the frame itself, which saves a copy."""
    warmup = frame["warmup"].astype(bool)
    return frame[~warmup] if warmup.any() else frame


def step_rows(iterations: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each kept iteration of each cell, sorted by `STEP_COLUMNS`, with times reduced over ranks.

    The times are `TIMES`, `READING_PARTS` and the layer times of `Parts`. Communication is that of the last rank to
    arrive, which waits least. All other times are means over ranks that do not lag (`lagging`), even iteration times.
    Over many iterations all ranks take equally long. The largest time of each iteration would count delays twice: as a
    late end of an iteration and a late start of the next. What parts leave of an iteration is due to unequal ranks.
    """
    return reduce_steps(iterations, matrix_layer_seconds(layers))


def with_mean_communication(iterations: pd.DataFrame, presets_with_mean: Collection[str]) -> pd.DataFrame:
    """Return the iterations; for `presets_with_mean`, communication is replaced by its mean over the ranks of a step.

    These presets have servers, which answer each worker separately: no rank arrives last, and ranks on a server's node
    send less.
    """
    rows = iterations["sync"].isin(presets_with_mean)
    if not rows.any():
        return iterations
    names = ["communication", "exposed_communication"]
    means = iterations[rows].groupby(["cell", "iteration"], observed=True)[names].transform("mean")
    return iterations.assign(**{name: means[name].combine_first(iterations[name]) for name in names})


def matrix_layer_seconds(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds in `MATRIX_LAYERS`, and in fully-connected layers alone, of each rank's kept iterations."""
    rows = kept(layers)
    seconds = rows["forward"] + rows["backward"]
    types = {"matrix": MATRIX_LAYERS, "fully_connected": (FULLY_CONNECTED,)}
    seconds_of_types = {name: seconds.where(rows["layer_type"].isin(among)) for name, among in types.items()}
    key = ["cell", "iteration", "rank"]
    return rows[key].assign(**seconds_of_types).groupby(key, as_index=False).sum().astype({"cell": "str"})


def reduce_steps(iterations: pd.DataFrame, seconds: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `step_rows`; `seconds` is the result of `matrix_layer_seconds`."""
    frame = kept(iterations)
    typical_ranks = frame[~is_waited_for(frame)]
    reductions = {"communication": "min", "exposed_communication": "min"}
    means = dict.fromkeys((name for name in (*TIMES, *READING_PARTS) if name not in reductions), "mean")
    steps = typical_ranks.groupby(list(STEP_COLUMNS), as_index=False).agg(means)
    steps = steps.merge(frame.groupby(["cell", "iteration"], as_index=False).agg(reductions), on=["cell", "iteration"])
    steps = steps[[*STEP_COLUMNS, *TIMES, *READING_PARTS]]
    if len(typical_ranks) < len(frame):
        seconds = seconds.merge(typical_ranks[["cell", "rank"]].drop_duplicates(), on=["cell", "rank"])
    ranks = typical_ranks.groupby(["cell", "iteration"]).size()
    sums = seconds.groupby(["cell", "iteration"])[["matrix", "fully_connected"]].sum()
    layer_means = sums.div(ranks, axis=0).fillna(0.0).rename_axis(["cell", "iteration"])
    return steps.merge(layer_means.reset_index(), on=["cell", "iteration"], how="left")


def trained(runs: pd.DataFrame) -> dict[str, TrainCell]:
    """Return the training cells among `runs` by path; commands and imported cells are training cells, too."""
    rows = runs[runs["kind"].isin([TrainCell.kind, CommandCell.kind, ImportedTrainCell.kind])]
    paths_and_cells = zip(rows["cell"], map(cell_from_json, rows["settings"]), strict=True)
    return {path: cell for path, cell in paths_and_cells if isinstance(cell, TrainCell)}


def composed(runs: pd.DataFrame) -> frozenset[str]:
    """Return the paths of training cells among `runs` whose iterations are composed of layer times."""
    cells = trained(runs[runs["kind"] == ImportedTrainCell.kind]).items()
    return frozenset(path for path, cell in cells if isinstance(cell, ImportedTrainCell) and cell.composed)


def presets(runs: pd.DataFrame) -> dict[str, Preset]:
    """Return the presets of trained cells, by their name in the column ``sync``.

    Compute cells are left out: they use no preset, although their column ``sync`` has a preset's name, ``none``.
    """
    cells_to_target = map(cell_from_json, runs.loc[runs["kind"] == ConvergenceCell.kind, "settings"])
    timed_cells = (cell for cell in trained(runs).values() if cell.scaling != "compute")
    cells: Iterable[TrainCell | ConvergenceCell] = (
        *(cell for cell in cells_to_target if isinstance(cell, ConvergenceCell)),
        *timed_cells,
    )
    return {cell.sync: preset_from(cell.preset) for cell in cells}


def measured(steps: pd.DataFrame, seed: int, label: str = "measured", composed: Collection[str] = ()) -> list[Measured]:
    """Return the measured points, from the rows of `step_rows`; `composed` has paths of cells with composed times.

    Replicates depend on the text `label`: points from calls with different texts have independent uncertainties.
    """
    additive_parts = [name for name in PATH_PARTS if name != STRAGGLING]
    steps = steps.assign(straggling=steps["iteration_time"] - steps[additive_parts].sum(axis=1, skipna=False))
    usual_scatter = {
        hardware: scatter_of_parts(rows, POINT, "iteration_time", PATH_PARTS, list(_DEVIATES_WITH.values()))
        for hardware, rows in groups(steps, "hardware")
    }
    names, medians = [*PATH_PARTS, "iteration_time", *_DEVIATES_WITH], steps.groupby("cell")["iteration_time"].median()

    def at(key_and_rows: tuple[Any, pd.DataFrame]) -> Measured:
        key, rows = key_and_rows
        point = Point(*key)
        visits = visits_of(rows)
        times = bootstrap(rows[names], visits, generator(seed, label, *key), np.mean, usual_scatter[point.hardware])
        medians_of_cells = medians[sorted(rows["cell"].unique())]
        ensemble_of_part = {name: times[:, index] for index, name in enumerate(names) if name != STRAGGLING}
        has_composed_cell = not frozenset(composed).isdisjoint(medians_of_cells.index)
        parts, count = Parts.measured(**ensemble_of_part), visits.nunique()
        return Measured(point, tuple(medians_of_cells.index), parts, tuple(medians_of_cells), has_composed_cell, count)

    rows_of_points = groups(steps[[*POINT, "cell", "repeat", "visit", *names]], POINT)
    return for_each(at, rows_of_points, MIN_SHORT_ITEMS)
