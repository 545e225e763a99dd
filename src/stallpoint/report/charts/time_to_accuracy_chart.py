"""What more workers gain in time to a target, beside what they gain in throughput."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, theme
from stallpoint.report.charts.labels import AXES, arrange, compact, estimate, leading_first, most, rows
from stallpoint.text import number

CELLS = (
    "convergence cells with a target, and train cells with scaling weak, or of algorithms whose steps depend on the "
    "workers, of the same network"
)
THROUGHPUT, TIME = "throughput", "time to the target"
SPEEDUPS = {THROUGHPUT: "throughput_speedup", TIME: "speedup"}
"""Columns of the table, by what they are the speedup of."""
STEPS = ["steps_storage", "steps_sync", "recipe", "target"]


def draw(tables: Tables) -> alt.FacetChart:
    """Two lines for each curve and target: both speedups, relative to the fewest workers."""
    frame = _speedups(tables)
    x = axes.ranks_x(frame)
    y = axes.ratio_y(axes.reach(frame), "speedup over the fewest workers")
    frame = axes.clipped(frame, y)
    colours = alt.Scale(domain=[THROUGHPUT, TIME], range=[theme.GREY, theme.BLUE])
    colour = alt.Color("series:N", scale=colours, legend=alt.Legend(title=None, symbolOpacity=1))
    ideal = marks.ideal_rows(frame, "ranks")
    columns = ["panel", "series", "ranks", "basis", "value", "low", "high", "shown", "start", "way"]
    drawn = compact(pd.concat([frame, ideal]).reindex(columns=[*columns, "network", "hardware", "storage"]), columns)
    tips = marks.tips(series="speedup of", ranks=axes.workers(frame), shown="speedup (90 % interval)", way="at",
                      basis="iterations")  # fmt: skip
    lines = alt.Chart().transform_filter("datum.basis != 'ideal'").encode(x=x, color=colour)
    measured, predicted = (marks.only(basis).encode(x=x, color=colour) for basis in ("measured", "predicted"))
    layers = [
        marks.ideal(x, y),
        marks.band(predicted, y),
        lines.mark_line().encode(y=y, strokeDash=marks.dashes()),
        marks.error_bars(measured, y),
        marks.points(measured, y).encode(tooltip=tips),
        marks.hover(predicted, y).encode(tooltip=tips),
    ]
    return marks.panels(layers, drawn)


def finding(tables: Tables) -> str:
    """Both speedups of the curve and target where they lie farthest apart, on its most workers."""
    frame = _speedups(tables)
    last = frame[frame["ranks"] == frame.groupby("panel")["ranks"].transform("max")]
    both = last.pivot_table(index=["panel", "network", "ranks"], columns="series", values="value").reset_index()
    worst = most(both.assign(apart=both[THROUGHPUT] / both[TIME]), "apart")
    return (
        f"{worst['network']}: on {worst['ranks']} {axes.workers(frame)}, {number(worst[THROUGHPUT], 2)} times the "
        f"throughput makes {number(worst[TIME], 2)} times the speed to the target"
    )


def _speedups(tables: Tables) -> pd.DataFrame:
    times = rows(tables, "time_to_accuracy", CELLS)
    key = [*AXES, *STEPS]
    times = times[times["speedup"].notna()].sort_values([*key, "ranks"], kind="stable")
    # Where neither B nor the workers change a step, time to the target gains what throughput gains.
    differ = times.groupby(key)[["global_batch", "steps_ranks"]].transform("nunique").max(axis=1) > 1
    times = times[differ]
    if times.empty:
        raise NoData(f"no {CELLS}")
    times = times.assign(
        way="B = " + times["global_batch"].astype(str),
        told="\n" + times["recipe"] + [f", to {100 * target:.3g} %" for target in times["target"]],
    )
    frame = leading_first(arrange(times, single=True), tables)
    frame = frame.assign(panel=frame["panel"] + frame["told"])
    return pd.concat([estimate(frame, column).assign(series=name) for name, column in SPEEDUPS.items()])
