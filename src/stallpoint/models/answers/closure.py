"""How far predictions are from jobs they do not know, where that can be seen: on the fewest workers that communicate.

Ensembles hold what the uncertainty of the inputs does. A job differs from the next one as well, and the model from
both: each point on those workers is predicted from the others there, and the root mean square of its logarithmic error
widens the intervals of all predictions on several ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stallpoint.models.base.measured import Point
from stallpoint.models.base.statistics import REPLICATES, Ensemble, generator
from stallpoint.models.iteration.curve import Predicted, ScalingCurve

FEWEST_POINTS = 3
"""Points that can tell."""


def errors(curves: Sequence[ScalingCurve]) -> dict[str, float]:
    """Root mean square of log(predicted / measured) by hardware; hardware with too few points is left out."""
    found: dict[str, dict[int, dict[Point, float]]] = {}
    for curve in curves:
        for ranks, measured in curve.measured.items():
            seconds = curve.held_out[ranks].parts.iteration_time[0], measured.parts.iteration_time[0]
            if ranks > 1 and np.isfinite(seconds).all() and min(seconds) > 0:
                of_hardware = found.setdefault(measured.point.hardware, {})
                # Inside a node a point may be of several curves.
                of_hardware.setdefault(ranks, {})[measured.point.alone] = float(np.log(seconds[0] / seconds[1]))
    fewest = {hardware: by_ranks[min(by_ranks)] for hardware, by_ranks in found.items()}
    return {hardware: _rms(errors.values()) for hardware, errors in fewest.items() if len(errors) >= FEWEST_POINTS}


def _rms(values: Iterable[float]) -> float:
    return float(np.sqrt(np.mean(np.square(list(values)))))


def widened(predicted: Predicted, of_hardware: Mapping[str, float]) -> Ensemble:
    """The iteration time, as a job that was not seen would take it."""
    point, seconds = predicted.point, predicted.parts.iteration_time
    error = of_hardware.get(point.hardware, 0.0) if point.ranks > 1 else 0.0
    normal = generator(0, "closure", *point.series, point.ranks).standard_normal(REPLICATES)
    return seconds * np.exp(error * np.concatenate([[0.0], normal]))
