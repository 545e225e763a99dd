"""Speedup in time to a target and in throughput."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import AXES, arrange, estimate, largest_row, leading_first, rows
from stallpoint.text import number

CELLS = (
    "convergence cells with a target, and train cells with scaling weak, or of algorithms whose steps depend on the "
    "workers, of the same network"
)
THROUGHPUT, TIME = "throughput", "time to the target"
SPEEDUPS = {THROUGHPUT: "throughput_speedup", TIME: "speedup"}
"""Columns of the table, by the quantity of the speedup."""
STEPS = ["steps_storage", "steps_sync", "recipe", "target"]


def draw(tables: Tables) -> alt.FacetChart:
    """Draw two lines for each curve and target: both speedups, relative to the fewest workers."""
    frame = _speedups(tables)
    y = axes.ratio_y(axes.reach(frame), "speedup over the fewest workers")
    colours = alt.Scale(domain=[THROUGHPUT, TIME], range=[theme.GREY, theme.BLUE])
    colour = alt.Color("series:N", scale=colours, legend=alt.Legend(title=None, symbolOpacity=1))
    tips = {"series": "speedup of", "ranks": axes.workers(frame), "shown": "speedup (90 % interval)", "way": "at",
            "basis": "iterations"}  # fmt: skip
    return shapes.curves(
        pd.concat([frame, marks.ideal_rows(frame, "ranks")]), axes.ranks_x(frame), y, tips, colour=colour
    )


def finding(tables: Tables) -> str:
    """Return both speedups of the curve and target where they are farthest apart, on its most workers."""
    frame = _speedups(tables)
    last = frame[frame["ranks"] == frame.groupby("panel")["ranks"].transform("max")]
    both = last.pivot_table(index=["panel", "network", "ranks"], columns="series", values="value").reset_index()
    worst = largest_row(both.assign(apart=both[THROUGHPUT] / both[TIME]), "apart")
    return (
        f"{worst['network']}: on {worst['ranks']} {axes.workers(frame)}, {number(worst[THROUGHPUT], 2)} times the "
        f"throughput makes {number(worst[TIME], 2)} times the speed to the target"
    )


def _speedups(tables: Tables) -> pd.DataFrame:
    times = rows(tables, "time_to_accuracy", CELLS)
    key = [*AXES, *STEPS]
    times = times[times["speedup"].notna()].sort_values([*key, "ranks"], kind="stable")
    # Where the steps depend on neither B nor workers, time to the target and throughput gain the same.
    differ = times.groupby(key)[["global_batch", "steps_ranks"]].transform("nunique").max(axis=1) > 1
    times = times[differ]
    if times.empty:
        raise NoData(f"no {CELLS}")
    times = times.assign(
        way="B = " + times["global_batch"].astype(str),
        told="\n" + times["recipe"] + [f", to {100 * target:.3g} %" for target in times["target"]],
    )
    frame = leading_first(arrange(times, single=True), tables)
    frame = frame.assign(panel=frame["panel"] + frame["told"]).drop(columns="lead")
    return pd.concat([estimate(frame, column).assign(series=name) for name, column in SPEEDUPS.items()])
