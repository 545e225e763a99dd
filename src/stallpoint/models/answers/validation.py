"""Predictions for more workers, calibrated on fewer, compared with measurements.

Training cells on more workers than the calibration are held out; all-reduces and storage reads, which need no training,
count wherever they were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from stallpoint.base.measured import Measured, Point
from stallpoint.base.statistics import columns, estimate
from stallpoint.models.answers import trust
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.cluster import SCALINGS
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.models.iteration.prediction import DagModel
from stallpoint.records.tables import VALIDATION

CALIBRATED_ON = 2
"""Number of worker counts to calibrate on, unless nodes are given."""


def table(fitted: FittedStudy) -> list[dict[str, object]]:
    """Rows of the validation table: every point on more nodes than the calibration's, or, if these are not given, on
    more workers than the two smallest counts."""
    points, wanted = fitted.points, fitted.asked.calibration_nodes
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
    cells = fitted.reduced.training_cells.of([cell for one in known for cell in one.cells])
    model = DagModel(fitted.cluster_of(cells, known))
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
    curve: CurvePoints, truth: Mapping[int, Measured], calibration: str, errors: Mapping[str, float]
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
    return float(sum(getattr(predicted.parts, part)[0] - getattr(measured.parts, part)[0] for part in parts))


def _difference(seconds: Sequence[float]) -> float:
    """Return the mean of slower over faster minus 1, over pairs of positive times; NaN without a pair."""
    pairs = [max(pair) / min(pair) - 1 for pair in combinations([some for some in seconds if some > 0], 2)]
    return float(np.mean(pairs)) if pairs else float("nan")


QUESTIONS = (Question(VALIDATION, table),)
