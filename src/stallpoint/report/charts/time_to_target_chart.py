"""Time to a target against workers, by preset: as trained, and as steps times iteration time."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.models.answers.target_times import FASTEST, NOT_REACHED
from stallpoint.report.charts import NoData, Tables, axes, marks
from stallpoint.report.charts.labels import at_place, compact, estimate, rows
from stallpoint.text import number

CELLS = "convergence cells that reach their target"
RACE = ["network", "hardware", "storage", "target"]
PLACE = ["workers_per_node", "ranks"]


def draw(tables: Tables) -> alt.FacetChart:
    """A line for each preset, which takes its best recipe and B at each place."""
    trained = best(tables)
    known = _known(tables, trained)
    every = pd.concat([trained, known])
    x = axes.ranks_x(every)
    y = axes.log10_y(axes.reach(every), "time to the target [s]")
    colour, shape = marks.by_preset(every)
    columns = ["panel", "series", "basis", "ranks", "value", "low", "high", "shown", "way", "why"]
    frame = compact(axes.clipped(every, y), columns)
    tips = marks.tips(
        series="preset", ranks=axes.workers(every), way="with", shown="time (90 % interval)", why="that is"
    )
    measured, predicted = (marks.only(basis).encode(x=x, color=colour) for basis in ("measured", "predicted"))
    layers = [
        marks.band(predicted, y),
        predicted.mark_line().encode(y=y, strokeDash=marks.dashes()),
        marks.hover(predicted, y).encode(tooltip=tips),
        measured.mark_line(opacity=0.6).encode(y=y, strokeDash=marks.dashes()),
        marks.error_bars(measured, y),
        marks.points(measured, y, shape).encode(tooltip=tips),
    ]
    return marks.panels(layers, frame)


def best(tables: Tables) -> pd.DataFrame:
    """Of each preset at each place the recipe and B that reached the target first."""
    frame = rows(tables, "target_times", CELLS)
    frame = frame[frame["verdict"] != NOT_REACHED]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    order = [*RACE, *PLACE, "sync"]
    frame = frame.sort_values([*order, "time"], kind="stable").drop_duplicates(order)
    why = [
        row["verdict"] if row["verdict"] == FASTEST else
        f"{number(row['slower'], 3)} times the fastest: {number(row['more_steps'], 3)} times the steps, each "
        f"{number(row['longer_steps'], 3)} times as long"
        for row in frame.to_dict("records")
    ]  # fmt: skip
    way = frame["recipe"] + ", B = " + frame["batch"].astype(str)
    return estimate(
        frame.assign(basis="measured", panel=_panel(frame), series=frame["sync"], way=way, why=why), "time", "s"
    )


def finding(tables: Tables) -> str:
    """What is fastest at each number of workers."""
    frame = best(tables)
    first = frame[(frame[RACE] == frame.iloc[0][RACE]).all(axis=1) & (frame["verdict"] == FASTEST)]
    said = [
        f"{row['series']} on {at_place(row)} ({number(row['time'], 2)} s)"
        for row in first.sort_values("ranks").to_dict("records")
    ]
    return f"{first.iloc[0]['network']} is fastest at the target with {', '.join(said)}"


def _known(tables: Tables, trained: pd.DataFrame) -> pd.DataFrame:
    """Steps times iteration time, of the best B of each preset at each number of workers."""
    found = tables.get("time_to_accuracy")
    if found is None or found.empty:
        return trained.iloc[:0]
    found = estimate(found, "time", "s")
    found = found.assign(storage=found["steps_storage"], basis="predicted", series=found["sync"])
    order = [*RACE, *PLACE, "sync"]
    found = found.sort_values([*order, "value"], kind="stable").drop_duplicates(order)
    way = found["recipe"] + ", B = " + found["global_batch"].astype(str)
    found = found.assign(panel=_panel(found), way=way, why="steps · iteration time")
    return found[found["panel"].isin(trained["panel"])]


def _panel(frame: pd.DataFrame) -> pd.Series[str]:
    target = [f"to {100 * target:.3g} %" for target in frame["target"]]
    return frame["network"] + " · " + frame["hardware"] + "\n" + frame["storage"] + " · " + target
