"""Why an iteration is not n times faster: the loss against ideal scaling, by cause.

The loss against ideal scaling from the fewest workers n0: what each cause takes of the iteration at n, less what that
would be if it had scaled (its time at n0 divided by n/n0 for strong scaling, as it was for weak scaling). Layers
count with their isolated times; what training adds to them is interference. Where they are not known, computing is one
cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from stallpoint.models.answers.critical_path import UNDIVIDED, by_cause, path, undivided
from stallpoint.models.base.statistics import Ensemble, columns, estimate
from stallpoint.models.iteration.curve import ScalingCurve

DOMINANT, MINOR, NOT_DISTINGUISHABLE = "dominant", "minor", "not distinguishable"


def losses(curve: ScalingCurve, ranks: int) -> dict[str, Ensemble]:
    """Seconds lost against ideal scaling by cause; measured where `ranks` were measured, else predicted."""
    basis = curve.basis(ranks)
    both = [path(curve, at, basis) for at in (ranks, curve.base)]
    if any(UNDIVIDED in of_parts for of_parts in both):
        both = [undivided(of_parts) for of_parts in both]
    here, base = map(by_cause, both)
    ideal = ranks / curve.base if curve.strong else 1.0
    return {cause: seconds - base.get(cause, 0.0) / ideal for cause, seconds in here.items()}


def verdicts(lost: Mapping[str, Ensemble]) -> dict[str, str]:
    """Which cause stands out: ``dominant`` where its interval lies above zero and above all others.

    ``minor`` lies below the largest; what overlaps the largest, and then the largest too, is ``not distinguishable``.
    """
    intervals = {cause: estimate(ensemble) for cause, ensemble in lost.items()}
    largest = max(intervals, key=lambda cause: intervals[cause][0])
    floor = intervals[largest][1]
    found = {cause: MINOR if high < floor else NOT_DISTINGUISHABLE for cause, (_, _, high) in intervals.items()}
    alone = all(verdict == MINOR for cause, verdict in found.items() if cause != largest)
    return found | {largest: DOMINANT if alone and floor > 0 else NOT_DISTINGUISHABLE}


def dominant(curve: ScalingCurve, ranks: int) -> str:
    """The dominant cause at `ranks`, or ``not distinguishable``."""
    found = verdicts(losses(curve, ranks))
    return next((cause for cause, verdict in found.items() if verdict == DOMINANT), NOT_DISTINGUISHABLE)


def causes(curves: Iterable[ScalingCurve]) -> list[dict[str, object]]:
    """Rows of the causes table; the fewest workers lose nothing by definition and have none."""
    return [row for curve in curves for ranks in curve.known if ranks > curve.base for row in _causes_at(curve, ranks)]


def _causes_at(curve: ScalingCurve, ranks: int) -> Iterator[dict[str, object]]:
    point, lost = curve.at(ranks), losses(curve, ranks)
    if any(np.isnan(ensemble).any() for ensemble in lost.values()):
        return  # rates alone were recorded: what an iteration was spent on is not known
    found = verdicts(lost)
    for cause, ensemble in lost.items():
        yield {
            **point.point.labels(),
            "basis": curve.basis(ranks),
            "cause": cause,
            **columns("lost", ensemble),
            "share": float(ensemble[0] / point.parts.iteration_time[0]),
            "verdict": found[cause],
        }
