"""What other clusters would gain (what if), at a few node counts."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks, theme
from stallpoint.charts.frames import arrange, compact, estimate, leading_first, most, rows, with_interval

BASELINE = "as measured"
SHOWN = 3
"""Node counts shown: the fewest beyond one, the most, and one between them."""
ROW = 34


def draw(tables: Tables) -> alt.FacetChart:
    """For each scenario the gain in throughput over the measured cluster on as many nodes, the best one first."""
    frame = _gains(tables)
    frame = frame.assign(time=with_interval(frame, "iteration", "s"), nodes=frame["nodes"].astype(str))
    columns = ["panel", "scenario", "nodes", "value", "low", "high", "shown", "time", "lead"]
    x = _axis(frame)
    order = frame.groupby("scenario")["value"].max().sort_values(ascending=False, kind="stable").index
    frame = compact(frame, columns)
    colour = marks.colour(frame, "nodes", "nodes")
    y = alt.Y("scenario:N", title=None, sort=list(order), axis=alt.Axis(labelLimit=220, grid=True))
    base = alt.Chart().encode(y=y, yOffset=alt.YOffset("nodes:N", sort=list(colour["scale"]["domain"])), color=colour)
    tips = marks.tips(scenario="scenario", nodes="nodes", shown="gain (90 % interval)", time="iteration")
    shape = alt.Shape("nodes:N", scale=theme.shapes("nodes", colour["scale"]), legend=colour["legend"])
    layers = [
        marks.line_at(1, "x"),
        base.mark_rule(strokeWidth=1.6).encode(x=marks.at(x, "low"), x2="high:Q"),
        base.mark_point(filled=True, size=50, opacity=1).encode(x=x, shape=shape, tooltip=tips),
    ]
    return _tall(marks.panels(layers, frame), rows_of=len(order))


def _tall(chart: alt.FacetChart, rows_of: int) -> alt.FacetChart:
    chart.spec.height = max(120, ROW * rows_of)
    return chart


def _gains(tables: Tables) -> pd.DataFrame:
    """Gains of all scenarios but the measured cluster itself, at the node counts shown."""
    table = rows(tables, "what_if", "what_if in the study, or train cells with scaling strong or weak")
    frame = estimate(leading_first(arrange(table, single=True), tables), "gain", "times")
    frame = frame[frame["scenario"] != BASELINE]
    if frame.empty:
        raise NoData("no scenario of what_if could be predicted from the cells that were measured")
    return frame[frame["nodes"].isin(_some([n for n in sorted(frame["nodes"].unique()) if n > 1] or [1]))]


def _some(nodes: list[int]) -> list[int]:
    return list(dict.fromkeys([nodes[0], nodes[len(nodes) // 2], nodes[-1]])) if len(nodes) >= SHOWN else nodes


def _axis(frame: pd.DataFrame) -> alt.X:
    """A log2 axis of the gain that holds every interval."""
    domain = axes.log_domain([*frame["value"], *frame["low"], *frame["high"], 1])
    axis = alt.Axis(values=axes.log2_ticks(domain), labelExpr="'×' + format(datum.value, '~g')")
    title = "gain on as many nodes (predicted)"
    return alt.X("value:Q", title=title, scale=alt.Scale(type="log", base=2, domain=domain, nice=False), axis=axis)


def finding(tables: Tables) -> str:
    """The scenario that gains most on the most nodes shown of the fastest curves."""
    frame = _gains(tables).query("lead")
    sure = frame[(frame["nodes"] == frame["nodes"].max()) & (frame["low"] > 1)]
    if sure.empty:
        return "No scenario gains for sure: every interval holds ×1"
    best = most(sure, "value")
    gains = f"{best['scenario']} gains most, {best['value']:.1f} times"
    return f"{best['network']}: {gains} at {best['nodes']} nodes (predicted)"
