"""The answer for each network on each hardware entry: of its curves the fastest, what it says, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from stallpoint.models.answers.remedies import HELPS, UNDECIDED

Curve: TypeAlias = Mapping[str, Any]
"""An entry of ``curves`` in the conclusions."""
Answer: TypeAlias = dict[str, Any]

PLACE = ("network", "hardware", "scaling", "storage")
"""Curves alike in these compete; the fastest of them answers."""


def answers(curves: Sequence[Curve], errors: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """One answer for each place; `errors` are the entries ``dag_errors`` of the conclusions."""
    places: dict[tuple[str, ...], list[Curve]] = {}
    for curve in curves:
        places.setdefault(tuple(curve[name] for name in PLACE), []).append(curve)
    off = {(error["network"], error["hardware"]): error for error in errors if error["sync"] == "all"}
    return [_answer(alike, off) for alike in places.values()]


def leading(curves: Sequence[Curve]) -> Curve:
    """The curve with the largest throughput at any number of workers that was measured."""
    return max(curves, key=_fastest)


def _fastest(curve: Curve, end: str = "value") -> float:
    """The largest throughput at any measured number of workers, or the `end` (low or high) of its interval there."""
    rates = [at["samples_per_second"] for at in curve["measured"] if at["samples_per_second"]]
    best = max(rates, key=lambda rate: rate["value"] or 0.0, default=None)
    return float(best[end] or 0.0) if best else 0.0


def may_be_as_fast(best: Curve, curves: Sequence[Curve]) -> int:
    """Of the other curves those whose throughput is not surely below that of the best."""
    least = _fastest(best, "low")
    return sum(_fastest(curve, "high") >= least for curve in curves if curve is not best)


def _answer(alike: Sequence[Curve], off: Mapping[tuple[str, str], Any]) -> Answer:
    best = leading(alike)
    at = _decisive(best)
    return {
        **{name: best[name] for name in (*PLACE, "sync", "prefetch", "batch", "workers_per_node")},
        "curves": len(alike),
        "as_fast": may_be_as_fast(best, alike),
        "differ": [
            name
            for name in ("sync", "prefetch", "batch", "workers_per_node")
            if len({curve[name] for curve in alike}) > 1
        ],
        "state": best["verdict"],
        "ranks": best["verdict_ranks"],
        "why_withheld": best["note"] if best["verdict"] == "withheld" or not best["verdict_ranks"] else "",
        "base": best["measured"][0] if best["measured"] else None,
        "at": at,
        "likely": best["measured_stall"],
        "deciding": best["deciding_ranks"],
        "cause": _cause(best, at["ranks"]) if at else None,
        "beyond": _beyond(best),
        "helps": _helps(best),
        "model_error": off[place]["median_error"] if (place := (best["network"], best["hardware"])) in off else None,
    }


def _decisive(curve: Curve) -> Mapping[str, Any] | None:
    """The measured point that shows the verdict: where it scales to or stalls, or the double in question."""
    larger = {at["ranks"]: at for at in curve["measured"][1:]}
    ranks = curve["verdict_ranks"]
    for wanted in (2 * ranks, ranks) if curve["verdict"] == "undecided" else (ranks, 2 * ranks):
        if wanted in larger:
            found: Mapping[str, Any] = larger[wanted]
            return found
    return larger[max(larger)] if larger else None


def _cause(curve: Curve, ranks: int) -> dict[str, Any] | None:
    """What costs most against ideal scaling at a measured count: where it stalls at the double, if measured."""
    measured = {at["ranks"]: at for at in curve["causes"] if at["basis"] == "measured"}
    doubled = 2 * ranks if curve["verdict"] == "stalls" else ranks
    at = measured.get(doubled, measured.get(ranks))
    if at is None:
        return None
    return {"ranks": at["ranks"], "verdict": at["verdict"], "leading": at["leading"]}


def _beyond(curve: Curve) -> dict[str, Any]:
    """What is said of worker counts nobody measured."""
    largest = curve["largest_measured"]
    found = {"from": largest, "to": curve["largest_considered"], "stall_ranks": None, "why": ""}
    if curve["withheld"]:
        return found | {"state": "withheld", "why": curve["withheld"]}
    if curve["largest_considered"] <= largest or curve["verdict"] in ("stalls", "withheld"):
        return found | {"state": "nothing"}
    stalls = curve["stall_ranks"] if curve["reached"] and curve["basis"] == "predicted" else None
    return found | {"state": "predicted", "stall_ranks": stalls}


def _helps(curve: Curve) -> list[Mapping[str, Any]]:
    """Remedies that help or may, the first to try first: of those that change the same thing the first."""
    told: dict[str, Mapping[str, Any]] = {}
    for entry in curve["remedies"]:
        if entry["verdict"] in (HELPS, UNDECIDED):
            told.setdefault(entry["changes"], entry)
    return list(told.values())
