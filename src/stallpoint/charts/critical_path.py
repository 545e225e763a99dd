"""Where the time of an iteration goes, by node count."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import Tables, marks
from stallpoint.charts.frames import AXES, arrange, communicating, compact, rows, with_interval

LABELLED = 0.07
"""Parts that are at least so much of the longest iteration of their panel have their share written in them."""


def draw(tables: Tables) -> alt.FacetChart:
    """Stacked seconds, with shares in them, one bar for each node count; parts that never take time are left out."""
    table = rows(tables, "critical_path", "train cells with scaling strong or weak")
    frame = arrange(communicating(table), single=True)
    frame = frame[frame.groupby("part")["share"].transform("max") > 0]
    frame = frame.assign(
        percent=frame["share"] * 100,
        shown=with_interval(frame, "seconds", "s"),
        share_shown=with_interval(frame, "share", "%", scale=100),
    )
    longest = frame.groupby(["panel", "nodes"])["seconds"].sum().groupby("panel").max()
    large = frame["seconds"] >= LABELLED * frame["panel"].map(longest)
    frame["label"] = frame["percent"].map("{:.0f} %".format).where(large, "")
    columns = ["panel", "nodes", "part", "basis", "seconds", "percent", "shown", "share_shown", "label"]
    colour = marks.colour(frame, "part")
    order = {name: place for place, name in enumerate(colour["scale"]["domain"])}
    frame = frame.assign(order=frame["part"].map(order)).sort_values(["panel", "nodes", "order"], kind="stable")
    drawn = compact(pd.concat([frame, _whole(frame, tables)]), [*columns, "order", "low", "high"])
    y = alt.Y("seconds:Q", title="time of an iteration [s]")
    bars = alt.Chart().encode(
        x=marks.bars_x("nodes", "nodes"),
        tooltip=marks.tips(
            part="part", nodes="nodes", basis="basis", shown="time (90 % interval)", share_shown="share (90 % interval)"
        ),
    )  # fmt: skip
    layers = [
        *marks.stacked(bars, y, colour, marks.bar_width(frame, "nodes")),
        marks.share_labels(bars, y),
        bars.transform_filter("isValid(datum.low)")
        .mark_rule(style="interval")
        .encode(y=marks.at(y, "low"), y2="high:Q"),
    ]
    facet: alt.FacetChart = marks.panels(layers, drawn, independent_x=True).resolve_scale(y="independent")
    return facet


def _whole(frame: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """The interval of each whole iteration, where the table of predictions has one."""
    predictions = tables.get("predictions")
    if predictions is None or predictions.empty:
        return pd.DataFrame({"low": pd.Series(dtype=float), "high": pd.Series(dtype=float)})
    keys = ["panel", "basis", *AXES, "nodes", "ranks"]
    found = frame[keys].drop_duplicates().merge(predictions, on=[*AXES, "nodes", "ranks"])
    measured = found["basis"] == "measured"
    low = found["measured_iteration_low"].where(measured, found["predicted_iteration_low"])
    high = found["measured_iteration_high"].where(measured, found["predicted_iteration_high"])
    return found[keys].assign(low=low, high=high).dropna(subset=["low", "high"])
