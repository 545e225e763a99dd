"""Whether predictions of a curve may be shown: they are checked against all that was measured and must agree.

*Error*: measured points on several workers are predicted without their own cells. Where the model is far off for a
network on a hardware entry, its predictions for other worker counts there are withheld. *Compute*: workers that train
together compute no faster than one in isolation at the same b; a prediction that says so is withheld.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from stallpoint.models.base.statistics import estimate
from stallpoint.models.iteration.curve import ScalingCurve
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
    errors = list(_errors(curve)) or [error for one in alike for error in _errors(one)]
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


def _errors(curve: ScalingCurve) -> Iterator[float]:
    """Relative errors of predictions of measured points on several workers, each made without its own cells."""
    for ranks, predicted in curve.held_out.items():
        measured = curve.measured[ranks]
        seconds = predicted.parts.iteration_time[0], measured.parts.iteration_time[0]
        if measured.point.ranks > 1 and np.isfinite(seconds).all() and min(seconds) > 0:
            yield float(seconds[0] / seconds[1] - 1)
