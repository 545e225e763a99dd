"""Speedup against nodes of other clusters (what if), beside that of the measured one."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import NoData, Tables, axes, marks, theme
from stallpoint.charts.frames import arrange, compact, estimate, rows, with_interval

BASELINE = "as measured"


def draw(tables: Tables) -> alt.FacetChart:
    """One line for each scenario, a triangle where it stalls; the measured cluster's is the thick grey one."""
    table = rows(tables, "what_if", "what_if in the study, or train cells with scaling strong or weak")
    frame = estimate(arrange(table, single=True), "speedup")
    if frame.empty:
        raise NoData("no scenario of what_if could be predicted from the cells that were measured")
    frame = frame.assign(
        stalls=frame["reached"] & (frame["stall_nodes"] == frame["nodes"]),
        time=with_interval(frame, "iteration", "s"),
        gained=with_interval(frame, "gain"),
    )
    columns = ["panel", "scenario", "nodes", "value", "shown", "time", "gained", "stalls"]
    order = [BASELINE, *(name for name in frame["scenario"].unique() if name != BASELINE)]
    frame = compact(frame.sort_values("scenario", key=lambda names: names.map(order.index), kind="stable"), columns)
    x, y = axes.nodes_x(frame), axes.ratio_y(frame["value"], "speedup over the measured cluster")
    colour = alt.Color(
        "scenario:N",
        scale=theme.colours("scenario", order),
        legend=alt.Legend(title=None, columns=3, symbolOpacity=1),
    )
    tips = marks.tips(
        scenario="scenario", nodes="nodes", shown="speedup (90 % interval)", time="iteration",
        gained="over as many nodes as measured",
    )  # fmt: skip
    line = alt.Chart().encode(x=x, y=y, color=colour)
    is_baseline = f"datum.scenario == '{BASELINE}'"
    layers = [
        line.transform_filter(is_baseline).mark_line(strokeWidth=5, opacity=0.55),
        line.transform_filter(f"!({is_baseline})").mark_line(strokeDash=theme.DASHED),
        marks.points(line.transform_filter(f"!({is_baseline})"), y),
        marks.hover(line, y).encode(tooltip=tips),
        line.transform_filter("datum.stalls")
        .encode(tooltip=tips)
        .mark_point(shape="triangle-up", filled=True, size=90, opacity=1),
    ]
    return marks.panels(layers, frame)
