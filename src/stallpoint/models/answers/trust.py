"""Checks that decide whether the predictions of a curve are shown.

*Error*: measured points on several workers are predicted without their own cells. A curve's predictions at other counts
are withheld if the median error of its points or the error at its largest measured count is large. A curve without
such points is judged by points of the same network and hardware. A smaller error widens all predictions beyond measured
counts (`CurvePoints.correction`). *Compute*: co-running workers compute no faster than an isolated one at the same b.
Predictions that violate this are withheld.

*Closure*: the error of predictions for unseen jobs, estimated at the smallest worker count that communicates. Ensembles
contain only the uncertainty of the inputs, but jobs differ from each other and from the model. The root mean square of
the held-out logarithmic errors widens the intervals of all predictions on several ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stallpoint.base.measured import Point
from stallpoint.base.statistics import REPLICATES, Ensemble, estimate, generator
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.models.terms.compute import Compute

MAX_MEDIAN_ERROR = 0.25
"""Median absolute error above which predictions are withheld: well above the 9.4 % of Shi et al. (2018, section V-D),
and more than the difference between gaining and stalling."""


def shown(
    curves: Sequence[CurvePoints], compute: Compute, doubt_of_links: Callable[[Point], str] = lambda _: ""
) -> list[CurvePoints]:
    """Return the curves; a curve that cannot be trusted keeps only its predictions at measured points, and says why."""
    by_hardware: dict[tuple[str, str], list[CurvePoints]] = {}
    for one in curves:
        by_hardware.setdefault(_network_on_hardware(one), []).append(one)
    return [
        _withhold(one, doubt_of_links(one.origin) or _doubt(one, by_hardware[_network_on_hardware(one)], compute))
        for one in curves
    ]


def _withhold(curve: CurvePoints, doubt: str) -> CurvePoints:
    if not doubt:
        return curve.corrected_curve
    predicted_at_points = {ranks: point for ranks, point in curve.predicted.items() if ranks in curve.points}
    return replace(curve, predicted=predicted_at_points, withheld=doubt)


def _doubt(curve: CurvePoints, similar_curves: Iterable[CurvePoints], compute: Compute) -> str:
    """Return why predictions are withheld, else ""; `similar_curves` are curves of the same network and hardware."""
    point = curve.origin
    curve_errors = {ranks: ratio - 1 for ranks, ratio in _error_ratios(curve)}
    errors = list(curve_errors.values()) or [ratio - 1 for one in similar_curves for _, ratio in _error_ratios(one)]
    error = float(np.median(np.abs(errors))) if errors else 0.0
    largest_count = max(curve_errors, default=0)
    error_at_largest = abs(curve_errors.get(largest_count, 0.0))
    if max(error, error_at_largest) > MAX_MEDIAN_ERROR:
        points = f"median of {len(errors)} point{'s' if len(errors) > 1 else ''}"
        where = points if error > MAX_MEDIAN_ERROR else f"n = {largest_count}, the most workers"
        error = error if error > MAX_MEDIAN_ERROR else error_at_largest
        return f"the model is {100 * error:.0f} % off where {point.network} on {point.hardware} was measured ({where})"
    for ranks, predicted in curve.predicted.items():
        at = predicted.point
        isolated = compute.passes(at.network, at.hardware, at.worker_batch)
        if isolated is not None and ranks not in curve.points:
            _, _, high = estimate(predicted.parts.forward + predicted.parts.backward)
            value, low, _ = estimate(isolated)
            if high < low:
                return f"on n = {ranks} it would compute in {high:.2g} s what took {value:.2g} s in isolation"
    return ""


def _network_on_hardware(curve: CurvePoints) -> tuple[str, str]:
    point = curve.origin
    return point.network, point.hardware


def _error_ratios(curve: CurvePoints) -> Iterator[tuple[int, float]]:
    """Yield each measured count on several workers, with the ratio of its held-out prediction to its measured time."""
    for ranks, predicted in curve.held_out.items():
        measured = curve.measured[ranks]
        seconds = predicted.parts.iteration_time[0], measured.parts.iteration_time[0]
        if measured.point.ranks > 1 and np.isfinite(seconds).all() and min(seconds) > 0:
            yield ranks, float(seconds[0] / seconds[1])


MIN_POINTS = 3
"""Points needed to estimate the error."""


def errors(curves: Sequence[CurvePoints]) -> dict[str, float]:
    """Return the root mean square of log(predicted / measured) on the fewest workers, if enough points are known."""
    found: dict[str, dict[int, dict[Point, float]]] = {}
    for curve in curves:
        for ranks, ratio in _error_ratios(curve):
            point = curve.measured[ranks].point
            # A point inside a node may belong to several curves, and is counted once.
            found.setdefault(point.hardware, {}).setdefault(ranks, {})[point.standalone] = float(np.log(ratio))
    fewest = {hardware: by_ranks[min(by_ranks)] for hardware, by_ranks in found.items()}
    return {
        hardware: float(np.sqrt(np.mean(np.square(list(errors.values())))))
        for hardware, errors in fewest.items()
        if len(errors) >= MIN_POINTS
    }


def widened_seconds(predicted_point: Predicted, error_by_hardware: Mapping[str, float]) -> Ensemble:
    """Return the predicted iteration time, widened by the error of predictions for jobs that were not measured."""
    point, seconds = predicted_point.point, predicted_point.parts.iteration_time
    error = error_by_hardware.get(point.hardware, 0.0) if point.ranks > 1 else 0.0
    random_normals = generator(0, "closure", *point.series, point.ranks).standard_normal(REPLICATES)
    return seconds * np.exp(error * np.concatenate([[0.0], random_normals]))
