"""What more workers gain in time to a target, beside what they gain in throughput."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks, theme
from stallpoint.charts.frames import AXES, arrange, compact, leading_first, most, rows
from stallpoint.numerals import number

CELLS = "convergence cells with a target, and train cells with scaling strong or weak of the same network"
THROUGHPUT, TIME = "throughput", "time to the target"
STEPS = ["steps_storage", "steps_sync", "recipe", "target"]


def draw(tables: Tables) -> alt.FacetChart:
    """Two lines for each curve and target: both speedups, relative to the fewest workers."""
    frame = _speedups(tables)
    x = axes.ranks_x(frame)
    y = axes.ratio_y(frame["value"], "speedup relative to the fewest workers")
    colours = alt.Scale(domain=[THROUGHPUT, TIME], range=[theme.GREY, theme.BLUE])
    colour = alt.Color("series:N", scale=colours, legend=alt.Legend(title=None, symbolOpacity=1))
    ideal = marks.ideal_rows(frame, "ranks")
    columns = ["panel", "series", "ranks", "basis", "value", "shown", "start", "way"]
    drawn = compact(pd.concat([frame, ideal]).reindex(columns=[*columns, "network", "hardware", "storage"]), columns)
    tips = marks.tips(series="speedup of", ranks=axes.workers(frame), shown="speedup", basis="iterations", way="at")
    lines = alt.Chart().transform_filter("datum.basis != 'ideal'").encode(x=x, color=colour)
    layers = [
        marks.ideal(x, y),
        lines.mark_line().encode(y=y, strokeDash=marks.dashes()),
        marks.points(marks.only("measured").encode(x=x, color=colour), y).encode(tooltip=tips),
        marks.hover(marks.only("predicted").encode(x=x, color=colour), y).encode(tooltip=tips),
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
    times = times[times["time"].notna()].sort_values([*key, "ranks"], kind="stable")
    times = times[times.groupby(key)["ranks"].transform("nunique") > 1]
    if times.empty:
        raise NoData(f"no {CELLS}")
    first = times.groupby(key)[["time", "steps", "global_batch"]].transform("first")
    rate, first_rate = (at["global_batch"] * at["steps"] / at["time"] for at in (times, first))
    times = times.assign(
        way="B = " + times["global_batch"].astype(str),
        told="\n" + times["recipe"] + [f", to {100 * target:.3g} %" for target in times["target"]],
        **{THROUGHPUT: rate / first_rate, TIME: first["time"] / times["time"]},
    )
    frame = leading_first(arrange(times, single=True), tables)
    frame = frame.assign(panel=frame["panel"] + frame["told"])
    found = pd.concat([frame.assign(series=name, value=frame[name]) for name in (THROUGHPUT, TIME)])
    return found.assign(shown=[f"× {number(value, 3)}" for value in found["value"]])
