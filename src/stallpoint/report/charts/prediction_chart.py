"""Predicted against measured iteration time (Shi et al., Fig. 4)."""

from __future__ import annotations

import altair as alt

from stallpoint.report.charts import NoData, Tables, axes, shapes
from stallpoint.report.charts.labels import against_measured, largest_row, placement_in_words, rows

NAMES = {"measured": "measured", "held_out": "predicted"}
"""Compared iteration times of the table, and their titles."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw one point for each combination that was both predicted and measured, a panel for each hardware."""
    frame = rows(tables, "predictions", "train cells")
    counted = axes.workers(frame)
    renamed = {f"{of}_iteration{end}": f"{to}{end}" for of, to in NAMES.items() for end in ("", "_low", "_high")}
    frame = frame.drop(columns=list(renamed.values()), errors="ignore").rename(columns=renamed)
    frame = frame[frame["predicted"].notna() & frame["measured"].notna()]
    if frame.empty:
        raise NoData("no train cells whose layers, all-reduce and storage were all measured")
    frame = against_measured(frame).assign(panel=frame["hardware"])
    for name in ("predicted", "measured"):
        for end in ("low", "high"):
            frame[f"{name}_{end}"] = frame[f"{name}_{end}"].fillna(frame[name])
    tips = {
        "network": "network", "series": "series", "ranks": counted, "found": "measured (90 % interval)",
        "shown": "predicted (90 % interval)", "off": "prediction off by",
    }  # fmt: skip
    return shapes.agreement(frame, " iteration", "s", tips, colour="network")


def finding(tables: Tables) -> str:
    """Return the median error of the model, and its worst point."""
    errors = rows(tables, "predictions", "train cells").dropna(subset="error")
    if errors.empty:
        return ""
    worst = largest_row(errors.assign(off=errors["error"].abs()), "off")
    return (
        f"Predictions are {100 * errors['error'].abs().median():.0f} % off in the median, most for {worst['network']} "
        f"({worst['sync']}) at {placement_in_words(worst)}: {100 * worst['error']:+.0f} %"
    )
