"""Speedup from published parameters: free communication, larger batches, Amdahl's law (Keuper & Pfreundt)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, axes, marks, theme
from stallpoint.report.charts.labels import compact, rows
from stallpoint.text import number

PANELS = {
    4: "Fig. 4: free communication",
    11: "Fig. 11: free communication, larger B",
    12: "Fig. 12: non-scaling layers, Amdahl's law",
}


def draw(tables: Tables) -> alt.FacetChart:
    """One line for each network and mini-batch; where compute units agree, as they do here, one stands for all."""
    frame = rows(tables, "paper_figures", "published parameters")
    frame = frame[frame["figure"].isin(PANELS)].drop_duplicates(["figure", "network", "global_batch", "nodes"])
    frame = frame.assign(
        panel=frame["figure"].map(PANELS),
        series=frame["network"] + ", B = " + frame["global_batch"].astype(str),
        value=frame["speedup"],
        shown=[number(value) for value in frame["speedup"]],
        stall=[number(nodes) for nodes in frame["stall_ranks"]],
        basis="published",
    )
    # Amdahl's law knows no mini-batch.
    frame.loc[frame["figure"] == 12, "series"] = frame["network"]
    x, y = axes.nodes_x(frame), axes.ratio_y(frame["nodes"], "speedup over one node")
    columns = ["panel", "series", "network", "nodes", "value", "shown", "stall", "basis", "start"]
    drawn = compact(pd.concat([frame, marks.ideal_rows(frame, "nodes")]), columns)
    tips = marks.tips(series="series", nodes="nodes", shown="speedup", stall="stalls at n")
    # Dashed, so that a network whose line lies below another's is seen.
    dash = alt.StrokeDash("network:N", scale=alt.Scale(range=[theme.SOLID, theme.DASHED, theme.DOTTED]), legend=None)
    line = marks.only("published").encode(
        x=x, y=y, color=marks.colour(frame, "network"), strokeDash=dash, detail="series:N", tooltip=tips
    )
    return marks.panels([marks.ideal(x, y), line.mark_line(strokeWidth=3)], drawn)
