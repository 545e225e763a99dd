"""Predicted against measured on more workers, when training was seen on fewer alone.

Every training cell on more workers than the calibration's is held out; all-reduces and storages, which need no
training, count wherever they were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from stallpoint.models.answers import trust
from stallpoint.models.answers.fitted import Question
from stallpoint.models.base.measured import Measured, Point
from stallpoint.models.base.statistics import columns, estimate
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.curve import Predicted, ScalingCurve
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.models.terms.trainings import Trainings
from stallpoint.records.tables import VALIDATION

CALIBRATED_ON = 2
"""Worker counts to calibrate on, unless nodes are named."""


def table(
    trainings: Trainings,
    points: Sequence[Measured],
    wanted: Collection[int],
    cluster_of: Callable[[Trainings, Sequence[Measured]], Cluster],
) -> list[dict[str, object]]:
    """Rows of the validation table: every point on more nodes than `wanted`; if none are, on more workers than the
    fewest two counts.

    `cluster_of` makes of training cells and the points among them what is known of the cluster.
    """
    scaling = [one for one in points if one.point.scaling in SCALINGS]
    if not scaling:
        return []
    fewest = sorted({one.point.ranks for one in scaling})[:CALIBRATED_ON]

    def belongs(point: Point) -> bool:
        return point.nodes in wanted if wanted else point.ranks <= max(fewest)

    def larger(point: Point) -> bool:
        return bool(point.nodes > max(wanted) if wanted else point.ranks > max(fewest))

    known = [one for one in points if belongs(one.point)]
    if not known or not any(larger(one.point) for one in scaling):
        return []
    model = DagModel(cluster_of(trainings.of([cell for one in known for cell in one.cells]), known))
    curves = [
        (model.curve(seen, list(truth)), truth)
        for measured in model.points_of_curves(points)
        if (seen := [one for one in measured if belongs(one.point)])
        and (truth := {one.point.ranks: one for one in measured if larger(one.point) and not one.composed})
    ]
    errors = trust.errors([curve for curve, _ in curves])
    label = ", ".join(map(str, sorted({one.point.ranks for one in known if one.point.scaling in SCALINGS})))
    return [row for curve, truth in curves for row in _rows(curve, truth, label, errors)]


def _rows(
    curve: ScalingCurve, truth: Mapping[int, Measured], calibration: str, errors: Mapping[str, float]
) -> Iterator[dict[str, object]]:
    for ranks, measured in truth.items():
        predicted = curve.predicted.get(ranks)
        if predicted is None:
            continue
        seconds = trust.widened(predicted, errors)
        value, low, high = estimate(seconds)
        found = float(measured.parts.iteration_time[0])
        if value > 0 and found > 0:
            yield {
                **predicted.point.labels("worker_batch"),
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


QUESTIONS = (
    Question(
        VALIDATION,
        lambda fitted: table(
            fitted.reduced.trainings, fitted.points, fitted.asked.calibration_nodes, fitted.cluster_of
        ),
    ),
)
