"""Time to a target against workers, by preset; and the speedup to the target against the speedup of throughput."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.models.answers.time_to_accuracy import TargetVerdict
from stallpoint.report.charts import Drawing, NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import (
    AXES,
    arrange,
    estimate,
    largest_row,
    leading_first,
    placement_in_words,
    rows,
)
from stallpoint.text import number

CELLS = "convergence cells that reach their target"
GOAL = ["network", "hardware", "storage", "target"]
PLACEMENT = ["workers_per_node", "ranks"]
LINES = (replace(shapes.MEASURED, opacity=0.6), shapes.PREDICTED)


def _draw_times(tables: Tables) -> alt.FacetChart:
    """Draw a line for each preset, with its best recipe and B at each placement."""
    trained = best(tables)
    every = pd.concat([trained, _predicted(tables, trained)])
    y = axes.log10_y(axes.reach(every), "time to the target [s]")
    tips = {"series": "preset", "ranks": axes.workers(every), "way": "with", "shown": "time (90 % interval)",
            "why": "that is"}  # fmt: skip
    return shapes.curves(every, axes.ranks_x(every), y, tips, LINES)


def best(tables: Tables) -> pd.DataFrame:
    """Return, for each preset at each placement, the recipe and B that reached the target first."""
    frame = rows(tables, "target_times", CELLS)
    frame = frame[frame["verdict"] != TargetVerdict.NOT_REACHED]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    order = [*GOAL, *PLACEMENT, "sync"]
    frame = frame.sort_values([*order, "time"], kind="stable").drop_duplicates(order)
    why = [
        row["verdict"] if row["verdict"] == TargetVerdict.FASTEST else
        f"{number(row['slower'], 3)} times the fastest: {number(row['more_steps'], 3)} times the steps, each "
        f"{number(row['longer_steps'], 3)} times as long"
        for row in frame.to_dict("records")
    ]  # fmt: skip
    configuration = frame["recipe"] + ", B = " + frame["batch"].astype(str)
    return estimate(
        frame.assign(basis="measured", panel=_panel(frame), series=frame["sync"], way=configuration, why=why),
        "time",
        "s",
    )


def _fastest(tables: Tables) -> str:
    """Return the finding: the fastest preset at each number of workers."""
    frame = best(tables)
    first = frame[(frame[GOAL] == frame.iloc[0][GOAL]).all(axis=1) & (frame["verdict"] == TargetVerdict.FASTEST)]
    winners = [
        f"{row['series']} on {placement_in_words(row)} ({number(row['time'], 2)} s)"
        for row in first.sort_values("ranks").to_dict("records")
    ]
    return f"{first.iloc[0]['network']} is fastest at the target with {', '.join(winners)}"


def _predicted(tables: Tables, trained: pd.DataFrame) -> pd.DataFrame:
    """Return predicted times, steps times iteration time, of the best B of each preset at each placement."""
    found = tables.get("time_to_accuracy")
    if found is None or found.empty:
        return trained.iloc[:0]
    found = estimate(found, "time", "s")
    found = found.assign(storage=found["steps_storage"], basis="predicted", series=found["sync"])
    order = [*GOAL, *PLACEMENT, "sync"]
    found = found.sort_values([*order, "value"], kind="stable").drop_duplicates(order)
    configuration = found["recipe"] + ", B = " + found["global_batch"].astype(str)
    found = found.assign(panel=_panel(found), way=configuration, why="steps · iteration time")
    return found[found["panel"].isin(trained["panel"])]


def _panel(frame: pd.DataFrame) -> pd.Series[str]:
    target = [f"to {100 * target:.3g} %" for target in frame["target"]]
    return frame["network"] + " · " + frame["hardware"] + "\n" + frame["storage"] + " · " + target


CURVES = (
    "convergence cells with a target, and train cells with scaling weak, or of algorithms whose steps depend on the "
    "workers, of the same network"
)
THROUGHPUT, TIME = "throughput", "time to the target"
SPEEDUPS = {THROUGHPUT: "throughput_speedup", TIME: "speedup"}
"""Columns of the table, by the quantity of the speedup."""
STEPS = ["steps_storage", "steps_sync", "recipe", "target"]


def _draw_speedups(tables: Tables) -> alt.FacetChart:
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


def _farthest_apart(tables: Tables) -> str:
    """Return both speedups on the most workers, for the curve and target where the two differ most."""
    frame = _speedups(tables)
    last = frame[frame["ranks"] == frame.groupby("panel")["ranks"].transform("max")]
    both = last.pivot_table(index=["panel", "network", "ranks"], columns="series", values="value").reset_index()
    worst = largest_row(both.assign(apart=both[THROUGHPUT] / both[TIME]), "apart")
    return (
        f"{worst['network']}: on {worst['ranks']} {axes.workers(frame)}, {number(worst[THROUGHPUT], 2)} times the "
        f"throughput makes {number(worst[TIME], 2)} times the speed to the target"
    )


def _speedups(tables: Tables) -> pd.DataFrame:
    times = rows(tables, "time_to_accuracy", CURVES)
    key = [*AXES, *STEPS]
    times = times[times["speedup"].notna()].sort_values([*key, "ranks"], kind="stable")
    # If steps depend on neither B nor workers, time to the target gains exactly what throughput gains.
    differ = times.groupby(key)[["global_batch", "steps_ranks"]].transform("nunique").max(axis=1) > 1
    times = times[differ]
    if times.empty:
        raise NoData(f"no {CURVES}")
    times = times.assign(
        way="B = " + times["global_batch"].astype(str),
        target_text="\n" + times["recipe"] + [f", to {100 * target:.3g} %" for target in times["target"]],
    )
    frame = leading_first(arrange(times, single=True), tables)
    frame = frame.assign(panel=frame["panel"] + frame["target_text"]).drop(columns="lead")
    return pd.concat([estimate(frame, column).assign(series=name) for name, column in SPEEDUPS.items()])


time_to_target = Drawing(_draw_times, _fastest)
time_to_accuracy = Drawing(_draw_speedups, _farthest_apart)
