"""Scaling limits: where doubling workers stops paying, where communication exceeds compute, and what is cost-
efficient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from stallpoint.models.answers.causes import NOT_DISTINGUISHABLE, dominant
from stallpoint.models.answers.controls import checked, withheld
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.base.measured import SERIES, Measured
from stallpoint.models.base.stall import Stall
from stallpoint.models.base.statistics import (
    INTERVAL,
    Ensemble,
    Reals,
    columns,
    estimate,
    unknown_ensemble,
)
from stallpoint.models.iteration.curve import Basis, Predicted, ScalingCurve
from stallpoint.models.scaling.study_curves import underlying
from stallpoint.records.tables import STALL_PROBABILITIES, STALLING
from stallpoint.study.workers import placement_at

Gains: TypeAlias = Mapping[int, tuple[Basis, Reals]]
"""Gain of each doubling of workers, as from `gains`."""


def gains(curve: ScalingCurve) -> Gains:
    """Return the logarithm of throughput at 2n over throughput at n, for every n with a double: draws, [REPLICATES].

    Both are measured, by a fit of the measured curve (`underlying`), or both predicted: a model that is off by a
    constant factor must not look like a gain.
    """
    known, measured, predicted = curve.known, underlying(curve), throughput(curve)
    found: dict[int, tuple[Basis, Reals]] = {}
    for ranks in known:
        if ranks in measured and 2 * ranks in measured:
            found[ranks] = "measured", measured[2 * ranks] - measured[ranks]
        elif 2 * ranks in known and {ranks, 2 * ranks} <= predicted.keys():
            found[ranks] = "predicted", _log_gain(predicted, ranks)
    return found


def throughput(curve: ScalingCurve) -> dict[int, Ensemble]:
    """Return predicted samples per second by worker count, where predictable."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = {n: at.point.global_batch / at.parts.iteration_time for n, at in curve.predicted.items()}
    return {ranks: rate for ranks, rate in rates.items() if np.isfinite(rate).all()}


def predicted_stall(rates: Mapping[int, Ensemble], threshold: float) -> Stall:
    """Return where a curve with these `rates` stalls."""
    gained = {n: _log_gain(rates, n) for n in rates if 2 * n in rates}
    return Stall.of(gained, max(rates), threshold)


def _log_gain(rates: Mapping[int, Ensemble], ranks: int) -> Reals:
    return np.asarray(np.log(rates[2 * ranks] / rates[ranks])[1:])


def crossing(ranks: Sequence[int], ratio: Reals) -> Reals:
    """Return where `ratio` [..., len(ranks)] first reaches 1, interpolated as a power of n between counts.

    Infinite if it never does; the first count if it starts above 1. From a ratio of 0 (one rank does not communicate)
    it is interpolated linearly in log n.
    """
    ratio, places = np.asarray(ratio, dtype=np.float64), np.log(np.asarray(ranks, dtype=np.float64))
    reached = ratio >= 1
    after = reached.argmax(-1)
    before = np.maximum(after - 1, 0)
    a, b = (np.take_along_axis(ratio, at[..., None], -1)[..., 0] for at in (before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(a > 0, -np.log(a) / (np.log(b) - np.log(a)), (1 - a) / (b - a))
    # A ratio that jumps to infinity (no compute) is reached at the count itself.
    part = np.where(np.isfinite(part) & np.isfinite(b), part, 1.0)
    between = np.exp(places[before] + part * (places[after] - places[before]))
    found = np.where(after > 0, between, float(ranks[0]))
    found = np.where(reached.any(-1), found, np.inf)
    unknown: Reals = np.where(np.isnan(ratio).any(-1), np.nan, found)
    return unknown


def cost_efficient_ranks(ranks: Sequence[int], efficiencies: Reals, least: float) -> Reals:
    """Return the largest of `ranks` up to which every efficiency [..., len(ranks)] is at least `least`.

    The efficiency of the smallest worker count is 1, so that count always qualifies.
    """
    enough = np.logical_and.accumulate(np.asarray(efficiencies) >= least, axis=-1)
    largest: Reals = np.asarray(ranks, dtype=np.float64)[np.maximum(enough.sum(-1) - 1, 0)]
    return largest


def tables(
    curves: Iterable[ScalingCurve],
    threshold: float,
    efficiency: float,
    controls: Sequence[Mapping[str, object]] = (),
    gains_of: Callable[[ScalingCurve], Gains] = gains,
    disturbed: Collection[tuple[object, ...]] = (),
    durations: Mapping[Any, float] = MappingProxyType({}),
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Rows of stalling, one for each curve, and of stall_probabilities.

    `controls` are rows of that table; `gains_of` is `gains` or a cached version; `disturbed` as for
    `controls.withheld`; `durations` are those of all visits to each cell, s. The dominant cause is that of the doubled
    count, which lacks the gain. Workers are cost-efficient while a sample costs at most 1/`efficiency` of the
    worker-seconds it costs at the smallest worker count.
    """
    rows, probabilities = [], []
    for curve in curves:
        gained = gains_of(curve)
        largest = max(curve.known, default=curve.base)
        known = Stall.of({ranks: gain for ranks, (_, gain) in gained.items()}, largest, threshold)
        both = {ranks: gain for ranks, (basis, gain) in gained.items() if basis == "measured"}
        measured = Stall.of(both, 2 * max(both, default=0), threshold)
        bases = {ranks: basis for ranks, (basis, _) in gained.items()}
        mistrust = withheld(curve, controls, disturbed)
        verdict = _verdict_columns(curve, measured, threshold, mistrust, durations)
        rows.append({**_row(curve, bases, known, efficiency, mistrust), **verdict})
        probabilities += [*_probabilities(curve, "measured", measured), *_probabilities(curve, "known", known)]
    return rows, probabilities


def _labels(curve: ScalingCurve) -> dict[str, object]:
    point = curve.origin
    return {name: getattr(point, name) for name in SERIES}


def _probabilities(curve: ScalingCurve, of: str, stall: Stall) -> Iterator[dict[str, object]]:
    if len(stall.probabilities) > 1:
        for ranks, probability in stall.probabilities.items():
            stalls = ranks != stall.largest
            nodes, _ = placement_at(ranks, curve.per_node)
            where = {"nodes": nodes, "ranks": ranks}
            yield {**_labels(curve), **where, "basis": of, "stalls": stalls, "probability": probability}


def _row(
    curve: ScalingCurve,
    gained: Mapping[int, Basis],
    stall: Stall,
    efficiency: float,
    mistrust: str,
) -> dict[str, object]:
    """Return the row of a curve without `_verdict_columns`; `stall` is over all known counts, `gained` is the basis
    of each doubling."""
    known, unknown = curve.known, unknown_ensemble()
    decisive = 2 * stall.ranks if stall.reached else stall.largest
    # Without a stall the last doubling is the evidence.
    last = stall.ranks if stall.reached else max(gained, default=None)
    return {
        **_labels(curve),
        **(stall.columns if gained else columns("stall_ranks", unknown)),
        "reached": stall.reached,
        "basis": "measured" if last is None else gained[last],
        **_crossing_columns(curve, known),
        **columns("cost_efficient_ranks", _cost_efficient(curve, known, efficiency) if known else unknown),
        **columns("best_speedup", np.asarray(_speedups(curve, known).max(-1)) if known else unknown),
        "largest_measured": max(curve.measured, default=0),
        "largest_considered": stall.largest,
        "dominant_cause": dominant(curve, decisive) if decisive > curve.base else NOT_DISTINGUISHABLE,
        "withheld": curve.withheld,
        "note": _note(curve, known, gained) or mistrust,
    }


def _verdict_columns(
    curve: ScalingCurve, stall: Stall, threshold: float, mistrust: str, durations: Mapping[Any, float]
) -> dict[str, object]:
    state, ranks = stall.verdict
    if state != "undecided" and (open_ := _open(curve, state, ranks, threshold)) is not None:
        state, ranks = "undecided", open_
    there = [n for n in curve.known if curve.basis(n) == "measured"]
    best = max(there, key=lambda n: curve.speedup(n, "measured")[0], default=curve.base)
    speedup = curve.speedup(best, "measured") if there else unknown_ensemble()
    deciding = np.nan
    if state == "undecided" and not mistrust and {ranks, 2 * ranks} <= set(there):
        spent = sum(durations.get(cell, np.nan) for n in (ranks, 2 * ranks) for cell in curve.measured[n].cells)
        deciding = spent * (deciding_visits(np.log(_gain(curve, ranks)[1:]), threshold) - 1)
    return {
        "verdict": "withheld" if mistrust else state,
        "verdict_ranks": ranks,
        "deciding_time": deciding,
        **columns("measured_speedup", speedup),
        "measured_speedup_ranks": best,
    }


def _open(curve: ScalingCurve, state: str, ranks: int, threshold: float) -> int | None:
    """Return the worker count where the measured speedup does not support the verdict; None if it does.

    If every doubling up to `ranks` pays, the interval there lies above the speedup of minimally paying doublings; if
    the first one does not pay, the interval of its double lies below. A doubling onto the second node is a step that no
    law describes: if visited once, its own measurements must support the verdict.
    """
    for n in sorted(n for n in curve.measured if n <= ranks and _is_step(curve, n)):
        pays = float((np.log(_gain(curve, n))[1:] >= np.log1p(threshold)).mean())
        if (pays if state == "scales" or n < ranks else 1 - pays) < INTERVAL:
            return n
    if ranks > curve.base:
        _, low, _ = estimate(curve.speedup(ranks, "measured"))
        return None if low >= (1 + threshold) ** np.log2(ranks / curve.base) else ranks // 2
    _, _, high = estimate(curve.speedup(2 * ranks, "measured"))
    return None if state == "stalls" and high < 1 + threshold else ranks


def deciding_visits(gain: Reals, threshold: float) -> float:
    """Return the factor on visits by which `gain`, draws of log X(2n)/X(n), would decide whether 2n gain `threshold`.

    The mean is taken to stay, and the standard deviation to fall with the root of visits, until `INTERVAL` of a normal
    distribution lies on one side.
    """
    beyond = gain - np.log1p(threshold)
    return float(max((NormalDist().inv_cdf(INTERVAL) * beyond.std() / beyond.mean()) ** 2, 1.0))


def _is_step(curve: ScalingCurve, ranks: int) -> bool:
    """Check whether doubling `ranks` goes from one node to several, and either count was visited once."""
    both = [curve.measured[n] for n in (ranks, 2 * ranks) if n in curve.measured and curve.basis(n) == "measured"]
    return [one.point.nodes > 1 for one in both] == [False, True] and 1 in [one.visits for one in both]


def _gain(curve: ScalingCurve, ranks: int) -> Ensemble:
    return np.asarray(curve.speedup(2 * ranks, "measured") / curve.speedup(ranks, "measured"))


def _note(curve: ScalingCurve, known: Sequence[int], gained: Mapping[int, object]) -> str:
    if not known:
        return f"the iteration time on n = {curve.base} is not a positive number"
    if len(known) < 2:
        return "needs two worker counts that were measured or can be predicted"
    return "" if gained else "needs a worker count and its double, measured or predicted"


def _speedups(curve: ScalingCurve, known: Iterable[int]) -> Reals:
    """Return the speedup at each known worker count, measured where available, [1 + REPLICATES, len(known)]."""
    return np.stack([curve.speedup(ranks, curve.basis(ranks)) for ranks in known], axis=-1)


def _cost_efficient(curve: ScalingCurve, known: Sequence[int], efficiency: float) -> Ensemble:
    ideal = np.array(known) / curve.base
    return cost_efficient_ranks(known, _speedups(curve, known) / ideal, efficiency)


def communication_ratio(point: Measured | Predicted) -> Ensemble:
    """Return communication time, hidden or exposed, over compute time."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(point.parts.communication / point.parts.compute)


def _crossing_columns(curve: ScalingCurve, known: Sequence[int]) -> dict[str, float]:
    """Return the crossing, and the last worker count before it."""
    if not known:
        return {**columns("crossing_ranks", unknown_ensemble()), "crossing_after": np.nan}
    found = crossing(known, np.stack([communication_ratio(curve.at(ranks)) for ranks in known], axis=-1))
    below = [ranks for ranks in known if ranks < found[0]]
    return {**columns("crossing_ranks", found), "crossing_after": float(max(below, default=np.nan))}


def doublings(fitted: FittedStudy) -> Callable[[ScalingCurve], Gains]:
    """Cached `gains` of the curves of a study."""
    return cache(gains)


def _stalls(fitted: FittedStudy) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    return tables(
        fitted.training, fitted.asked.threshold, fitted.asked.efficiency, fitted.once(checked),
        fitted.once(doublings), fitted.doubtful, fitted.tidy["runs"].set_index("cell")["duration"].to_dict(),
    )  # fmt: skip


QUESTIONS = (
    Question(STALLING, lambda fitted: fitted.once(_stalls)[0]),
    Question(STALL_PROBABILITIES, lambda fitted: fitted.once(_stalls)[1]),
)
