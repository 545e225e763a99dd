"""Predicted against measured at larger node counts, when training was seen on the smaller ones alone.

Every training cell on more nodes than the calibration's is held out; all-reduces and storages, which need no training,
count wherever they were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from stallpoint.models.answers import closure
from stallpoint.models.base.measured import Measured
from stallpoint.models.base.statistics import columns, estimate
from stallpoint.models.iteration.cluster import Cluster
from stallpoint.models.iteration.curve import Predicted, ScalingCurve
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.models.terms.trainings import Trainings

CALIBRATED_ON = 2
"""Node counts to calibrate on, unless they are named."""


def table(
    trainings: Trainings,
    points: Sequence[Measured],
    wanted: Collection[int],
    cluster_of: Callable[[Trainings, Sequence[Measured]], Cluster],
) -> list[dict[str, object]]:
    """Rows of the validation table: every point on more nodes than `wanted` (the fewest two, if none are).

    `cluster_of` makes of training cells and the points among them what is known of the cluster.
    """
    counts = sorted({measured.point.nodes for measured in points})
    calibration = sorted(set(wanted)) or counts[:CALIBRATED_ON]
    larger = [nodes for nodes in counts if calibration and nodes > calibration[-1]]
    if not larger:
        return []
    known = [measured for measured in points if measured.point.nodes in calibration]
    curves = DagModel(cluster_of(trainings.on(calibration), known)).curves(known, larger)
    errors = closure.errors(curves)
    truth = {(*measured.point.series, measured.point.nodes): measured for measured in points}
    label = ", ".join(map(str, calibration))
    return [row for curve in curves for row in _rows(curve, larger, truth, label, errors)]


def _rows(
    curve: ScalingCurve,
    larger: Sequence[int],
    truth: Mapping[tuple[str | int, ...], Measured],
    calibration: str,
    errors: Mapping[str, float],
) -> Iterator[dict[str, object]]:
    for nodes in larger:
        predicted = curve.predicted.get(nodes)
        measured = truth.get((*predicted.point.series, nodes)) if predicted else None
        if predicted is None or measured is None:
            continue
        seconds = closure.widened(predicted, errors)
        value, low, high = estimate(seconds)
        found = float(measured.parts.iteration_time[0])
        if value > 0 and found > 0:
            yield {
                **predicted.point.labels("ranks", "worker_batch"),
                "calibration": calibration,
                **columns("predicted", seconds),
                **columns("measured", measured.parts.iteration_time),
                "error": value / found - 1,
                "error_computing": _beyond(predicted, measured, "forward", "backward") / found,
                "error_communication": _beyond(predicted, measured, "exposed_communication") / found,
                "covered": low <= found <= high,
                "repeats": len(measured.cells),
                "repeats_differ": _difference(measured.of_cells),
            }


def _beyond(predicted: Predicted, measured: Measured, *parts: str) -> float:
    """How much longer these parts were predicted to take than they did, s."""
    return float(sum(getattr(predicted.parts, part)[0] - getattr(measured.parts, part)[0] for part in parts))


def _difference(seconds: Sequence[float]) -> float:
    """Slower over faster, minus 1, on average over pairs of those that took any time; NaN without a pair."""
    pairs = [max(pair) / min(pair) - 1 for pair in combinations([some for some in seconds if some > 0], 2)]
    return float(np.mean(pairs)) if pairs else float("nan")
