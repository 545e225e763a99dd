"""Waiting for training data, and readers that keep a worker busy, by storage (Keuper & Pfreundt, Fig. 13)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from stallpoint.models.answers.feeding import BUSY_SHARE
from stallpoint.report.charts import Drawing, NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import (
    arrange,
    estimate,
    largest_row,
    placement_in_words,
    rows,
    smallest_row,
    with_interval,
)
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

CELLS = "train cells with scaling strong or weak"
MIN_WAIT = 1.0
"""Wait [% of the iteration] that counts; if all waits are shorter, all curves share one panel."""
MAX_BUSY_WAIT = 100 * (1 - BUSY_SHARE)
"""Wait [% of the iteration] above which workers are not kept busy."""


def _draw_share(tables: Tables) -> alt.FacetChart:
    """Draw waits over workers, a series for each storage: points are measured, lines are held-out predictions."""
    bases = {"measured": "utilisation", "predicted": "predicted_utilisation"}
    waits = pd.concat([_share(tables, basis, name) for basis, name in bases.items()])
    measured = waits[waits["basis"] == "measured"]
    if measured.empty:
        raise NoData(f"no {CELLS}")
    frame = _panels_by_storage(waits)
    is_flat = bool(measured["high"].max() < MIN_WAIT)
    if is_flat:
        frame["panel"] = "all curves"
    limit = frame[["panel", "network", "hardware"]].drop_duplicates().assign(basis="limit", value=MAX_BUSY_WAIT)
    top = 1.0 if is_flat else min(100.0, max(measured["high"].max(), waits["value"].max(), MAX_BUSY_WAIT) * 1.05)
    y = alt.Y("value:Q", title="data wait [% of iteration]", scale=alt.Scale(domain=[0, top]))
    tips = {"storage": "storage", "ranks": axes.unit(frame), "worker_batch": "b [samples]",
            "shown": "share (90 % interval)", "wait": "wait"}  # fmt: skip
    return _worker_chart(pd.concat([frame, limit]), axes.ranks_x(waits), y, tips, "predicted")


def _worker_chart(frame: pd.DataFrame, x: alt.X, y: alt.Y, tips: Mapping[str, str], line_basis: str) -> alt.FacetChart:
    """Return a chart over workers of measured points, a limit, and dashed lines (rows whose basis is `line_basis`)."""
    lines = [replace(shapes.MEASURED, dash=None), Line(line_basis, theme.DASHED, hover=False)]
    behind = [marks.limit("limit", y)]
    return shapes.curves(frame, x, y, tips, lines, colour="storage", details=["network", "curve"], behind=behind)


def _panels_by_storage(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with columns ``curve`` and ``panel``. Curves that differ only in their storage share a panel."""
    arranged_frame = arrange(frame.assign(name=frame["storage"], storage=""), own_panel=True)
    return arranged_frame.assign(storage=arranged_frame["name"], curve=arranged_frame["panel"])


def _share(tables: Tables, basis: str, column: str) -> pd.DataFrame:
    """Return the shares of waiting: 100 % minus the utilisation in `column`. Measured rows have predictions, too."""
    frame = rows(tables, "feeding", CELLS)
    frame = frame[frame[column].notna() & ((frame["basis"] == "measured") | (basis == "predicted"))]
    ends = {"": column, "_low": f"{column}_high", "_high": f"{column}_low"}
    shares = frame.assign(**{f"share{end}": 1 - frame[of] for end, of in ends.items()}, basis=basis)
    iteration = frame["busy_time"] / frame["utilisation"]
    wait = [f"{number(seconds)} s" for seconds in shares["share"] * iteration]
    return estimate(shares.assign(wait=wait), "share", "%", scale=100)


def _longest_wait(tables: Tables) -> str:
    """Return the finding: the fewest workers at which training starves, or else where it waits longest."""
    frame = rows(tables, "feeding", CELLS)
    frame = frame[frame["utilisation"].notna()]
    if frame.empty:
        return ""
    starving_rows = frame[frame["utilisation_high"] < BUSY_SHARE]
    measured = frame[frame["basis"] == "measured"]
    if len(starving_rows):
        first: Any = smallest_row(starving_rows, "ranks")
        waits = f"workers wait {100 * (1 - first['utilisation']):.0f} % of each iteration"
        basis = "" if first["basis"] == "measured" else ", as predicted"
        return f"{first['network']} from {first['storage']} starves from {placement_in_words(first)} on: {waits}{basis}"
    if measured.empty:
        return ""
    if 100 * (1 - measured["utilisation_low"].min()) < MIN_WAIT:
        return f"Workers wait for training data in less than {MIN_WAIT:.0f} % of any iteration: it costs nothing here"
    row: Any = smallest_row(measured, "utilisation")
    subject = f"{row['network']} from {row['storage']}"
    waits = f"workers wait {100 * (1 - row['utilisation']):.0f} % of each iteration"
    return f"{subject}: {waits} at {placement_in_words(row)}"


def _draw_readers(tables: Tables) -> alt.FacetChart:
    """Draw needed readers over workers, a series for each storage. A horizontal line shows the readers of a worker."""
    table = _reader_needs(tables)
    frame = _panels_by_storage(table)
    limit = frame.loc[frame["prefetch"] > 0, ["panel", "network", "hardware", "readers"]].drop_duplicates()
    limit = limit.assign(basis="limit", value=limit["readers"])
    y = axes.log10_y([*axes.span(table), *limit["value"]], "readers needed by each worker")
    tips = {
        "storage": "storage", "ranks": axes.unit(frame), "worker_batch": "b [samples]",
        "shown": "readers needed (90 % interval)", "has": "readers of a worker", "reads": "one reader takes",
        "computes": "the worker computes",
    }  # fmt: skip
    # The dashed line joins all points, also the measured ones.
    return _worker_chart(pd.concat([frame, frame.assign(basis="every"), limit]), axes.ranks_x(table), y, tips, "every")


def _reader_needs(tables: Tables) -> pd.DataFrame:
    """Return the rows of ``feeding`` that need any readers, as a logarithmic axis has no 0."""
    frame = rows(tables, "feeding", CELLS)
    frame = estimate(frame[frame["readers_needed"] > 0], "readers_needed")
    if frame.empty:
        raise NoData(f"no {CELLS} whose reading is known")
    return frame.assign(
        reads=with_interval(frame, "read_time", "s"), computes=with_interval(frame, "busy_time", "s"),
        has=frame["readers"].astype(str).where(frame["prefetch"] > 0, "none, it reads in line"),
    )  # fmt: skip


def _missing_readers(tables: Tables) -> str:
    """Return in words the worst measured shortage of readers, or how many readers a worker without readers needs."""
    frame = _reader_needs(tables)
    frame = frame[frame["basis"] == "measured"]
    if frame.empty:
        return ""
    has_readers = frame["prefetch"] > 0
    shortages = frame[has_readers & (frame["readers_needed_low"] > frame["readers"])]
    if len(shortages):
        row: Any = largest_row(shortages.assign(missing=shortages["readers_needed"] / shortages["readers"]), "missing")
        readers_words = f"{number(row['readers_needed'], 2)} readers for b = {row['worker_batch']}"
        subject = f"{row['network']} from {row['storage']} needs {readers_words} on each worker"
        return f"{subject} at {placement_in_words(row)}, and has {row['readers']}"
    starving_rows = frame[~has_readers & (frame["utilisation_high"] < BUSY_SHARE)]
    if len(starving_rows):
        row = largest_row(starving_rows, "readers_needed")
        needed = math.ceil(row["readers_needed"])
        advice = (
            f"{needed} reader{'s' if needed > 1 else ''} ahead would keep a worker busy at {placement_in_words(row)}"
        )
        return f"{row['network']} from {row['storage']} reads in line; {advice}"
    return "Every worker is fed by the readers that it has"


data_share = Drawing(_draw_share, _longest_wait)
readers = Drawing(_draw_readers, _missing_readers)
