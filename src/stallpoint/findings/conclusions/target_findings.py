"""Time to a target: what reaches it first on how many workers, why, and where more workers save nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from stallpoint.base.measured import SERIES
from stallpoint.base.statistics import groups
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import at_count, series, verdict_in_short
from stallpoint.findings.listing import in_columns
from stallpoint.models.answers.time_to_accuracy import CONFIGURATION, NOT_DISTINGUISHABLE, SLOWER, TARGET
from stallpoint.text import listed, number

TARGET_CURVE = [*TARGET, "workers_per_node"]
"""Columns of one target at several worker counts."""
FACTORS = ("slower", "more_steps", "longer_steps")


def targets(times: pd.DataFrame, stalling: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Return each reached target, of the tables target_times and target_stalling, for JSON.

    At each worker count the fastest way, of every other preset its fastest one, and what is not distinguishable from
    the fastest: of other presets their fastest way, of its own also other recipes and mini-batches.
    """
    stalls = stalling[stalling["basis"] == "trained"].to_dict("records")
    by_curve = {tuple(row[name] for name in TARGET_CURVE): row for row in stalls}
    for key, rows in groups(times[times["time"].notna()], TARGET_CURVE):
        stall = by_curve[tuple(key)]
        yield {
            **dict(zip(TARGET_CURVE, key, strict=True)),
            "verdict": stall["verdict"],
            "verdict_ranks": int(stall["verdict_ranks"]),
            "places": [_at_ranks(int(ranks), at) for ranks, at in groups(rows, "ranks")],
        }


def _at_ranks(ranks: int, rows: pd.DataFrame) -> dict[str, Any]:
    rows = rows.sort_values("time", kind="stable")
    best, equal = rows.drop_duplicates("sync"), rows[rows["verdict"] == NOT_DISTINGUISHABLE]
    own = equal["sync"] == best["sync"].iloc[0]
    equal = equal[own | equal.index.isin(best.index)]
    configurations = [
        {
            **{name: row[name] for name in ("sync", "recipe", "verdict")},
            "batch": int(row["batch"]),
            **{name: float(row[name]) for name in ("time", *FACTORS)},
        }
        for row in best.to_dict("records")
    ]
    return {
        "ranks": ranks,
        "ways": configurations,
        "alike": [{name: row[name] for name in CONFIGURATION} for row in equal.to_dict("records")],
    }


def lead(target: Mapping[str, Any]) -> str:
    """Return the fastest way of all, if there were several, and whether more workers save time.

    Ways that are not distinguishable from it are named with it: then none is called fastest.
    """
    best = min(target["places"], key=lambda at: float(at["ways"][0]["time"]))
    first, count = best["ways"][0], at_count(target, best["ranks"])
    stalls = "" if len(target["places"]) < 2 else f"; time to it {verdict_in_short(target)}"
    if best["alike"]:
        configurations = listed([first["sync"], *_equal(best)])
        known = f"{first['sync']} in {number(first['time'], 2)} s with {_settings(first)}"
        return (
            f"{_goal(target)} equally soon by {configurations} at {count}, as far as these runs tell ({known}){stalls}"
        )
    soonest = "" if _single_configuration(target) else "soonest "
    return f"{_goal(target)} {soonest}by {_configuration(first)} at {count}{stalls}"


def lines(target: Mapping[str, Any]) -> Iterator[str]:
    """Return the sentence, and one for each worker count: the fastest way, and the factors of the others by more and by
    longer steps."""
    yield lead(target)
    for at in () if _single_configuration(target) else target["places"]:
        first, *others = at["ways"]
        slower = [one for one in others if one["verdict"] == SLOWER]
        parts = [f"{at_count(target, at['ranks'])}: {_configuration(first)}"]
        if at["alike"]:
            parts.append(f"not distinguishable: {', '.join(_equal(at))}")
        parts += [_slower(one, first) for one in slower]
        yield "; ".join(parts)


def _equal(at: Mapping[str, Any]) -> list[str]:
    """Return what is not distinguishable from the fastest: other presets, or other recipes of its own."""
    first = at["ways"][0]
    return [_settings(one) if one["sync"] == first["sync"] else one["sync"] for one in at["alike"]]


def _single_configuration(target: Mapping[str, Any]) -> bool:
    """Return whether a single preset reached it, on a single number of workers, so that nothing is compared."""
    return [len(at["ways"]) for at in target["places"]] == [1]


def _goal(target: Mapping[str, Any]) -> str:
    accuracy = f"{100 * target['target']:.3g} %"
    return f"{target['network']} on {target['hardware']} reaches {accuracy} on {target['storage']}"


def _configuration(configuration: Mapping[str, Any]) -> str:
    return f"{configuration['sync']}, {_settings(configuration)} ({number(configuration['time'], 2)} s)"


def _settings(configuration: Mapping[str, Any]) -> str:
    return f"{configuration['recipe']}, B = {configuration['batch']}"


def _slower(configuration: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """Return its factors, and its recipe where that differs from the first."""
    times = [f"× {number(configuration[name], 2)}" for name in FACTORS]
    other = "" if _settings(configuration) == _settings(first) else f", {_settings(configuration)},"
    return f"{configuration['sync']}{other} {times[0]} (steps {times[1]}, each {times[2]})"


STALLING = "Where doubling the workers saves too little of the time to the target (predicted places included):"


def stalling(conclusions: Conclusions) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table: where time to a target, by steps and iteration times, and throughput stall."""
    throughput = {tuple(curve[name] for name in SERIES): curve for curve in conclusions["curves"]}
    return in_columns(conclusions["accuracy_stalling"], {
        "network": "network", "hardware": "hardware", "curve": series,
        "trained": lambda row: (
            f"{row['recipe']} to {number(row['target'])}, {row['steps_sync']}, {row['steps_storage']}"
        ),
        "time to the target": verdict_in_short,
        "throughput, measured": lambda row: verdict_in_short(throughput[tuple(row[name] for name in SERIES)]),
    })  # fmt: skip
