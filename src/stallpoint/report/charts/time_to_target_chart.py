"""Time to a target against workers, by preset; speedup to the target against the speedup of throughput."""

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
    placement_in_words,
    rows,
    sort_by_lead,
)
from stallpoint.text import number

CELLS = "convergence cells that reach their target"
KEYS = ["network", "hardware", "storage", "target"]
PLACEMENT = ["workers_per_node", "ranks"]
LINES = (replace(shapes.MEASURED, opacity=0.6), shapes.PREDICTED)


def _draw_times(tables: Tables) -> alt.FacetChart:
    """Draw a line for each preset. A point is the preset's best recipe and B at a placement."""
    trained = best(tables)
    times = pd.concat([trained, _predicted_times(tables, trained)])
    y = axes.log10_y(axes.span(times), "time to the target [s]")
    tips = {"series": "preset", "ranks": axes.unit(times), "way": "with", "shown": "time (90 % interval)",
            "why": "that is"}  # fmt: skip
    return shapes.curves(times, axes.ranks_x(times), y, tips, LINES)


def best(tables: Tables) -> pd.DataFrame:
    """Return, for each preset at each placement, the recipe and B that reached the target first."""
    frame = rows(tables, "target_times", CELLS)
    frame = frame[frame["verdict"] != TargetVerdict.NOT_REACHED]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    keys = [*KEYS, *PLACEMENT, "sync"]
    frame = frame.sort_values([*keys, "time"], kind="stable").drop_duplicates(keys)
    reasons = [
        row["verdict"] if row["verdict"] == TargetVerdict.FASTEST else
        f"{number(row['slower'], 3)} times the fastest: {number(row['more_steps'], 3)} times the steps, each "
        f"{number(row['longer_steps'], 3)} times as long"
        for row in frame.to_dict("records")
    ]  # fmt: skip
    configuration = frame["recipe"] + ", B = " + frame["batch"].astype(str)
    return estimate(
        frame.assign(basis="measured", panel=_panel(frame), series=frame["sync"], way=configuration, why=reasons),
        "time",
        "s",
    )


def _fastest_presets(tables: Tables) -> str:
    """Return the finding: the fastest preset at each number of workers."""
    frame = best(tables)
    fastest = frame[(frame[KEYS] == frame.iloc[0][KEYS]).all(axis=1) & (frame["verdict"] == TargetVerdict.FASTEST)]
    fastest_words = [
        f"{row['series']} on {placement_in_words(row)} ({number(row['time'], 2)} s)"
        for row in fastest.sort_values("ranks").to_dict("records")
    ]
    return f"{fastest.iloc[0]['network']} is fastest at the target with {', '.join(fastest_words)}"


def _predicted_times(tables: Tables, trained: pd.DataFrame) -> pd.DataFrame:
    """Return predicted times (steps · iteration time) for the best B of each preset at each placement."""
    found = tables.get("time_to_accuracy")
    if found is None or found.empty:
        return trained.iloc[:0]
    found = estimate(found, "time", "s")
    found = found.assign(storage=found["steps_storage"], basis="predicted", series=found["sync"])
    keys = [*KEYS, *PLACEMENT, "sync"]
    found = found.sort_values([*keys, "value"], kind="stable").drop_duplicates(keys)
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
    """Draw two speedups for each curve and target, both relative to the fewest workers: throughput, time to target."""
    frame = _speedups(tables)
    y = axes.ratio_y(axes.span(frame), "speedup over the fewest workers")
    colours = alt.Scale(domain=[THROUGHPUT, TIME], range=[theme.GREY, theme.BLUE])
    colour = alt.Color("series:N", scale=colours, legend=alt.Legend(title=None, symbolOpacity=1))
    tips = {"series": "speedup of", "ranks": axes.unit(frame), "shown": "speedup (90 % interval)", "way": "at",
            "basis": "iterations"}  # fmt: skip
    return shapes.curves(
        pd.concat([frame, marks.ideal_rows(frame, "ranks")]), axes.ranks_x(frame), y, tips, colour=colour
    )


def _largest_difference(tables: Tables) -> str:
    """Return the finding: both speedups on the most workers, for the curve and target where they differ most."""
    frame = _speedups(tables)
    last = frame[frame["ranks"] == frame.groupby("panel")["ranks"].transform("max")]
    speedups = last.pivot_table(index=["panel", "network", "ranks"], columns="series", values="value").reset_index()
    row = largest_row(speedups.assign(apart=speedups[THROUGHPUT] / speedups[TIME]), "apart")
    return (
        f"{row['network']}: on {row['ranks']} {axes.unit(frame)}, {number(row[THROUGHPUT], 2)} times the "
        f"throughput makes {number(row[TIME], 2)} times the speed to the target"
    )


def _speedups(tables: Tables) -> pd.DataFrame:
    times = rows(tables, "time_to_accuracy", CURVES)
    key = [*AXES, *STEPS]
    times = times[times["speedup"].notna()].sort_values([*key, "ranks"], kind="stable")
    # If steps depend on neither B nor workers, both speedups are the same.
    steps_vary = times.groupby(key)[["global_batch", "steps_ranks"]].transform("nunique").max(axis=1) > 1
    times = times[steps_vary]
    if times.empty:
        raise NoData(f"no {CURVES}")
    times = times.assign(
        way="B = " + times["global_batch"].astype(str),
        target_text="\n" + times["recipe"] + [f", to {100 * target:.3g} %" for target in times["target"]],
    )
    frame = sort_by_lead(arrange(times, own_panel=True), tables)
    frame = frame.assign(panel=frame["panel"] + frame["target_text"]).drop(columns="lead")
    return pd.concat([estimate(frame, column).assign(series=name) for name, column in SPEEDUPS.items()])


time_to_target = Drawing(_draw_times, _fastest_presets)
time_to_accuracy = Drawing(_draw_speedups, _largest_difference)
