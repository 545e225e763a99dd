"""Time to a target in numbers: what reaches it first on how many workers, why, and where more save nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from stallpoint.models.answers.time_to_accuracy import ALIKE, TARGET, WAY
from stallpoint.models.base.statistics import groups

CURVE = [*TARGET, "workers_per_node"]
"""One target at several worker counts."""
FACTORS = ("slower", "more_steps", "longer_steps")


def targets(times: pd.DataFrame, stalling: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Of the tables target_times and target_stalling, for JSON: each target that was reached.

    At each worker count the fastest way, of every other preset its fastest one, and what is not distinguishable from
    the fastest: of other presets their fastest way, of its own also other recipes and mini-batches.
    """
    stalls = stalling[stalling["basis"] == "trained"].to_dict("records")
    by_curve = {tuple(row[name] for name in CURVE): row for row in stalls}
    for key, rows in groups(times[times["time"].notna()], CURVE):
        stall = by_curve[tuple(key)]
        yield {
            **dict(zip(CURVE, key, strict=True)),
            "verdict": stall["verdict"],
            "verdict_ranks": int(stall["verdict_ranks"]),
            "places": [_place(int(ranks), at) for ranks, at in groups(rows, "ranks")],
        }


def _place(ranks: int, rows: pd.DataFrame) -> dict[str, Any]:
    rows = rows.sort_values("time", kind="stable")
    best, alike = rows.drop_duplicates("sync"), rows[rows["verdict"] == ALIKE]
    own = alike["sync"] == best["sync"].iloc[0]
    alike = alike[own | alike.index.isin(best.index)]
    ways = [
        {
            **{name: row[name] for name in ("sync", "recipe", "verdict")},
            "batch": int(row["batch"]),
            **{name: float(row[name]) for name in ("time", *FACTORS)},
        }
        for row in best.to_dict("records")
    ]
    return {
        "ranks": ranks,
        "ways": ways,
        "alike": [{name: row[name] for name in WAY} for row in alike.to_dict("records")],
    }
