"""Figures from a paper's published parameters: times of an iteration, limits of the speedup (Keuper & Pfreundt)."""

from __future__ import annotations

from itertools import cycle

import altair as alt
import pandas as pd

from stallpoint.report.charts import Drawing, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import rows
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

TIMES = 3
"""Number of the figure with compute and communication times."""
SPEEDUPS = {
    4: "Fig. 4: free communication",
    11: "Fig. 11: free communication, larger B",
    12: "Fig. 12: non-scaling layers, Amdahl's law",
}
"""Numbers of the figures with speedups, and the titles of their panels."""


def draw_times(tables: Tables) -> alt.FacetChart:
    """Draw seconds of one iteration by nodes: compute for each mini-batch, communication, and their crossing."""
    frame = rows(tables, "paper_figures", "published parameters")
    frame = frame[frame["figure"] == TIMES]
    panel = frame["network"] + " · " + frame["hardware"].str.upper()
    frame = frame.assign(panel=panel, basis="published", at=[number(nodes) for nodes in frame["crossing_ranks"]])
    compute = frame.assign(time="compute, B = " + frame["global_batch"].astype(str), value=frame["compute"])
    traffic = frame.assign(time="communication", value=frame["communication"]).drop_duplicates(["panel", "nodes"])
    times = pd.concat([compute, traffic])
    # Only positive times are drawn: one node does not communicate, and a logarithmic axis has no zero.
    times = times[times["value"] > 0].assign(shown=lambda rows: [f"{number(value)} s" for value in rows["value"]])
    x, y = axes.nodes_x(times), axes.log10_y(times["value"], "time in one iteration [s]")
    tips = {"time": "time", "global_batch": "B", "nodes": "nodes", "shown": "time", "at": "crosses communication at n"}
    scale = theme.colours("paper time", times["time"].unique())
    colour = alt.Color("time:N", scale=scale, legend=alt.Legend(title=None, symbolOpacity=1))
    return shapes.curves(times, x, y, tips, [Line("published", theme.SOLID, points=True)], colour=colour)


def _draw_speedups(tables: Tables) -> alt.FacetChart:
    """Draw a line for each network and mini-batch. Compute units with equal values share a line."""
    frame = rows(tables, "paper_figures", "published parameters")
    frame = frame[frame["figure"].isin(SPEEDUPS)].drop_duplicates(["figure", "network", "global_batch", "nodes"])
    frame = frame.assign(
        panel=frame["figure"].map(SPEEDUPS),
        series=frame["network"] + ", B = " + frame["global_batch"].astype(str),
        value=frame["speedup"],
        shown=[number(value) for value in frame["speedup"]],
        stall=[number(nodes) for nodes in frame["stall_ranks"]],
        basis=frame["network"],
    )
    # By Amdahl's law, the speedup is the same at every mini-batch.
    frame.loc[frame["figure"] == 12, "series"] = frame["network"]
    x, y = axes.nodes_x(frame), axes.ratio_y(frame["nodes"], "speedup over one node")
    tips = {"series": "series", "nodes": "nodes", "shown": "speedup", "stall": "stalls at n"}
    # Networks differ in dashes, so that lines remain visible where they coincide.
    dashes = zip(frame["network"].unique(), cycle([theme.SOLID, theme.DASHED, theme.DOTTED]))
    lines = [Line(network, dash, width=3, legend=False) for network, dash in dashes]
    frame = pd.concat([frame, marks.ideal_rows(frame, "nodes")])
    return shapes.curves(frame, x, y, tips, lines, colour="network", details=["series"])


paper_times = Drawing(draw_times)
paper_speedup = Drawing(_draw_speedups)
