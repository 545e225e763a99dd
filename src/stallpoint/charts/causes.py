"""What costs the time at each node count."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import Tables, marks
from stallpoint.charts.frames import arrange, compact, rows, with_interval


def draw(tables: Tables) -> alt.FacetChart:
    """Stacked shares of the iteration, one bar for each node count."""
    frame = arrange(rows(tables, "causes", "train cells with scaling strong or weak on two nodes or more"), single=True)
    frame = frame.assign(percent=frame["share"] * 100, shown=with_interval(frame, "lost", "s"))
    frame = frame[frame["percent"].notna()]
    frame = compact(frame, ["panel", "nodes", "cause", "basis", "percent", "shown", "verdict"])
    colour = marks.colour(frame, "cause")
    frame["order"] = frame["cause"].map({name: i for i, name in enumerate(colour["scale"]["domain"])})
    bars = alt.Chart().encode(
        x=marks.bars_x("nodes", "nodes"),
        y=alt.Y("percent:Q", title="time lost [% of iteration]", scale=alt.Scale(domain=_domain(frame), nice=False)),
        order="order:Q",
        tooltip=marks.tips(
            cause="cause", nodes="nodes", basis="basis", shown="lost (90 % interval)", verdict="verdict"
        ),
    )  # fmt: skip
    width = marks.bar_width(frame, "nodes")
    layers = [
        bars.transform_filter(f"datum.basis == '{basis}'").mark_bar(width={"band": width * part}).encode(color=colour)
        for basis, part in (("measured", 1.0), ("predicted", 0.45))
    ]
    return marks.panels(layers, frame, independent_x=True)


def _domain(frame: pd.DataFrame) -> list[float]:
    """From zero, or the lowest stack of gains (negative losses), to the highest stack of losses."""
    signs = frame.assign(gain=frame["percent"] < 0).groupby(["panel", "nodes", "gain"])["percent"].sum()
    return [float(f"{bound:.4g}") for bound in (min(0.0, signs.min()), max(1.0, signs.max() * 1.05))]
