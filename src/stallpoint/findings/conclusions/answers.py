"""The answer for each network on each hardware entry: the fastest of its curves, its verdict and uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from stallpoint.base.statistics import INTERVAL, NORMAL_INTERVAL, as_of_one_kind
from stallpoint.models.answers.remedies import HELPS, UNDECIDED

Curve: TypeAlias = Mapping[str, Any]
"""An entry of ``curves`` in the conclusions."""
Answer: TypeAlias = dict[str, Any]
Conclusions: TypeAlias = dict[str, Any]
Estimate: TypeAlias = dict[str, float | None]

COMPETITION = ("network", "hardware", "scaling", "storage")
"""Columns equal in competing curves: the fastest is the answer, for its B (``of_batch``) where another B's verdict
differs."""


def answers(curves: Sequence[Curve], errors: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Return one answer for each competition; `errors` are the entries ``dag_errors`` of the conclusions."""
    off = {(error["network"], error["hardware"]): error for error in errors if error["sync"] == "all"}
    found = [_answer(rivals, off) for rivals in competing(curves)]
    answering = Counter(map(_competition, found))
    return [{**one, "of_batch": one["batch"] if answering[_competition(one)] > 1 else 0} for one in found]


def _competition(curve: Curve) -> tuple[Any, ...]:
    return tuple(curve[name] for name in COMPETITION)


def competing(curves: Sequence[Curve]) -> list[list[Curve]]:
    """Return the curves of each competition; under strong scaling by B, where the fastest of another B has another
    verdict."""
    of_batch: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        batch = curve["batch"] if curve["scaling"] == "strong" else None
        of_batch.setdefault((*_competition(curve), batch), []).append(curve)
    places: dict[tuple[Any, ...], list[Curve]] = {}
    for (*competition, batch), rivals in of_batch.items():
        best = leading(rivals)
        verdict = (best["verdict"], best["verdict_ranks"]) if batch is not None else ()
        places.setdefault((*competition, *verdict), []).extend(rivals)
    return list(places.values())


def leading(curves: Sequence[Curve]) -> Curve:
    """Return the curve with the largest throughput at any measured number of workers."""
    return max(curves, key=_fastest)


def _fastest(curve: Curve, end: str = "value") -> float:
    """Return the largest throughput at any measured number of workers, or the `end` (low or high) of its interval
    there."""
    best = _fastest_point(curve)
    return float(best["samples_per_second"][end] or 0.0) if best else 0.0


def _fastest_point(curve: Curve) -> Mapping[str, Any] | None:
    """Return the measured number of workers with the largest throughput."""
    points: list[Mapping[str, Any]] = [at for at in curve["measured"] if at["samples_per_second"]]
    return max(points, key=lambda at: float(at["samples_per_second"]["value"] or 0.0), default=None)


def _may_be_as_fast(best: Curve, curves: Sequence[Curve]) -> list[Curve]:
    """Return the other curves whose throughput is not surely below that of the best."""
    least = _fastest(best, "low")
    return [curve for curve in curves if curve is not best and _fastest(curve, "high") >= least]


def as_chosen(best: Curve, curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return the measured points of the fastest of `curves`, corrected for its choice.

    The fastest of many curves is so by chance, too: its rate, time and speedup are those expected of it among those
    that may be as fast (`as_of_one_kind`).
    """
    fastest = {id(curve): _fastest_point(curve) for curve in (best, *_may_be_as_fast(best, curves))}
    rates = [point["samples_per_second"] for point in fastest.values() if point]
    if len(rates) < 2 or any(not (rate["low"] and rate["high"]) for rate in rates):
        return [dict(at) for at in best["measured"]]
    values, lows, highs = (np.log([rate[end] for rate in rates]) for end in ("value", "low", "high"))
    factor = float(np.exp(as_of_one_kind(values, (highs - lows) / NORMAL_INTERVAL)[0] - values[0]))
    chosen = fastest[id(best)]
    base = best["measured"][0]
    of_base = factor if chosen is base else 1.0
    return [_times(at, factor if at is chosen else 1.0, of_base) for at in best["measured"]]


def _times(at: Mapping[str, Any], rate: float, of_base: float) -> dict[str, Any]:
    """Return a measured point at `rate` times its rate, where the fewest workers have `of_base` times theirs."""
    factors = {"samples_per_second": rate, "seconds": 1 / rate, "speedup": rate / of_base, "efficiency": rate / of_base}
    changed = {
        name: {end: None if value is None else value * factor for end, value in at[name].items()}
        for name, factor in factors.items()
        if at[name]
    }
    return {**at, **changed}


def _answer(rivals: Sequence[Curve], off: Mapping[tuple[str, str], Any]) -> Answer:
    best = leading(rivals)
    measured = as_chosen(best, rivals)
    at = _decisive(best, measured)
    return {
        **{name: best[name] for name in (*COMPETITION, "sync", "prefetch", "batch", "workers_per_node")},
        "curves": len(rivals),
        "as_fast": len(_may_be_as_fast(best, rivals)),
        "differ": [
            name
            for name in ("sync", "prefetch", "batch", "workers_per_node")
            if len({curve[name] for curve in rivals}) > 1
        ],
        "state": best["verdict"],
        "ranks": best["verdict_ranks"],
        "why_withheld": best["note"] if best["verdict"] == "withheld" or not best["verdict_ranks"] else "",
        "base": measured[0] if measured else None,
        "at": at,
        "likely": best["measured_stall"],
        "deciding_ranks": best["deciding_ranks"],
        "deciding_time": best["deciding_time"],
        "cause": _cause(best, at["ranks"]) if at else None,
        "beyond": _beyond(best),
        "helps": _helps(best),
        "model_error": off.get((best["network"], best["hardware"])),
    }


def _decisive(curve: Curve, measured: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the `measured` point of the verdict: where it scales to or stalls, or the double in question."""
    larger = {at["ranks"]: at for at in measured[1:]}
    ranks = curve["verdict_ranks"]
    for wanted in (2 * ranks, ranks) if curve["verdict"] == "undecided" else (ranks, 2 * ranks):
        if wanted in larger:
            return larger[wanted]
    return larger[max(larger)] if larger else None


def _cause(curve: Curve, ranks: int) -> dict[str, Any] | None:
    """Return the largest loss against ideal scaling at a measured count: where it stalls at the double, if measured."""
    measured = {at["ranks"]: at for at in curve["causes"] if at["basis"] == "measured"}
    doubled = 2 * ranks if curve["verdict"] == "stalls" else ranks
    at = measured.get(doubled, measured.get(ranks))
    if at is None:
        return None
    return {"ranks": at["ranks"], "verdict": at["verdict"], "leading": at["leading"]}


def _beyond(curve: Curve) -> dict[str, Any]:
    """Return what is `predicted` of unmeasured worker counts, or its probability."""
    largest = curve["largest_measured"]
    found = {"from": largest, "to": curve["largest_considered"], "stall_ranks": None, "probability": None, "why": ""}
    if curve["withheld"]:
        return found | {"state": "withheld", "why": curve["withheld"]}
    state, probability = predicted(curve)
    stalls = curve["stall_ranks"] if state == "stalls" else None
    return found | {"state": state, "stall_ranks": stalls, "probability": probability}


def predicted(curve: Curve) -> tuple[str, float | None]:
    """Return ``gains``, ``stalls`` or ``undecided`` beyond the measured counts, and the probability that it gains
    throughout.

    ``nothing``, where nothing beyond was predicted or it stalls before.
    """
    beyond = curve["largest_considered"] > curve["largest_measured"]
    if not beyond or not curve["known_stall"] or curve["verdict"] in ("stalls", "withheld"):
        return "nothing", None
    probability = no_stall(curve)
    if probability >= INTERVAL:
        return "gains", probability
    if 1 - probability >= INTERVAL and curve["reached"] and curve["basis"] == "predicted":
        return "stalls", probability
    return "undecided", probability


def no_stall(curve: Curve) -> float:
    """Return the probability that it does not stall up to the largest known number of workers."""
    return sum(float(entry["probability"]) for entry in curve["known_stall"] if not entry["stalls"])


def _helps(curve: Curve) -> list[Mapping[str, Any]]:
    """Return remedies that help or may, the first to try first: of those that change the same thing the first."""
    first_of_kind: dict[str, Mapping[str, Any]] = {}
    for entry in curve["remedies"]:
        if entry["verdict"] in (HELPS, UNDECIDED):
            first_of_kind.setdefault(entry["changes"], entry)
    return list(first_of_kind.values())
