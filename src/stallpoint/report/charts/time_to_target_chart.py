"""Time to a target against workers, by preset: measured, and as steps times iteration time."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.models.answers.time_to_accuracy import FASTEST, NOT_REACHED
from stallpoint.report.charts import NoData, Tables, axes, shapes
from stallpoint.report.charts.labels import estimate, placement_in_words, rows
from stallpoint.text import number

CELLS = "convergence cells that reach their target"
RACE = ["network", "hardware", "storage", "target"]
PLACEMENT = ["workers_per_node", "ranks"]
LINES = (replace(shapes.MEASURED, opacity=0.6), shapes.PREDICTED)


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a line for each preset, with its best recipe and B at each placement."""
    trained = best(tables)
    every = pd.concat([trained, _known(tables, trained)])
    y = axes.log10_y(axes.reach(every), "time to the target [s]")
    tips = {"series": "preset", "ranks": axes.workers(every), "way": "with", "shown": "time (90 % interval)",
            "why": "that is"}  # fmt: skip
    return shapes.curves(every, axes.ranks_x(every), y, tips, LINES)


def best(tables: Tables) -> pd.DataFrame:
    """Return of each preset at each placement the recipe and B that reached the target first."""
    frame = rows(tables, "target_times", CELLS)
    frame = frame[frame["verdict"] != NOT_REACHED]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    order = [*RACE, *PLACEMENT, "sync"]
    frame = frame.sort_values([*order, "time"], kind="stable").drop_duplicates(order)
    why = [
        row["verdict"] if row["verdict"] == FASTEST else
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


def finding(tables: Tables) -> str:
    """Return the fastest at each number of workers."""
    frame = best(tables)
    first = frame[(frame[RACE] == frame.iloc[0][RACE]).all(axis=1) & (frame["verdict"] == FASTEST)]
    winners = [
        f"{row['series']} on {placement_in_words(row)} ({number(row['time'], 2)} s)"
        for row in first.sort_values("ranks").to_dict("records")
    ]
    return f"{first.iloc[0]['network']} is fastest at the target with {', '.join(winners)}"


def _known(tables: Tables, trained: pd.DataFrame) -> pd.DataFrame:
    """Return steps times iteration time, of the best B of each preset at each number of workers."""
    found = tables.get("time_to_accuracy")
    if found is None or found.empty:
        return trained.iloc[:0]
    found = estimate(found, "time", "s")
    found = found.assign(storage=found["steps_storage"], basis="predicted", series=found["sync"])
    order = [*RACE, *PLACEMENT, "sync"]
    found = found.sort_values([*order, "value"], kind="stable").drop_duplicates(order)
    configuration = found["recipe"] + ", B = " + found["global_batch"].astype(str)
    found = found.assign(panel=_panel(found), way=configuration, why="steps · iteration time")
    return found[found["panel"].isin(trained["panel"])]


def _panel(frame: pd.DataFrame) -> pd.Series[str]:
    target = [f"to {100 * target:.3g} %" for target in frame["target"]]
    return frame["network"] + " · " + frame["hardware"] + "\n" + frame["storage"] + " · " + target
