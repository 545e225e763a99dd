"""What costs the time at each node count."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import Tables, marks
from stallpoint.charts.frames import arrange, communicating, compact, estimate, rows

SHOWN = 0.02
"""Causes that take less of every iteration of their panel are left out."""


def draw(tables: Tables) -> alt.FacetChart:
    """A point with its interval for each cause and node count: filled where measured, hollow where predicted."""
    table = rows(tables, "causes", "train cells with scaling strong or weak on two nodes or more")
    frame = estimate(arrange(communicating(table), single=True), "lost", "s")
    most = frame.assign(size=frame["share"].abs()).groupby(["panel", "cause"])["size"].transform("max")
    frame = frame[most >= SHOWN]
    frame = frame.assign(part=[f"{share:.0%}" for share in frame["share"]])
    colour = marks.colour(frame, "cause")
    colour["legend"] = None
    frame, y, height = marks.named_rows(frame, "cause", colour["scale"]["domain"])
    columns = ["panel", "nodes", "cause", "basis", "value", "low", "high", "shown", "part", "verdict", "row"]
    base = alt.Chart().encode(
        y=y,
        tooltip=marks.tips(
            cause="cause", nodes="nodes", basis="basis", shown="lost (90 % interval)", part="of the iteration",
            verdict="verdict",
        ),
    )  # fmt: skip
    x = alt.X("value:Q", title="time lost in an iteration [s]")
    layers = marks.interval_rows(base, x, colour, neutral=0)
    facet = marks.panels(layers, compact(frame, columns), height=height)
    chart: alt.FacetChart = facet.resolve_scale(x="independent", y="independent")
    return chart
