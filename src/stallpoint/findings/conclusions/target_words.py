"""Time to a target in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import at_count, series, verdict_in_short
from stallpoint.findings.conclusions.target_findings import FACTORS
from stallpoint.models.answers.time_to_accuracy import SLOWER
from stallpoint.models.base.measured import SERIES
from stallpoint.text import listed, number


def lead(target: Mapping[str, Any]) -> str:
    """What is fastest of all, if there was more than one way, and whether more workers save time.

    What cannot be told from the fastest is named beside it: then none of them is the soonest.
    """
    best = min(target["places"], key=lambda place: float(place["ways"][0]["time"]))
    first, count = best["ways"][0], at_count(target, best["ranks"])
    stalls = "" if len(target["places"]) < 2 else f"; time to it {verdict_in_short(target)}"
    if best["alike"]:
        ways = listed([first["sync"], *_alike(best)])
        known = f"{first['sync']} in {number(first['time'], 2)} s with {_settings(first)}"
        return f"{_goal(target)} equally soon by {ways} at {count}, as far as these runs tell ({known}){stalls}"
    soonest = "" if _one_way(target) else "soonest "
    return f"{_goal(target)} {soonest}by {_way(first)} at {count}{stalls}"


def lines(target: Mapping[str, Any]) -> Iterator[str]:
    """The sentence, and one for each worker count: the fastest way, and what others owe to more and to longer steps."""
    yield lead(target)
    for place in () if _one_way(target) else target["places"]:
        first, *others = place["ways"]
        slower = [one for one in others if one["verdict"] == SLOWER]
        told = [f"{at_count(target, place['ranks'])}: {_way(first)}"]
        if place["alike"]:
            told.append(f"not distinguishable: {', '.join(_alike(place))}")
        told += [_slower(one, first) for one in slower]
        yield "; ".join(told)


def _alike(place: Mapping[str, Any]) -> list[str]:
    """What is not distinguishable from the fastest: other presets, or what else it was trained with itself."""
    first = place["ways"][0]
    return [_settings(one) if one["sync"] == first["sync"] else one["sync"] for one in place["alike"]]


def _one_way(target: Mapping[str, Any]) -> bool:
    """Whether a single preset reached it, on a single number of workers: there is nothing to compare."""
    return [len(place["ways"]) for place in target["places"]] == [1]


def _goal(target: Mapping[str, Any]) -> str:
    accuracy = f"{100 * target['target']:.3g} %"
    return f"{target['network']} on {target['hardware']} reaches {accuracy} on {target['storage']}"


def _way(way: Mapping[str, Any]) -> str:
    return f"{way['sync']}, {_settings(way)} ({number(way['time'], 2)} s)"


def _settings(way: Mapping[str, Any]) -> str:
    return f"{way['recipe']}, B = {way['batch']}"


def _slower(way: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """Its factors; and what it was trained with, where that differs from the first."""
    times = [f"× {number(way[name], 2)}" for name in FACTORS]
    other = "" if _settings(way) == _settings(first) else f", {_settings(way)},"
    return f"{way['sync']}{other} {times[0]} (steps {times[1]}, each {times[2]})"


STALLING = "Where doubling the workers saves too little of the time to the target (predicted places included):"
STALLING_HEAD = ["network", "hardware", "curve", "trained", "time to the target", "throughput, measured"]


def stalling_rows(conclusions: Conclusions) -> list[list[str]]:
    """Where time to a target stalls on each curve, from steps and iteration times, beside where throughput does."""
    throughput = {tuple(curve[name] for name in SERIES): curve for curve in conclusions["curves"]}
    return [
        [
            row["network"], row["hardware"], series(row),
            f"{row['recipe']} to {number(row['target'])}, {row['steps_sync']}, {row['steps_storage']}",
            verdict_in_short(row), verdict_in_short(throughput[tuple(row[name] for name in SERIES)]),
        ]
        for row in conclusions["accuracy_stalling"]
    ]  # fmt: skip
