"""Compute against communication time from published parameters (Keuper & Pfreundt, Fig. 3)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, axes, shapes, theme
from stallpoint.report.charts.labels import rows
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

FIGURE = 3


def draw(tables: Tables) -> alt.FacetChart:
    """Draw seconds of one iteration by nodes: compute for each mini-batch, communication, and their crossing."""
    frame = rows(tables, "paper_figures", "published parameters")
    frame = frame[frame["figure"] == FIGURE]
    panel = frame["network"] + " · " + frame["hardware"].str.upper()
    frame = frame.assign(panel=panel, basis="published", at=[number(nodes) for nodes in frame["crossing_ranks"]])
    compute = frame.assign(time="compute, B = " + frame["global_batch"].astype(str), value=frame["compute"])
    traffic = frame.assign(time="communication", value=frame["communication"]).drop_duplicates(["panel", "nodes"])
    times = pd.concat([compute, traffic])
    # One node does not communicate; a logarithmic axis has no zero.
    times = times[times["value"] > 0].assign(shown=lambda rows: [f"{number(value)} s" for value in rows["value"]])
    x, y = axes.nodes_x(times), axes.log10_y(times["value"], "time in one iteration [s]")
    tips = {"time": "time", "global_batch": "B", "nodes": "nodes", "shown": "time", "at": "crosses communication at n"}
    scale = theme.colours("paper time", times["time"].unique())
    colour = alt.Color("time:N", scale=scale, legend=alt.Legend(title=None, symbolOpacity=1))
    return shapes.curves(times, x, y, tips, [Line("published", theme.SOLID, points=True)], colour=colour)
