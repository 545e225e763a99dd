"""Speedup from published parameters: free communication, larger batches, Amdahl's law (Keuper & Pfreundt)."""

from __future__ import annotations

from itertools import cycle

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import rows
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

PANELS = {
    4: "Fig. 4: free communication",
    11: "Fig. 11: free communication, larger B",
    12: "Fig. 12: non-scaling layers, Amdahl's law",
}


def draw(tables: Tables) -> alt.FacetChart:
    """Draw one line for each network and mini-batch; compute units that agree share a line."""
    frame = rows(tables, "paper_figures", "published parameters")
    frame = frame[frame["figure"].isin(PANELS)].drop_duplicates(["figure", "network", "global_batch", "nodes"])
    frame = frame.assign(
        panel=frame["figure"].map(PANELS),
        series=frame["network"] + ", B = " + frame["global_batch"].astype(str),
        value=frame["speedup"],
        shown=[number(value) for value in frame["speedup"]],
        stall=[number(nodes) for nodes in frame["stall_ranks"]],
        basis=frame["network"],
    )
    # Amdahl's law does not depend on the mini-batch.
    frame.loc[frame["figure"] == 12, "series"] = frame["network"]
    x, y = axes.nodes_x(frame), axes.ratio_y(frame["nodes"], "speedup over one node")
    tips = {"series": "series", "nodes": "nodes", "shown": "speedup", "stall": "stalls at n"}
    # Dashed, so that a network whose line lies below another's is seen.
    dashes = zip(frame["network"].unique(), cycle([theme.SOLID, theme.DASHED, theme.DOTTED]))
    lines = [Line(network, dash, width=3, legend=False) for network, dash in dashes]
    frame = pd.concat([frame, marks.ideal_rows(frame, "nodes")])
    return shapes.curves(frame, x, y, tips, lines, colour="network", detail=["series"])
