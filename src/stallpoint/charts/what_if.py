"""What other clusters would gain (what if), over the measured one on as many nodes."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks, theme
from stallpoint.charts.frames import arrange, communicating, compact, estimate, rows, with_interval

BASELINE = "as measured"


def draw(tables: Tables) -> alt.FacetChart:
    """A point with its interval for each scenario, at the fewest, middle and most nodes of the measured cluster."""
    table = rows(tables, "what_if", "what_if in the study, or train cells with scaling strong or weak")
    frame = estimate(arrange(communicating(table), single=True), "gain")
    frame = frame.assign(time=with_interval(frame, "iteration", "s"), times=with_interval(frame, "speedup"))
    known = frame[frame["scenario"] == BASELINE].groupby("panel")["nodes"].agg(_three)
    frame = frame[[nodes in known.get(panel, ()) for nodes, panel in zip(frame["nodes"], frame["panel"], strict=True)]]
    frame = frame[frame["scenario"] != BASELINE].assign(basis="predicted")
    if frame.empty:
        raise NoData("no scenario of what_if could be predicted from the cells that were measured")
    order = list(frame["scenario"].unique())
    frame, y, height = marks.named_rows(frame, "scenario", order)
    columns = ["panel", "scenario", "nodes", "basis", "value", "low", "high", "shown", "time", "times", "row"]
    colour = alt.Color("scenario:N", scale=theme.colours("scenario", order), legend=None)
    base = alt.Chart().encode(
        y=y,
        tooltip=marks.tips(
            scenario="scenario", nodes="nodes", shown="gain (90 % interval)", time="iteration",
            times="speedup over the measured cluster",
        ),
    )  # fmt: skip
    domain = axes.log_domain([1, *axes.reach(frame)])
    scale, axis = (
        alt.Scale(type="log", base=2, domain=domain, nice=False),
        alt.Axis(values=axes.log2_ticks(domain), format="~g"),
    )
    x = alt.X("value:Q", title="throughput over that of the measured cluster", scale=scale, axis=axis)
    layers = marks.interval_rows(base, x, colour, neutral=1)
    facet: alt.FacetChart = marks.panels(layers, compact(axes.clipped(frame, x), columns), height=height).resolve_scale(
        y="independent"
    )
    return facet


def _three(nodes: pd.Series[int]) -> tuple[int, ...]:
    """The fewest, middle and most node counts beyond one."""
    several = sorted(set(nodes[nodes > 1]))
    return tuple(sorted({several[0], several[len(several) // 2], several[-1]})) if several else ()
