"""Iterations as the DAG model predicts them, from layer times, the communication fit and the storage's records.

A curve is predicted by one model at all node counts, from all cells. Beside it every measured point is predicted
without its own cells: errors are those of such predictions. Intervals say what the uncertainty of these inputs does;
whether the model itself holds is what the comparison with measured cells shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from stallpoint.models.base.measured import Measured, Point
from stallpoint.models.base.parts import UNKNOWN_PARTS
from stallpoint.models.base.statistics import REPLICATES, Ensemble
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.curve import Predicted, ScalingCurve
from stallpoint.models.iteration.replicas import Replicas
from stallpoint.models.terms import effects
from stallpoint.models.terms.contention import Contention
from stallpoint.models.terms.effects import IsolatedTimes
from stallpoint.models.terms.pace import Pace
from stallpoint.models.terms.trainings import Trainings
from stallpoint.strategies.strategy import load
from stallpoint.study.workers import Placement, counts, curves_of, placement_at


def learning(cluster: Cluster, points: Sequence[Measured], trainings: Trainings, pace: Pace, seed: int) -> Cluster:
    """`cluster` with the effects that its training cells show."""
    sending = [
        one
        for one in points
        if (one.point.ranks == 1 or cluster.preset(one.point).strategy.calibrates)
        and cluster.communicates(one.point)
        and not one.composed
    ]
    isolated = DagModel(cluster).isolated

    def reading(measured: Measured) -> Ensemble:
        return cluster.data.seconds(measured, measured.point.place, measured.point.worker_batch)

    seen = Contention(sending, trainings, cluster.presets, isolated, reading, pace, seed)
    return replace(cluster, effects=seen.effects)


class DagModel:
    """The DAG model of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """`cluster`: what is known of it, and how training differs there from its isolated parts."""
        self._cluster = cluster

    def curves(self, points: Sequence[Measured], nodes: Iterable[int], *, held_out: bool = True) -> list[ScalingCurve]:
        """Every scaling curve among `points` (`workers.curves_of`), predicted at its own worker counts, and beyond the
        fewest on `nodes` full nodes and inside a node (`workers.counts`).

        Strong scaling leaves out counts that do not divide the global mini-batch. With `held_out` each measured point
        is also predicted without its own cells.
        """
        nodes = list(nodes)
        return [
            self.curve(measured, counts(nodes, measured[0].point.workers_per_node), held_out=held_out)
            for measured in self.points_of_curves(points)
        ]

    def points_of_curves(self, points: Sequence[Measured]) -> list[list[Measured]]:
        """The `points` of each scaling curve, by rising workers; those inside a node may be of several."""
        series: dict[tuple[str | int, ...], dict[Placement, Measured]] = {}
        for measured in [*self._bases(points), *points]:
            if measured.point.scaling in SCALINGS:
                series.setdefault(measured.point.placeless, {})[measured.point.place] = measured
        return [
            [at[place].on_curve(per_node) for place in places]
            for at in series.values()
            for per_node, places in curves_of(at).items()
        ]

    def _bases(self, points: Sequence[Measured]) -> Iterator[Measured]:
        """Of presets that do not communicate the points on one rank, where others were measured: all do the same."""
        presets = self._cluster.presets
        scaling = [one for one in points if one.point.scaling in SCALINGS]
        quiet = {one.point.placeless: one.point.sync for one in scaling if not self._cluster.communicates(one.point)}
        for one, (series, sync) in product(scaling, quiet.items()):
            twin = replace(one.point, sync=sync)
            alike = presets[sync].device_prefetch == presets[one.point.sync].device_prefetch
            if one.point.ranks == 1 and alike and twin.placeless == series:
                yield replace(one, point=twin)

    def curve(self, points: Sequence[Measured], ranks: Iterable[int], *, held_out: bool = True) -> ScalingCurve:
        """The one curve of `points`, by rising workers, predicted there and for as many workers as one of `ranks`."""
        measured = {one.point.ranks: one for one in points}
        base = min(measured)
        wanted = sorted({*measured, *(n for n in ranks if n > base)})
        places = {n: measured[n].point if n in measured else _elsewhere(measured[base].point, n) for n in wanted}
        predicted = {n: self._predict(point, measured) for n, point in places.items() if point is not None}
        seen = {n: here for n, here in measured.items() if held_out and not here.composed}
        without = {n: self._hold_out(here, measured) for n, here in seen.items()}
        return ScalingCurve(measured, predicted, without)

    def _predict(self, point: Point, curve: Mapping[int, Measured]) -> Predicted:
        """Predict from all cells."""
        return self._predict_without(point, curve, frozenset(), held_out=False)

    def _hold_out(self, here: Measured, curve: Mapping[int, Measured]) -> Predicted:
        """Predict from other cells; on one rank without any, from other repeats of the same cell."""
        point = here.point
        own = frozenset(here.cells) if point.ranks == 1 else frozenset()
        prediction = self._predict_without(point, curve, own, held_out=True)
        if len(own) < 2 or not np.isnan(prediction.parts.iteration_time).any():
            return prediction
        first = frozenset({min(own)})
        prediction = self._predict_without(point, curve, first, held_out=True)
        return replace(prediction, compute_source=f"{prediction.compute_source}, other repeats", left_out=first)

    def _predict_without(
        self, point: Point, curve: Mapping[int, Measured], cells: frozenset[str], *, held_out: bool
    ) -> Predicted:
        iteration, base = self._iteration(point), curve[min(curve)]
        times = iteration.times(cells)
        if times is None or not iteration.predictable:
            equation = iteration.strategy.equation(prefetch=iteration.prefetch)
            why = "not measured" if iteration.predictable else "preset not predicted"
            return Predicted(point, equation, why, UNKNOWN_PARTS, waiting=iteration.waiting)
        reading = self._cluster.data.seconds(base, *iteration.reads, without=cells)
        learned = self._cluster.effects(point, held_out) if point.ranks > 1 else effects.NONE
        return iteration.predicted(base, times, reading + np.zeros(1 + REPLICATES), learned)

    def isolated(self, point: Point, sent: Sequence[Sequence[int]]) -> IsolatedTimes | None:
        """What the parts of `point` take if nothing slows them down; None where computing was not measured."""
        return self._iteration(point).isolated(sent)

    def _iteration(self, point: Point) -> Replicas:
        """An iteration at `point`; one worker alone has all layers."""
        of_strategy: type[Replicas] = load(self._cluster.preset(point).strategy.iteration)
        return (of_strategy if point.ranks > 1 else Replicas)(self._cluster, point)


def _elsewhere(point: Point, ranks: int) -> Point | None:
    """The point of the same curve at another number of workers; None where the mini-batch cannot be split so."""
    nodes, _ = placement_at(ranks, point.workers_per_node)
    if point.scaling == "weak":
        return replace(point, nodes=nodes, ranks=ranks, global_batch=point.worker_batch * ranks)
    if point.global_batch % ranks:
        return None
    return replace(point, nodes=nodes, ranks=ranks, worker_batch=point.global_batch // ranks)
