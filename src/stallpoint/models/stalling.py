"""How many nodes: where doubling stops paying, where communication crosses compute, and what is worth its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stallpoint.models.attribution import NOT_DISTINGUISHABLE, dominant
from stallpoint.models.controls import withheld
from stallpoint.models.measured import Measured
from stallpoint.models.prediction import Basis, Predicted, ScalingCurve
from stallpoint.models.statistics import REPLICATES, Ensemble, Reals, columns, estimate

COMPUTE = ("forward", "backward", "update")


def gains(curve: ScalingCurve) -> dict[int, tuple[Basis, Ensemble]]:
    """Throughput at 2n over throughput at n, for every n that has a double.

    Both measured or both predicted: a model that is off everywhere by the same factor must not look like a gain.
    """
    known = curve.known
    found: dict[int, tuple[Basis, Ensemble]] = {}
    for nodes in known:
        if 2 * nodes in known:
            both = {curve.basis(nodes), curve.basis(2 * nodes)} == {"measured"}
            basis: Basis = "measured" if both else "predicted"
            found[nodes] = basis, curve.speedup(2 * nodes, basis) / curve.speedup(nodes, basis)
    return found


def stall_nodes(gained: Mapping[int, Ensemble], largest: int, threshold: float) -> Ensemble:
    """The smallest n whose doubling gains less than `threshold` in throughput; `largest` where none does."""
    stalls = np.full(1 + REPLICATES, float(largest))
    for nodes in sorted(gained, reverse=True):
        stalls = np.where(gained[nodes] < 1 + threshold, float(nodes), stalls)
    return stalls


def crossing(nodes: Sequence[int], ratio: Reals) -> Reals:
    """Where `ratio` [..., len(nodes)] first reaches 1: the first place, by a power of n between two counts.

    Infinite where it never does; the first count where it is 1 from there. From a ratio of 0 (one rank communicates
    nothing), which no power leaves, it is taken to rise evenly in log n.
    """
    ratio, places = np.asarray(ratio, dtype=np.float64), np.log(np.asarray(nodes, dtype=np.float64))
    reached = ratio >= 1
    right = reached.argmax(-1)
    left = np.maximum(right - 1, 0)
    a, b = (np.take_along_axis(ratio, at[..., None], -1)[..., 0] for at in (left, right))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(a > 0, -np.log(a) / (np.log(b) - np.log(a)), (1 - a) / (b - a))
    # A ratio that jumps to infinity (no compute) is reached at the count itself.
    part = np.where(np.isfinite(part) & np.isfinite(b), part, 1.0)
    between = np.exp(places[left] + part * (places[right] - places[left]))
    found = np.where(right > 0, between, float(nodes[0]))
    found = np.where(reached.any(-1), found, np.inf)
    unknown: Reals = np.where(np.isnan(ratio).any(-1), np.nan, found)
    return unknown


def worthwhile_nodes(nodes: Sequence[int], efficiencies: Reals, least: float) -> Reals:
    """The largest of `nodes` up to which every efficiency [..., len(nodes)] is at least `least`.

    The efficiency of the fewest nodes is 1, so these are always worthwhile.
    """
    enough = np.logical_and.accumulate(np.asarray(efficiencies) >= least, axis=-1)
    largest: Reals = np.asarray(nodes, dtype=np.float64)[np.maximum(enough.sum(-1) - 1, 0)]
    return largest


def table(
    curves: Iterable[ScalingCurve], threshold: float, efficiency: float, controls: Sequence[Mapping[str, object]] = ()
) -> list[dict[str, object]]:
    """Rows of the stalling table, one for each curve; `controls` are the rows of that table.

    The dominant cause is that of the doubled count, where the gain stays away. Nodes are worthwhile while a sample
    costs at most 1/`efficiency` of the node-seconds it costs on the fewest nodes.
    """
    return [_row(curve, threshold, efficiency, withheld(curve, controls)) for curve in curves]


def _row(curve: ScalingCurve, threshold: float, efficiency: float, mistrust: str) -> dict[str, object]:
    known, gained = curve.known, gains(curve)
    largest = max(known, default=curve.base)
    stalls = stall_nodes({nodes: gain for nodes, (_, gain) in gained.items()}, largest, threshold)
    stall = int(stalls[0])
    reached = stall in gained and bool(gained[stall][1][0] < 1 + threshold)
    decisive = 2 * stall if reached else largest
    # Where no stall was found, the last doubling says so.
    last = stall if reached else max(gained, default=None)
    unknown = np.full(1 + REPLICATES, np.nan)
    return {
        **{name: value for name, value in curve.measured[curve.base].point.labels().items() if name != "nodes"},
        **columns("stall_nodes", stalls if known else unknown),
        "reached": reached,
        "basis": "measured" if last is None else gained[last][0],
        **_verdict_columns(curve, gained, threshold, mistrust),
        **_crossing_columns(curve, known),
        **columns("worthwhile_nodes", _worthwhile(curve, known, efficiency) if known else unknown),
        **columns("best_speedup", _best_speedup(curve, known) if known else unknown),
        "largest_measured": max(curve.measured),
        "largest_considered": largest,
        "dominant_cause": dominant(curve, decisive) if decisive > curve.base else NOT_DISTINGUISHABLE,
        "note": _note(curve, known, gained) or mistrust,
    }


def verdict(gained: Mapping[int, Ensemble], threshold: float) -> tuple[str, int]:
    """``stalls``, ``scales`` or ``undecided``, and on how many nodes, by the measured gains of doubling.

    A curve stalls at the first n whose gain is below the threshold with all of its interval, and scales as far as
    gains are above it with all of theirs; the first gain that is neither leaves it undecided.
    """
    for nodes, gain in sorted(gained.items()):
        _, low, high = estimate(gain)
        if high < 1 + threshold:
            return "stalls", nodes
        if not low >= 1 + threshold:
            return "undecided", nodes
    return ("scales", 2 * max(gained)) if gained else ("undecided", 0)


def _verdict_columns(
    curve: ScalingCurve, gained: Mapping[int, tuple[Basis, Ensemble]], threshold: float, mistrust: str
) -> dict[str, object]:
    said, nodes = verdict({n: gain for n, (basis, gain) in gained.items() if basis == "measured"}, threshold)
    there = [n for n in curve.known if curve.basis(n) == "measured"]
    best = max(there, key=lambda n: curve.speedup(n, "measured")[0], default=curve.base)
    speedup = curve.speedup(best, "measured") if there else np.full(1 + REPLICATES, np.nan)
    return {
        "verdict": "withheld" if mistrust else said,
        "verdict_nodes": nodes,
        **columns("measured_speedup", speedup),
        "measured_speedup_nodes": best,
    }


def _note(curve: ScalingCurve, known: Sequence[int], gained: Mapping[int, object]) -> str:
    if not known:
        return f"the iteration time on n = {curve.base} is not a positive number"
    if len(known) < 2:
        return "needs two node counts that were measured or can be predicted"
    return "" if gained else "needs a node count and its double, measured or predicted"


def _speedups(curve: ScalingCurve, known: Iterable[int]) -> Reals:
    """Speedup at each known node count, measured where it was, [1 + REPLICATES, len(known)]."""
    return np.stack([curve.speedup(nodes, curve.basis(nodes)) for nodes in known], axis=-1)


def _best_speedup(curve: ScalingCurve, known: Sequence[int]) -> Ensemble:
    return np.asarray(_speedups(curve, known).max(-1))


def _worthwhile(curve: ScalingCurve, known: Sequence[int], efficiency: float) -> Ensemble:
    ideal = np.array(known) / curve.base
    return worthwhile_nodes(known, _speedups(curve, known) / ideal, efficiency)


def communication_ratio(point: Measured | Predicted) -> Ensemble:
    """Communication time, hidden or not, over compute time."""
    compute = sum((point.times[name] for name in COMPUTE), np.zeros(1 + REPLICATES))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(point.times["communication"] / compute)


def _crossing_columns(curve: ScalingCurve, known: Sequence[int]) -> dict[str, float]:
    """The crossing, and the node counts between which it was interpolated."""
    if not known:
        return {**columns("crossing_nodes", np.full(1 + REPLICATES, np.nan)), "crossing_after": np.nan}
    found = crossing(known, np.stack([communication_ratio(curve.at(nodes)) for nodes in known], axis=-1))
    below = [nodes for nodes in known if nodes < found[0]]
    return {**columns("crossing_nodes", found), "crossing_after": float(max(below, default=np.nan))}
