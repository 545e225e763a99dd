"""Whether predictions of a curve may be shown: they are checked against all that was measured and must agree.

*Error*: measured points on several workers are predicted without their own cells. Where the model is far off for a
network on a hardware entry, its predictions for other worker counts there are withheld. *Compute*: workers that train
together compute no faster than one in isolation at the same b; a prediction that says so is withheld.

*Closure*: how far predictions are from jobs they do not know, seen on the fewest workers that communicate.

Ensembles hold what the uncertainty of the inputs does. A job differs from the next one as well, and the model from
both: each point on those workers is predicted from the others there, and the root mean square of its logarithmic error
widens the intervals of all predictions on several ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stallpoint.models.base.measured import Point
from stallpoint.models.base.statistics import REPLICATES, Ensemble, estimate, generator
from stallpoint.models.iteration.curve import Predicted, ScalingCurve
from stallpoint.models.terms.compute import Compute

MOST_OFF = 0.25
"""Median size of the model's error beyond which predictions are withheld: far more than Shi et al. (2018, section V-D)
find, 9.4 % in the mean at most, and more than what decides between gaining and stalling."""


def shown(curves: Sequence[ScalingCurve], compute: Compute) -> list[ScalingCurve]:
    """The curves; those whose predictions are not to be trusted have none where nobody measured, and say why."""
    return [_shown(curve, _doubt(curve, curves, compute)) for curve in curves]


def _shown(curve: ScalingCurve, doubt: str) -> ScalingCurve:
    if not doubt:
        return curve
    there = {ranks: point for ranks, point in curve.predicted.items() if ranks in curve.points}
    return replace(curve, predicted=there, withheld=doubt)


def _doubt(curve: ScalingCurve, curves: Iterable[ScalingCurve], compute: Compute) -> str:
    point = curve.origin
    alike = [one for one in curves if _place(one) == _place(curve)]
    errors = list(_off(curve)) or [error for one in alike for error in _off(one)]
    off = float(np.median(np.abs(errors))) if errors else 0.0
    if off > MOST_OFF:
        return f"the model is {100 * off:.0f} % off where {point.network} on {point.hardware} was measured"
    for ranks, predicted in curve.predicted.items():
        at = predicted.point
        isolated = compute.passes(at.network, at.hardware, at.worker_batch)
        if isolated is not None and ranks not in curve.points:
            _, _, high = estimate(predicted.parts.forward + predicted.parts.backward)
            value, low, _ = estimate(isolated)
            if high < low:
                return f"on n = {ranks} it would compute in {high:.2g} s what took {value:.2g} s in isolation"
    return ""


def _place(curve: ScalingCurve) -> tuple[str, str]:
    point = curve.origin
    return point.network, point.hardware


def _off(curve: ScalingCurve) -> Iterator[float]:
    """Relative errors of predictions of measured points on several workers, each made without its own cells."""
    for ranks, predicted in curve.held_out.items():
        measured = curve.measured[ranks]
        seconds = predicted.parts.iteration_time[0], measured.parts.iteration_time[0]
        if measured.point.ranks > 1 and np.isfinite(seconds).all() and min(seconds) > 0:
            yield float(seconds[0] / seconds[1] - 1)


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
