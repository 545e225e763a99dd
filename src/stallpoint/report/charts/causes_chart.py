"""Causes of lost time at each number of workers."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, shapes
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

CELLS = "train cells with scaling strong or weak on two workers or more"


def draw(tables: Tables) -> alt.FacetChart:
    """Draw for each number of workers a bar for each cause, with its interval; gains (negative losses) are below
    zero."""
    frame = leading_first(arrange(_causes(tables), single=True), tables)
    counted = axes.workers(frame)
    frame = frame.assign(
        value=100 * frame["share"], low=100 * frame["share_low"], high=100 * frame["share_high"],
        shown=with_interval(frame, "lost", "s"),
    )  # fmt: skip
    colour = marks.colour(frame, "cause")
    grouped = ("cause", *colour["scale"]["domain"])
    x = marks.bars_x("ranks", counted)
    y = alt.Y("value:Q", title="time lost [% of iteration]", scale=alt.Scale(zero=True))
    tips = {"cause": "cause", "ranks": counted, "basis": "basis", "value": "lost [%]", "shown": "lost (90 % interval)",
            "verdict": "verdict"}  # fmt: skip
    return shapes.bars(
        frame, x, y, colour, tips, grouped=grouped, hatch="narrow-hatch", intervals=True, before=[marks.line_at(0, "y")]
    )


def _causes(tables: Tables) -> pd.DataFrame:
    """Return the table with the ends of the interval as shares of the iteration, too."""
    frame = rows(tables, "causes", CELLS)
    frame = frame[frame["share"].notna() & (frame["sync"] != NONE)]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    # All causes of an iteration are shares of the same time.
    seconds = (frame["lost"] / frame["share"]).where(frame["share"] != 0)
    iteration = seconds.groupby([frame[axis] for axis in (*AXES, "ranks")]).transform("median")
    return frame.assign(
        share_low=frame["lost_low"] / iteration,
        share_high=frame["lost_high"] / iteration,
    )


def finding(tables: Tables) -> str:
    """Return the largest measured dominant cause, of the fastest curves; else that nothing dominates."""
    frame = leading_first(_causes(tables), tables).query("lead and basis == 'measured'")
    frame = frame[frame["ranks"] == frame.groupby(list(AXES))["ranks"].transform("max")]
    dominant = frame[frame["verdict"] == "dominant"]
    if frame.empty:
        return ""
    if dominant.empty:
        counts = "/".join(str(n) for n in sorted(frame["ranks"].unique()))
        return f"No single cause dominates at {counts} {axes.workers(frame)}: their intervals overlap"
    worst = largest_row(dominant, "share")
    costs = f"{worst['cause']} costs most, {100 * worst['share']:.0f} % of each iteration"
    return f"{worst['network']}: {costs} at {placement_in_words(worst)}"
