"""Scaling limits: where more workers stop paying, where communication exceeds compute, and what is cost-efficient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Any

import numpy as np

from stallpoint.base.curve import Curve
from stallpoint.base.measured import SERIES, Measured
from stallpoint.base.stall import Stall, Verdict
from stallpoint.base.statistics import (
    INTERVAL,
    Ensemble,
    Reals,
    columns,
    unknown_ensemble,
)
from stallpoint.models.answers.causes import LossVerdict, dominant_cause
from stallpoint.models.answers.controls import TrustedCurve, trusted_curves
from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted
from stallpoint.records.tables import STALL_PROBABILITIES, STALLING
from stallpoint.study.workers import placement_at

PLACED_ONCE_WORDS = {
    True: "in one placement each; equal cells say how others differ",
    False: "in one placement each; how others differ is a prior",
}
"""Words for the basis of scatter, by whether equal cells ran in several placements."""


def crossing(ranks: Sequence[int], ratio: Reals) -> Reals:
    """Return the worker count at which `ratio` [..., len(ranks)] first reaches 1; infinite if it never does.

    Between counts the ratio is interpolated as a power of n. If the ratio at the smaller count is 0, as on a single
    rank, it is interpolated linearly in log n. If the first ratio is at least 1, the result is the first count.
    """
    ratio, places = np.asarray(ratio, dtype=np.float64), np.log(np.asarray(ranks, dtype=np.float64))
    reached = ratio >= 1
    after = reached.argmax(-1)
    before = np.maximum(after - 1, 0)
    a, b = (np.take_along_axis(ratio, at[..., None], -1)[..., 0] for at in (before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(a > 0, -np.log(a) / (np.log(b) - np.log(a)), (1 - a) / (b - a))
    # Without compute, the ratio at the later count is infinite; it is then taken to reach 1 at the later count.
    part = np.where(np.isfinite(part) & np.isfinite(b), part, 1.0)
    between = np.exp(places[before] + part * (places[after] - places[before]))
    found = np.where(after > 0, between, float(ranks[0]))
    found = np.where(reached.any(-1), found, np.inf)
    unknown: Reals = np.where(np.isnan(ratio).any(-1), np.nan, found)
    return unknown


def cost_efficient_ranks(ranks: Sequence[int], efficiencies: Reals, least_efficiency: float) -> Reals:
    """Return the largest of `ranks` up to which every efficiency [..., len(ranks)] is at least `least_efficiency`.

    The smallest worker count always qualifies, as its efficiency is 1.
    """
    is_efficient = np.logical_and.accumulate(np.asarray(efficiencies) >= least_efficiency, axis=-1)
    largest_efficient: Reals = np.asarray(ranks, dtype=np.float64)[np.maximum(is_efficient.sum(-1) - 1, 0)]
    return largest_efficient


def tables(
    curves: Iterable[TrustedCurve],
    threshold: float,
    efficiency: float,
    durations: Mapping[Any, float] = MappingProxyType({}),
    machines: Mapping[Any, int] = MappingProxyType({}),
    *,
    placements_shown: bool = False,
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of the stalling table, one for each curve, and those of the stall_probabilities table.

    `durations` are the seconds of all visits to each cell, `machines` the number of machines that a cell ran on.
    `placements_shown` is whether the scatter between placements was estimated from equal cells. The dominant cause is
    that of the count after the stall, where the gain is missing. Workers are cost-efficient while a sample costs at
    most 1/`efficiency` times its worker-seconds at the smallest worker count.
    """
    rows: list[dict[str, object]] = []
    probabilities: list[dict[str, object]] = []
    for curve, doubt, mistrusted in curves:
        known, measured = (replace(one, threshold=threshold) for one in (curve.known, curve.seen))
        verdict = _verdict_columns(curve, measured, durations, withheld=mistrusted)
        placement_words = PLACED_ONCE_WORDS[placements_shown] if measured.is_placed_once else ""
        rows.append(
            {
                **_row(curve, known.stall, efficiency, doubt),
                **verdict,
                "placed": placement_words,
                "one_machine": _one_machine(curve, machines),
            }
        )
        for of, one in (("measured", measured), ("known", known)):
            probabilities += _probabilities(curve, of, one.stall)
    return rows, probabilities


def _one_machine(curve: CurvePoints, machines: Mapping[Any, int]) -> bool:
    """Return whether some cell of a curve ran on fewer machines than nodes."""
    return any(
        machines.get(cell, one.point.nodes) < one.point.nodes for one in curve.points.values() for cell in one.cells
    )


def _curve_labels(curve: CurvePoints) -> dict[str, object]:
    point = curve.origin
    return {name: getattr(point, name) for name in SERIES}


def _probabilities(curve: CurvePoints, of: str, stall: Stall) -> Iterator[dict[str, object]]:
    if len(stall.probabilities) > 1:
        for ranks, probability in stall.probabilities.items():
            is_stall = ranks != stall.largest
            nodes, _ = placement_at(ranks, curve.per_node)
            where = {"nodes": nodes, "ranks": ranks}
            yield {**_curve_labels(curve), **where, "basis": of, "stalls": is_stall, "probability": probability}


def _row(curve: CurvePoints, stall: Stall, efficiency: float, doubt: str) -> dict[str, object]:
    """Return a curve's columns except those of `_verdict_columns`; `stall` is the stall over all known counts."""
    known, unknown = curve.known.counts, unknown_ensemble()
    is_comparable = len(known) > 1
    # Basis and cause of a stall are those of the next larger known count; without a stall, those of the largest count.
    ranks = min((n for n in known if n > stall.ranks), default=stall.largest)
    return {
        **_curve_labels(curve),
        **(stall.columns if is_comparable else columns("stall_ranks", unknown)),
        "reached": stall.reached,
        "basis": curve.basis(ranks) if is_comparable else "measured",
        **_crossing_columns(curve, known),
        **columns("cost_efficient_ranks", _cost_efficient_count(curve, known, efficiency) if known else unknown),
        **columns("best_speedup", np.asarray(_speedups(curve, known).max(-1)) if known else unknown),
        "largest_measured": max(curve.measured, default=0),
        "largest_considered": max(known, default=curve.base),
        "dominant_cause": dominant_cause(curve, ranks) if ranks > curve.base else LossVerdict.NOT_DISTINGUISHABLE,
        "withheld": curve.withheld,
        "note": _note(curve, known) or doubt,
    }


def _verdict_columns(
    curve: CurvePoints, measured: Curve, durations: Mapping[Any, float], *, withheld: bool
) -> dict[str, object]:
    state, ranks = measured.verdict
    best = max(measured.counts, key=lambda n: curve.speedup(n, "measured")[0], default=curve.base)
    speedup = curve.speedup(best, "measured") if measured.counts else unknown_ensemble()
    deciding, after = np.nan, next((n for n in measured.counts if n > ranks), 0)
    if state == Verdict.UNDECIDED and ranks and after and not withheld and not (measured.one_step or measured.is_short):
        spent_seconds = sum(durations.get(cell, np.nan) for n in (ranks, after) for cell in curve.measured[n].cells)
        gain = np.log(measured.rates[after] / measured.rates[ranks])[1:] / np.log2(after / ranks)
        deciding = spent_seconds * (deciding_visits(gain, measured.threshold) - 1)
    return {
        "verdict": Verdict.WITHHELD if withheld else state,
        "verdict_ranks": ranks,
        "deciding_time": deciding,
        **columns("measured_speedup", speedup),
        "measured_speedup_ranks": best,
    }


def deciding_visits(gain: Reals, threshold: float) -> float:
    """Return how many times as many visits would decide whether the gain of a doubling reaches `threshold`.

    `gain` is a logarithm, [REPLICATES]. More visits are assumed to keep its mean, and to divide its standard
    deviation by the root of this factor, until `INTERVAL` of a normal distribution lies on one side of the threshold.
    """
    beyond = gain - np.log1p(threshold)
    return float(max((NormalDist().inv_cdf(INTERVAL) * beyond.std() / beyond.mean()) ** 2, 1.0))


def _note(curve: CurvePoints, known: Sequence[int]) -> str:
    if not known:
        return f"the iteration time on n = {curve.base} is not a positive number"
    return "" if len(known) > 1 else "needs two worker counts that were measured or can be predicted"


def _speedups(curve: CurvePoints, known: Iterable[int]) -> Reals:
    """Return the speedup at each known worker count, measured where available, [1 + REPLICATES, len(known)]."""
    return np.stack([curve.speedup(ranks, curve.basis(ranks)) for ranks in known], axis=-1)


def _cost_efficient_count(curve: CurvePoints, known: Sequence[int], efficiency: float) -> Ensemble:
    ideal_speedups = np.array(known) / curve.base
    return cost_efficient_ranks(known, _speedups(curve, known) / ideal_speedups, efficiency)


def communication_ratio(point: Measured | Predicted) -> Ensemble:
    """Return communication time, hidden or exposed, over compute time."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(point.parts.communication / point.parts.compute)


def _crossing_columns(curve: CurvePoints, known: Sequence[int]) -> dict[str, float]:
    """Return the columns of the count at which communication reaches compute, and of the last count before it."""
    if not known:
        return {**columns("crossing_ranks", unknown_ensemble()), "crossing_after": np.nan}
    crossing_counts = crossing(known, np.stack([communication_ratio(curve.at(ranks)) for ranks in known], axis=-1))
    smaller_counts = [ranks for ranks in known if ranks < crossing_counts[0]]
    return {**columns("crossing_ranks", crossing_counts), "crossing_after": float(max(smaller_counts, default=np.nan))}


def _study_tables(fitted: FittedStudy) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    return tables(
        fitted.once(trusted_curves), fitted.asked.threshold, fitted.asked.efficiency,
        fitted.tidy["runs"].set_index("cell")["duration"].to_dict(),
        fitted.tidy["environments"].groupby("cell")["node"].nunique().to_dict(),
        placements_shown=fitted.placements.is_estimated,
    )  # fmt: skip


QUESTIONS = (
    Question(STALLING, lambda fitted: fitted.once(_study_tables)[0]),
    Question(STALL_PROBABILITIES, lambda fitted: fitted.once(_study_tables)[1]),
)
