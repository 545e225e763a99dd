"""Why an iteration is not n times faster, and from which node count on more nodes stop paying.

The loss against ideal scaling from the fewest nodes n0: each part of the iteration at n, less what it would
be if it had scaled (its time at n0 divided by n/n0 for strong scaling, as it was for weak scaling).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import numpy as np

from stallpoint.models.measured import Measured
from stallpoint.models.prediction import Predicted, ScalingCurve
from stallpoint.models.statistics import Ensemble, columns, estimate

Basis = Literal["measured", "predicted"]

DOMINANT, MINOR, NOT_DISTINGUISHABLE = "dominant", "minor", "not distinguishable"


def parts(point: Measured | Predicted) -> dict[str, Ensemble]:
    """The iteration time by cause, s; the parts sum up to the iteration time.

    ``communication``: exposed communication; ``matrix shapes``: convolution, fully-connected and attention layers;
    ``non-scaling layers``: the other layers and the time between layers; ``training data``: wait for data and
    copy to the device; ``model update``; ``imbalance``: the rest, above all waiting for the slowest rank. The
    model has equal ranks, so none; there, what is left is the wait for data.
    """
    times = point.times
    known = {
        "communication": times["exposed_communication"],
        "matrix shapes": times["matrix"],
        "non-scaling layers": times["forward"] + times["backward"] - times["matrix"],
        "model update": times["update"],
    }
    rest = times["iteration_time"] - sum(known.values())
    if isinstance(point, Predicted):
        return known | {"training data": rest, "imbalance": np.zeros_like(rest)}
    data = times["data_wait"] + times["host_to_device"]
    return known | {"training data": data, "imbalance": rest - data}


def losses(curve: ScalingCurve, nodes: int) -> dict[str, Ensemble]:
    """Seconds lost against ideal scaling by cause; measured where `nodes` were measured, else predicted."""
    points: Mapping[int, Measured | Predicted] = curve.measured if nodes in curve.measured else curve.predicted
    here, base = parts(points[nodes]), parts(points[curve.base])
    ideal = nodes / curve.base if curve.strong else 1.0
    return {cause: here[cause] - base[cause] / ideal for cause in here}


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


def dominant(curve: ScalingCurve, nodes: int) -> str:
    """The dominant cause at `nodes`, or ``not distinguishable``."""
    found = verdicts(losses(curve, nodes))
    return next((cause for cause, verdict in found.items() if verdict == DOMINANT), NOT_DISTINGUISHABLE)


def causes(curves: Iterable[ScalingCurve]) -> list[dict[str, object]]:
    """Rows of the causes table; the fewest nodes lose nothing by definition and have none."""
    return [
        row for curve in curves for nodes in _known(curve) if nodes > curve.base for row in _causes_at(curve, nodes)
    ]


def _causes_at(curve: ScalingCurve, nodes: int) -> Iterator[dict[str, object]]:
    basis: Basis = "measured" if nodes in curve.measured else "predicted"
    point = (curve.measured if basis == "measured" else curve.predicted)[nodes]
    lost = losses(curve, nodes)
    found = verdicts(lost)
    for cause, ensemble in lost.items():
        yield {
            **point.point.labels("ranks"),
            "basis": basis,
            "cause": cause,
            **columns("lost", ensemble),
            "share": float(ensemble[0] / point.times["iteration_time"][0]),
            "verdict": found[cause],
        }


def _known(curve: ScalingCurve) -> list[int]:
    """Node counts that were measured or could be predicted (and the fewest nodes with them), rising."""
    usable = not np.isnan(curve.predicted[curve.base].times["iteration_time"]).any()
    predicted = (n for n, at in curve.predicted.items() if usable and not np.isnan(at.times["iteration_time"]).any())
    return sorted({*curve.measured, *predicted})


def gains(curve: ScalingCurve) -> dict[int, tuple[Basis, Ensemble]]:
    """Throughput at 2n over throughput at n, for every n that has a double.

    Both measured or both predicted: a model that is off everywhere by the same factor must not look like a gain.
    """
    known = _known(curve)
    found: dict[int, tuple[Basis, Ensemble]] = {}
    for nodes in known:
        if 2 * nodes in known:
            basis: Basis = "measured" if {nodes, 2 * nodes} <= curve.measured.keys() else "predicted"
            found[nodes] = basis, curve.speedup(2 * nodes, basis) / curve.speedup(nodes, basis)
    return found


def stalling(curves: Iterable[ScalingCurve], threshold: float) -> list[dict[str, object]]:
    """Rows of the stalling table.

    A curve stalls at the smallest node count from which doubling gains less than `threshold` in throughput. The
    dominant cause is that of the doubled count, where the gain stays away.
    """
    return [_stalling_row(curve, threshold) for curve in curves]


def _stalling_row(curve: ScalingCurve, threshold: float) -> dict[str, object]:
    known, gained = _known(curve), gains(curve)
    stalls = np.full(curve.speedup(curve.base, "measured").shape, float(max(known)))
    for nodes in sorted(gained, reverse=True):
        stalls = np.where(gained[nodes][1] < 1 + threshold, float(nodes), stalls)
    stall = int(stalls[0])
    reached = stall in gained and bool(gained[stall][1][0] < 1 + threshold)
    decisive = 2 * stall if reached else max(known)
    # Where no stall was found, the last doubling says so.
    last = stall if reached else max(gained, default=None)
    basis: Basis = "measured" if last is None else gained[last][0]
    return {
        **{name: value for name, value in curve.measured[curve.base].point.labels().items() if name != "nodes"},
        **columns("stall_nodes", stalls),
        "reached": reached,
        "basis": basis,
        **columns("best_speedup", _best_speedup(curve, known)),
        "largest_measured": max(curve.measured),
        "largest_considered": max(known),
        "dominant_cause": dominant(curve, decisive) if decisive > curve.base else NOT_DISTINGUISHABLE,
    }


def _best_speedup(curve: ScalingCurve, known: Iterable[int]) -> Ensemble:
    """Largest speedup at any known node count, measured where it was measured."""
    speedups = [curve.speedup(n, "measured" if n in curve.measured else "predicted") for n in known]
    return np.asarray(np.max(np.stack(speedups), axis=0))
