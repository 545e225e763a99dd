"""Readers that keep a worker busy, by storage."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.models.answers.feeding import BUSY
from stallpoint.report.charts import NoData, Tables, axes
from stallpoint.report.charts.data_share_chart import CELLS, by_storage, over_workers
from stallpoint.report.charts.labels import estimate, largest_row, placement_in_words, rows, with_interval
from stallpoint.text import number


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a series for each storage over the workers, and a line at the readers ahead that a worker has, if any."""
    known = _known(tables)
    frame = by_storage(known)
    has = frame.loc[frame["prefetch"] > 0, ["panel", "network", "hardware", "readers"]].drop_duplicates()
    has = has.assign(basis="limit", value=has["readers"])
    y = axes.log10_y([*axes.reach(known), *has["value"]], "readers needed by each worker")
    tips = {
        "storage": "storage", "ranks": axes.workers(frame), "worker_batch": "b [samples]",
        "shown": "readers needed (90 % interval)", "has": "readers of a worker", "reads": "one reader takes",
        "computes": "the worker computes",
    }  # fmt: skip
    # The line includes the measured points.
    return over_workers(pd.concat([frame, frame.assign(basis="every"), has]), axes.ranks_x(known), y, tips, "every")


def _known(tables: Tables) -> pd.DataFrame:
    """Return rows of feeding with positive needs: a logarithmic axis has no 0."""
    frame = rows(tables, "feeding", CELLS)
    frame = estimate(frame[frame["readers_needed"] > 0], "readers_needed")
    if frame.empty:
        raise NoData(f"no {CELLS} whose reading is known")
    return frame.assign(
        reads=with_interval(frame, "read_time", "s"), computes=with_interval(frame, "busy_time", "s"),
        has=frame["readers"].astype(str).where(frame["prefetch"] > 0, "none, it reads in line"),
    )  # fmt: skip


def finding(tables: Tables) -> str:
    """Return where most readers are missing, by measurement, or how many would do where workers without readers
    starve."""
    frame = _known(tables)
    frame = frame[frame["basis"] == "measured"]
    if frame.empty:
        return ""
    ahead = frame["prefetch"] > 0
    lacking = frame[ahead & (frame["readers_needed_low"] > frame["readers"])]
    if len(lacking):
        worst: Any = largest_row(lacking.assign(missing=lacking["readers_needed"] / lacking["readers"]), "missing")
        needs = f"{number(worst['readers_needed'], 2)} readers for b = {worst['worker_batch']}"
        where = f"{worst['network']} from {worst['storage']} needs {needs} on each worker"
        return f"{where} at {placement_in_words(worst)}, and has {worst['readers']}"
    starving = frame[~ahead & (frame["utilisation_high"] < BUSY)]
    if len(starving):
        worst = largest_row(starving, "readers_needed")
        enough = math.ceil(worst["readers_needed"])
        would = (
            f"{enough} reader{'s' if enough > 1 else ''} ahead would keep a worker busy at {placement_in_words(worst)}"
        )
        return f"{worst['network']} from {worst['storage']} reads in line; {would}"
    return "Every worker is fed by the readers that it has"
