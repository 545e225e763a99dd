"""DAG of a training job with three layers on four GPUs (Shi et al., Fig. 1), as our model builds and schedules it."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.models.taskgraph import Costs, Kind, MessageTimes, Task, TaskSchedule, iteration_tasks, schedule
from stallpoint.report.charts import theme
from stallpoint.strategies.presets import PRESETS
from stallpoint_papers.exhibits import Made, Material

GPUS = 4
ALL_REDUCES = [MessageTimes((layer,), seconds) for layer, seconds in ((2, 2), (1, 2), (0, 1))]
COSTS = Costs(read=2, copy=1, forward=(1, 1, 1), backward=(2, 2, 2), collectives=ALL_REDUCES, update=1)
"""Invented durations: the paper's figure has none."""
RESOURCE_NAMES = {"disk": "disk", "copy stream": "copy", "compute stream": "GPU"}
RESOURCES = ("network", "update", *(f"{name} {gpu}" for gpu in range(GPUS) for name in RESOURCE_NAMES))
COMPUTING, COMMUNICATION = "computing task", "communication task"
KINDS = {Kind.COMPUTE: COMPUTING, Kind.INPUT: COMMUNICATION, Kind.MESSAGE: COMMUNICATION}
COLOURS = {COMPUTING: theme.ORANGE, COMMUNICATION: theme.SKY}
ROW = 19


def numbered() -> dict[str, str]:
    """Return the paper's name of each task (T0 to T43) by ours."""
    of_gpus = ["read of 0", "copy of 0", *(f"forward {layer} of 0" for layer in (1, 2, 3))]
    of_gpus += [f"backward {layer} of 0" for layer in (3, 2, 1)]
    names = [f"{task} on {gpu}" for task in of_gpus for gpu in range(GPUS)]
    names += [*(f"all-reduce {layer} of 0" for layer in (3, 2, 1)), "update of 0"]
    names += [f"{task} on {gpu}" for task in ("read of 1", "copy of 1") for gpu in range(GPUS)]
    return {name: f"T{number}" for number, name in enumerate(names)}


def job() -> tuple[list[Task], TaskSchedule]:
    """Return the figure's tasks (wait-free back-propagation with prefetching) and their schedule."""
    written = iteration_tasks([COSTS] * GPUS, PRESETS["wfbp"].preset, prefetch=True)
    names = numbered()
    return [task for task in written if task.name in names], schedule(written)


def figure(material: Material) -> Made:
    """Return Fig. 1: a row for each resource, a bar for each task, a line for each edge."""
    tasks, times = job()
    names = numbered()
    rows = {resource: position for position, resource in enumerate(RESOURCES)}
    bars = pd.DataFrame([
        {
            "task": names[task.name], "name": task.name, "kind": KINDS[task.kind], "row": rows[task.stream] + 0.1,
            "bottom": rows[task.stream] + 0.9, "middle": rows[task.stream] + 0.5,
            "start": float(times.start[task.name]), "end": float(times.end[task.name]),
            "centre": float(times.start[task.name] + times.end[task.name]) / 2,
        }
        for task in tasks
    ])  # fmt: skip
    position = bars.set_index("name")
    edges = pd.DataFrame([
        {
            "from": position.at[before, "end"], "to": position.at[task.name, "start"],
            "above": position.at[before, "middle"], "below": position.at[task.name, "middle"],
        }
        for task in tasks for before in task.after if before in position.index
    ])  # fmt: skip
    return Made(_drawn(bars, edges))


def _drawn(bars: pd.DataFrame, edges: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    x = alt.X("start:Q", title="time (made up)", axis=alt.Axis(grid=False))
    scale = alt.Scale(domain=[len(RESOURCES), 0], nice=False)
    y = alt.Y("row:Q", title=None, scale=scale, axis=None)
    rows = pd.DataFrame({"called": map(_label, RESOURCES), "middle": [row + 0.5 for row in range(len(RESOURCES))]})
    names = alt.Chart(rows).mark_text(style="row", align="right", dx=-6).encode(
        x=alt.value(0), y=alt.Y("middle:Q", title=None), text="called:N"
    )  # fmt: skip
    kinds = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    rectangles = alt.Chart(bars).mark_bar(stroke="white", strokeWidth=0.8).encode(
        x=x, x2="end:Q", y=y, y2="bottom:Q",
        color=alt.Color("kind:N", scale=kinds, legend=alt.Legend(title=None, symbolType="square")),
        tooltip=[alt.Tooltip("task:N"), alt.Tooltip("name:N"), alt.Tooltip("start:Q"), alt.Tooltip("end:Q")],
    )  # fmt: skip
    lines = alt.Chart(edges).mark_rule(opacity=0.75, strokeWidth=0.9, color=theme.GREY).encode(
        x=alt.X("from:Q", title="time (made up)"), x2="to:Q", y=alt.Y("above:Q", title=None), y2="below:Q"
    )  # fmt: skip
    ends = alt.Chart(edges).mark_point(filled=True, size=9, opacity=0.9, color=theme.GREY).encode(
        x=alt.X("to:Q", title="time (made up)"), y=alt.Y("below:Q", title=None)
    )  # fmt: skip
    labels = alt.Chart(bars).mark_text(fontSize=9, color="black").encode(
        x=alt.X("centre:Q", title="time (made up)"), y=alt.Y("middle:Q", title=None), text="task:N"
    )  # fmt: skip
    return alt.layer(rectangles, lines, ends, labels, names, width=640, height=ROW * len(RESOURCES))


def _label(resource: str) -> str:
    stem, _, gpu = resource.rpartition(" ")
    return f"{RESOURCE_NAMES[stem]} {gpu}" if stem in RESOURCE_NAMES else resource
