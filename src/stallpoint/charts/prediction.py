"""Predicted against measured iteration time (Shi et al., Fig. 4)."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import NoData, Tables, marks
from stallpoint.charts.frames import ENDS, against_measured, compact, rows


def draw(tables: Tables) -> alt.FacetChart:
    """One point for each combination that was both predicted and measured, a panel for each hardware."""
    frame = rows(tables, "predictions", "train cells")
    frame = frame.rename(columns=lambda name: name.replace("_iteration", ""))
    frame = frame[frame["predicted"].notna() & frame["measured"].notna()]
    if frame.empty:
        raise NoData("no train cells whose layers, all-reduce and storage were all measured")
    frame = against_measured(frame).assign(panel=frame["hardware"])
    for name in ("predicted", "measured"):
        for end in ("low", "high"):
            frame[f"{name}_{end}"] = frame[f"{name}_{end}"].fillna(frame[name])
    x, y, drawn = marks.agreement(frame, " iteration", "s")
    tips = marks.tips(
        network="network", series="series", nodes="nodes", found="measured (90 % interval)",
        shown="predicted (90 % interval)", off="prediction off by",
    )  # fmt: skip
    drawn = compact(drawn, ["panel", "network", "series", "nodes", "basis", *ENDS, "shown", "found", "off"])
    return marks.panels(marks.compared(frame, x, y, tips), drawn)
