"""Readers that keep a worker busy, by storage."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks, theme
from stallpoint.charts.data_share import CELLS, by_storage
from stallpoint.charts.frames import at_place, compact, estimate, most, rows, with_interval
from stallpoint.numerals import number


def draw(tables: Tables) -> alt.FacetChart:
    """A series for each storage over the workers, and a line at the readers that a worker has."""
    known = _known(tables)
    frame = by_storage(known)
    counted = axes.workers(frame)
    has = frame[["panel", "network", "hardware", "readers"]].drop_duplicates()
    has = has.assign(basis="has", value=has["readers"])
    frame = compact(
        pd.concat([frame, has]),
        [
            "panel", "storage", "ranks", "worker_batch", "basis", "value", "low", "high", "shown", "reads", "computes",
            "has", "curve",
        ],
    )  # fmt: skip
    x = axes.ranks_x(known)
    y = axes.log10_y([*axes.reach(known), *known["readers"]], "readers needed by each worker")
    frame = frame.assign(low=frame["low"].clip(*y["scale"]["domain"]), high=frame["high"].clip(*y["scale"]["domain"]))
    colour = marks.colour(known, "storage")
    every = alt.Chart().transform_filter("datum.basis != 'has'")
    base = marks.only("measured").encode(x=x, color=colour)
    tips = marks.tips(
        storage="storage", ranks=counted, worker_batch="b [samples]", shown="readers needed (90 % interval)",
        has="readers of a worker", reads="one reader takes", computes="the worker computes",
    )  # fmt: skip
    line = every.mark_line().encode(x=x, y=y, color=colour, detail="curve:N", strokeDash=alt.value(theme.DASHED))
    layers = [
        marks.only("has").mark_rule(style="zero").encode(y=y),
        line,
        marks.error_bars(base, y),
        marks.points(base, y).encode(tooltip=tips),
    ]
    return marks.panels(layers, frame)


def _known(tables: Tables) -> pd.DataFrame:
    """Rows of feeding with what is needed, above nothing: a logarithmic axis has no 0."""
    frame = rows(tables, "feeding", CELLS)
    frame = estimate(frame[frame["readers_needed"] > 0], "readers_needed")
    if frame.empty:
        raise NoData(f"no {CELLS} whose reading is known")
    return frame.assign(
        reads=with_interval(frame, "read_time", "s"), computes=with_interval(frame, "busy_time", "s"),
        has=frame["readers"].astype(str),
    )  # fmt: skip


def finding(tables: Tables) -> str:
    """Where most readers are missing, as measured; or that there are enough."""
    frame = _known(tables)
    frame = frame[frame["basis"] == "measured"]
    if frame.empty:
        return ""
    lacking = frame[frame["readers_needed_low"] > frame["readers"]]
    if lacking.empty:
        return "Every worker has readers enough for what it computes"
    worst: Any = most(lacking.assign(missing=lacking["readers_needed"] / lacking["readers"]), "missing")
    needs = f"{number(worst['readers_needed'], 2)} readers for b = {worst['worker_batch']}"
    where = f"{worst['network']} from {worst['storage']} needs {needs} on each worker"
    return f"{where} at {at_place(worst)}, and has {worst['readers']}"
