"""Staleness of the gradients that servers applied."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, shapes
from stallpoint.report.charts.labels import largest_row, rows
from stallpoint.text import number

CELLS = "train or convergence cells with servers that answer each worker for itself"
TRAINING = ["network", "hardware", "ranks", "sync"]


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network, hardware and number of workers, a line for each preset."""
    frame = _shares(tables)
    frame = frame.assign(
        panel=frame["network"] + " · " + frame["hardware"] + "\n" + frame["ranks"].astype(str) + " workers",
        series=frame["sync"],
        basis="measured",
        shown=[f"{number(value)} %" for value in frame["value"]],
    )
    x = alt.X("staleness:Q", title="updates since the weights were taken", axis=alt.Axis(tickMinStep=1, grid=False))
    y = alt.Y("value:Q", title="share of gradients [%]")
    tips = {"series": "preset", "staleness": "staleness", "shown": "share"}
    return shapes.curves(frame, x, y, tips, [replace(shapes.MEASURED, intervals="", width=1.2)], own_axes=["x"])


def finding(tables: Tables) -> str:
    """Return the finding: the training with the largest mean staleness."""
    frame = _shares(tables)
    means = (frame["staleness"] * frame["value"] / 100).groupby([frame[name] for name in TRAINING]).sum()
    row = largest_row(means.rename("mean").reset_index(), "mean")
    return f"{row['network']}, {row['sync']} on {row['ranks']} workers: {number(row['mean'])} updates on average"


def _shares(tables: Tables) -> pd.DataFrame:
    """Return the share of gradients with each staleness, in %, over all mini-batches and storages of a training."""
    counts = rows(tables, "staleness_shares", CELLS).groupby([*TRAINING, "staleness"])["gradients"].sum()
    return (100 * counts / counts.groupby(TRAINING).transform("sum")).rename("value").reset_index()
