"""Where the time of an iteration goes, by node count."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import Tables, marks
from stallpoint.charts.frames import arrange, compact, rows, with_interval


def draw(tables: Tables) -> alt.FacetChart:
    """Stacked shares of the iteration, one bar for each node count; parts that never take time are left out."""
    frame = arrange(rows(tables, "critical_path", "train cells with scaling strong or weak"), single=True)
    frame = frame[frame.groupby("part")["share"].transform("max") > 0]
    frame = frame.assign(percent=frame["share"] * 100, shown=with_interval(frame, "seconds", "s"))
    frame = compact(frame, ["panel", "nodes", "part", "basis", "percent", "shown"])
    colour = marks.colour(frame, "part")
    frame["order"] = frame["part"].map({name: i for i, name in enumerate(colour["scale"]["domain"])})
    bars = alt.Chart().encode(
        x=marks.bars_x("nodes", "nodes"),
        y=alt.Y("percent:Q", title="time [% of iteration]", scale=alt.Scale(domain=[0, 100], nice=False, clamp=True)),
        order="order:Q",
        tooltip=marks.tips(part="part", nodes="nodes", basis="basis", shown="time (90 % interval)"),
    )
    width = marks.bar_width(frame, "nodes")
    layers = [
        bars.transform_filter(f"datum.basis == '{basis}'").mark_bar(width={"band": width * part}).encode(color=colour)
        for basis, part in (("measured", 1.0), ("predicted", 0.45))
    ]
    return marks.panels(layers, frame, independent_x=True)
