"""Iterations as the DAG model predicts them, from layer times, the communication fit and the storage's records.

One model, fitted to all cells, predicts a curve at all node counts. In addition, every measured point is predicted
without its own cells, which gives the error. Intervals contain the uncertainty of the inputs; the errors show whether
the model itself holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from stallpoint import load
from stallpoint.base.measured import UNKNOWN_PARTS, Measured, Point
from stallpoint.base.statistics import REPLICATES, Ensemble
from stallpoint.loops import for_each
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.models.iteration.replicas import Replicas
from stallpoint.models.terms import effects
from stallpoint.models.terms.contention import Contention
from stallpoint.models.terms.effects import Factors, IsolatedTimes, Slowdown
from stallpoint.models.terms.training_cells import TrainingCells
from stallpoint.study.workers import Placement, counts, curves_of, placement_at

FACTORS_UNSEEN = "not measured: PowerSGD's factors need a cell of this network with the preset on the fewest nodes"


def calibrated(
    cluster: Cluster, points: Sequence[Measured], training_cells: TrainingCells, slowdown: Slowdown, seed: int
) -> Cluster:
    """Return `cluster` with the effects calibrated on its training cells."""
    calibration_points = [
        one
        for one in points
        if (one.point.ranks == 1 or cluster.preset(one.point).strategy.calibrates)
        and cluster.communicates(one.point)
        and not one.composed
    ]
    isolated = DagModel(cluster).isolated

    def reading(measured: Measured) -> Ensemble:
        return cluster.data.seconds(measured, measured.point.placement, measured.point.worker_batch)

    contention = Contention(calibration_points, training_cells, cluster.presets, isolated, reading, slowdown, seed)
    return replace(cluster, effects=contention.effects)


class DagModel:
    """DAG model of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Take a cluster, with isolated times and the effects of training on them."""
        self._cluster = cluster

    def curves(self, points: Sequence[Measured], nodes: Iterable[int], *, held_out: bool = True) -> list[CurvePoints]:
        """Return every scaling curve among `points` (`workers.curves_of`), predicted at its own and further counts.

        Further counts are `nodes` full nodes and counts inside a node (`workers.counts`), all above the smallest count
        of the curve. Strong scaling excludes counts that do not divide the global mini-batch. With `held_out` each
        measured point is also predicted without its own cells.
        """
        nodes = list(nodes)

        def curve(measured: Sequence[Measured]) -> CurvePoints:
            return self.curve(measured, counts(nodes, measured[0].point.workers_per_node), held_out=held_out)

        return for_each(curve, self.points_of_curves(points))

    def points_of_curves(self, points: Sequence[Measured]) -> list[list[Measured]]:
        """Return the `points` of each scaling curve, by rising workers; a point inside a node may belong to several."""
        series: dict[tuple[str | int, ...], dict[Placement, Measured]] = {}
        for measured in [*self._one_rank_points(points), *points]:
            if measured.point.scaling in SCALINGS:
                series.setdefault(measured.point.without_placement, {})[measured.point.placement] = measured
        return [
            [at[placement].on_curve(per_node) for placement in placements]
            for at in series.values()
            for per_node, placements in curves_of(at).items()
        ]

    def _one_rank_points(self, points: Sequence[Measured]) -> Iterator[Measured]:
        """Yield one-rank points again for presets without communication: on one rank all presets do the same."""
        presets = self._cluster.presets
        scaling = [one for one in points if one.point.scaling in SCALINGS]
        silent_series = {one.point.without_placement for one in scaling if not self._cluster.communicates(one.point)}
        syncs = sorted({one.point.sync for one in scaling if one.point.without_placement in silent_series})
        for one, sync in product((one for one in scaling if one.point.ranks == 1), syncs):
            relabelled_point = replace(one.point, sync=sync)
            is_same_prefetch = presets[sync].device_prefetch == presets[one.point.sync].device_prefetch
            if is_same_prefetch and relabelled_point.without_placement in silent_series:
                yield replace(one, point=relabelled_point)

    def curve(
        self, points: Sequence[Measured], ranks: Iterable[int], *, held_out: bool = True, only_ranks: int | None = None
    ) -> CurvePoints:
        """Return the curve of the sorted `points`, predicted at their counts and `ranks`, or only at `only_ranks`."""
        measured = {one.point.ranks: one for one in points}
        base = min(measured)
        wanted = sorted({*measured, *(n for n in ranks if n > base)})
        placements = {n: measured[n].point if n in measured else _point_at(measured[base].point, n) for n in wanted}
        predicted = {
            n: self._predict_without_cells(point, measured, frozenset(), held_out=False)
            for n, point in placements.items()
            if point is not None and only_ranks in (None, n)
        }
        measured_points = {n: here for n, here in measured.items() if held_out and not here.composed}
        held_out_points = {n: self._hold_out(here, measured) for n, here in measured_points.items()}
        return CurvePoints(measured, predicted, held_out_points)

    def _hold_out(self, here: Measured, curve: Mapping[int, Measured]) -> Predicted:
        """Predict a point from other cells; on one rank, from other repeats of the same cell."""
        point = here.point
        own = frozenset(here.cells) if point.ranks == 1 else frozenset()
        prediction = self._predict_without_cells(point, curve, own, held_out=True)
        if len(own) < 2 or not np.isnan(prediction.parts.iteration_time).any():
            return prediction
        first = frozenset({min(own)})
        prediction = self._predict_without_cells(point, curve, first, held_out=True)
        return replace(prediction, compute_source=f"{prediction.compute_source}, other repeats", excluded_cells=first)

    def _predict_without_cells(
        self, point: Point, curve: Mapping[int, Measured], cells: frozenset[str], *, held_out: bool
    ) -> Predicted:
        iteration, base = self._iteration(point), curve[min(curve)]
        calibrated_effects = self._cluster.effects(point, held_out) if point.ranks > 1 else effects.NONE
        unseen = point.ranks > 1 and iteration.preset.factored and calibrated_effects.factors is None
        times = iteration.times(cells)
        if times is None or unseen or not iteration.is_predictable:
            equation = iteration.strategy.equation(prefetch=iteration.prefetch)
            gap = FACTORS_UNSEEN if unseen else "not measured" if iteration.is_predictable else "preset not predicted"
            return Predicted(point, equation, gap, UNKNOWN_PARTS, waiting=iteration.waiting)
        own = {*cells, *(curve[point.ranks].cells if held_out else ())}
        reading = self._cluster.data.seconds(base, *iteration.readers, without=own if point.ranks > 1 else cells)
        return iteration.predicted(base, times, reading + np.zeros(1 + REPLICATES), calibrated_effects)

    def isolated(
        self, point: Point, buckets: Sequence[Sequence[int]], factors: Factors | None = None
    ) -> IsolatedTimes | None:
        """Return the isolated parts of `point`; None if computing was not measured."""
        return self._iteration(point).isolated(buckets, factors)

    def _iteration(self, point: Point) -> Replicas:
        """Return the iteration at `point`; on a single worker every preset computes all layers."""
        iteration_class: type[Replicas] = load(self._cluster.preset(point).strategy.iteration)
        return (iteration_class if point.ranks > 1 else Replicas)(self._cluster, point)


def _point_at(point: Point, ranks: int) -> Point | None:
    """Return the point of the same curve at another worker count; None if its mini-batch is no integer."""
    nodes, _ = placement_at(ranks, point.workers_per_node)
    if point.scaling == "weak":
        return replace(point, nodes=nodes, ranks=ranks, global_batch=point.worker_batch * ranks)
    if point.global_batch % ranks:
        return None
    return replace(point, nodes=nodes, ranks=ranks, worker_batch=point.global_batch // ranks)
