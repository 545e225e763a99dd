"""Parts of the iteration time, by workers."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, axes, marks, shapes
from stallpoint.report.charts.labels import (
    AXES,
    arrange,
    largest_row,
    leading_first,
    placement_in_words,
    rows,
    with_interval,
)
from stallpoint.strategies.presets import NONE

CELLS = "train cells with scaling strong or weak"
WRITTEN = 0.08
"""Share of the highest bar from which on a part's percentage is written in it."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw stacked seconds of the iteration, one bar for each number of workers; parts that are always 0 are
    omitted."""
    frame = rows(tables, "critical_path", CELLS)
    frame = frame[(frame["sync"] != NONE) & (frame.groupby("part")["share"].transform("max") > 0)]
    frame = leading_first(arrange(frame, single=True), tables)
    counted = axes.workers(frame)
    colour = marks.colour(frame, "part")
    frame = _stacked(frame, list(colour["scale"]["domain"]))
    x = marks.bars_x("ranks", counted)
    y = alt.Y("bottom:Q", title="time of an iteration [s]", axis=alt.Axis(format="~g"))
    ends = alt.Chart().mark_rule(style="interval", xOffset=alt.expr("datum.shift"))
    written = [
        alt.Chart().mark_text(style=style).encode(x=x, y=marks.at(y, "middle"), text="written:N")
        for style in ("halo", "written")
    ]
    return shapes.bars(
        frame, x, y, colour,
        {"part": "part", "ranks": counted, "basis": "basis", "shown": "time (90 % interval)", "percent": "share [%]"},
        until="top", width=marks.bar_width(frame, "ranks"),
        before=[ends.encode(x=x, y=marks.at(y, "low_end"), y2="high_end:Q"), *written],
    )  # fmt: skip


def _stacked(frame: pd.DataFrame, parts: list[str]) -> pd.DataFrame:
    """Return `frame` with each part's bar ends, in the order of `parts`, and the position of its interval.

    The interval of a part stands around the upper end of its bar, next to those of its neighbours.
    """
    order = frame["part"].map(parts.index)
    frame = frame.assign(order=order, first=range(len(frame)))
    frame = frame.sort_values(["panel", "ranks", "order"], kind="stable")
    top = frame.groupby(["panel", "ranks"])["seconds"].cumsum()
    highest = top.groupby(frame["panel"]).transform("max")
    large = frame["seconds"] >= WRITTEN * highest
    known = frame["seconds_low"].notna() & (frame["seconds"] >= WRITTEN / 4 * highest)
    percent = frame["share"] * 100
    stacked = frame.assign(
        percent=percent,
        shown=with_interval(frame, "seconds", "s"),
        written=[f"{share:.0f} %" if shown else "" for share, shown in zip(percent, large, strict=True)],
        bottom=top - frame["seconds"],
        top=top,
        middle=top - frame["seconds"] / 2,
        low_end=(top - frame["seconds"] + frame["seconds_low"]).where(known),
        high_end=(top - frame["seconds"] + frame["seconds_high"]).where(known),
        shift=[4 * (i % 3 - 1) for i in frame["order"]],
    )
    return stacked.sort_values("first", kind="stable")


def finding(tables: Tables) -> str:
    """Return the cause outside computing with the largest share of an iteration, on the most workers of each fastest
    curve."""
    frame = rows(tables, "critical_path", CELLS)
    frame = leading_first(frame[frame["sync"] != NONE], tables)
    frame = frame[frame["lead"] & (frame["ranks"] == frame.groupby(list(AXES))["ranks"].transform("max"))]
    waits = frame[frame["cause"].isin(["communication", "training data", "straggling", "pipeline bubble"])]
    if waits.empty:
        return ""
    shares = (
        waits.groupby(["network", "hardware", "ranks", "workers_per_node", "basis", "cause"], sort=False)["share"]
        .sum()
        .reset_index()
    )
    worst = largest_row(shares, "share")
    several = frame["hardware"].nunique() > 1
    subject = f"{worst['network']} on {worst['hardware']}" if several else worst["network"]
    predicted = " (predicted)" if worst["basis"] == "predicted" else ""
    takes = f"{worst['cause']} takes {100 * worst['share']:.0f} % of each iteration"
    return f"{subject}: {takes} at {placement_in_words(worst)}{predicted}"
