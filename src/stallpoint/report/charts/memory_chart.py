"""Peak memory of training against the mini-batch, and the memory available to a worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.models.terms.peaks import MEMORY_AXES
from stallpoint.report.charts import NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import axis_text, estimate, rows, varies, with_interval
from stallpoint.report.charts.shapes import Line
from stallpoint.strategies.presets import NONE
from stallpoint.text import number

KEY = [*MEMORY_AXES, "memory"]
CELLS = "train cells"
LINES = (replace(shapes.MEASURED, dash=None), Line("predicted", theme.DASHED, hover=False))
GIB = 2.0**-30
LINE_POINTS = 25
"""Number of points on a predicted line."""
MAX_END_RATIO = 4
"""Lines end at this multiple of the largest measured b at most, so that measurements stay visible."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network, hardware and kind of memory, a series for each preset."""
    measured = _measured_rows(tables)
    limits = rows(tables, "largest_batch", CELLS).pipe(_arrange_panels)
    limits = limits[limits["panel"].isin(measured["panel"])]
    lines: pd.DataFrame = pd.concat([_line(row, measured) for _, row in limits.iterrows()])
    available = limits[limits["available"].notna()].groupby("panel", as_index=False).first()
    limit = available.assign(basis="available", value=available["available"] * GIB)
    x = axes.counts_x(measured, "worker_batch", axes.BATCH, extra_values=lines["worker_batch"])
    y = axes.log10_y([*axes.span(measured), *lines["value"], *limit["value"]], "most memory [GiB]")
    tips = {"series": "preset", "worker_batch": "b [samples]", "shown": "(90 % interval)", "parts": "of it"}
    return shapes.curves(pd.concat([measured, lines, limit]), x, y, tips, LINES, behind=[marks.limit("available", y)])


def _measured_rows(tables: Tables) -> pd.DataFrame:
    frame = estimate(rows(tables, "memory", CELLS), "peak", "GiB", GIB)
    names = ("process", "weights", "gradients", "optimiser", "rest")
    sizes = (frame[list(names)] * GIB).to_dict("records")
    parts = [", ".join(f"{name} {number(size)}" for name, size in row.items() if size > 0) for row in sizes]
    return _arrange_panels(frame.assign(basis="measured", parts=parts))


def _arrange_panels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with the columns ``panel`` and ``series``, sorted by `KEY`."""
    first = frame["network"] + " · " + frame["hardware"]
    panel = first + "\n" + frame["memory"] + " memory · " + axis_text(frame, "prefetch")
    if varies(frame, "workers_per_node"):
        panel = panel + " · " + frame["workers_per_node"].astype(str) + " workers a node"
    series = frame["sync"].where(frame["sync"] != NONE, "one worker")
    series = series.where(frame["shards"] == 1, series + ", " + frame["shards"].astype(str) + " shards")
    return frame.assign(panel=panel, series=series).sort_values(KEY, kind="stable")


def _line(row: pd.Series[Any], measured: pd.DataFrame) -> pd.DataFrame:
    """Return the line fixed + slope · b, from the smallest measured mini-batch b to the largest that fits, if known."""
    sizes = measured[(measured[KEY] == row[KEY]).all(axis=1)]["worker_batch"]
    if sizes.empty or pd.isna(row["fixed"]):
        return measured.iloc[:0]
    largest = sizes.max() if pd.isna(row["largest_batch"]) else min(row["largest_batch"], MAX_END_RATIO * sizes.max())
    b = np.geomspace(sizes.min(), largest, LINE_POINTS)
    value = (row["fixed"] + row["slope"] * b) * GIB
    return pd.DataFrame({**row.to_dict(), "worker_batch": b, "value": value, "basis": "predicted"})


def finding(tables: Tables) -> str:
    """Return the finding: the largest mini-batch that fits, of the training where this mini-batch is smallest."""
    frame = rows(tables, "largest_batch", CELLS)
    known = frame[frame["largest_batch"].notna()].sort_values("largest_batch", kind="stable")
    if known.empty:
        raise NoData("no train cells of one training at two mini-batches, for the largest that fits")
    row = known.iloc[0]
    batch = with_interval(known.iloc[:1], "largest_batch")[0]
    return f"{row['network']} on {row['hardware']}: b up to {batch} fits ({row['basis']})"
