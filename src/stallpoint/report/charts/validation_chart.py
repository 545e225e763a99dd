"""Iteration times at larger node counts, predicted from smaller ones, against what was measured."""

from __future__ import annotations

from typing import Any

import altair as alt

from stallpoint.report.charts import Tables, axes, shapes
from stallpoint.report.charts.labels import against_measured, at_place, coverage, rows

CELLS = "train cells on more workers than the fewest two counts"


def draw(tables: Tables) -> alt.FacetChart:
    """One point for each combination held out, a panel for each hardware and number of workers."""
    frame = rows(tables, "validation", CELLS)
    frame = against_measured(frame).assign(panel=coverage(frame, ["hardware", "ranks", "workers_per_node"], _place))
    tips = {
        "network": "network", "series": "series", "ranks": axes.workers(frame), "calibration": "training known at",
        "found": "measured", "shown": "predicted (90 % interval)", "off": "prediction off by",
    }  # fmt: skip
    return shapes.agreement(frame, " iteration", "s", tips, colour="network")


def _place(one: Any) -> str:
    return f"{one['hardware']}, {at_place(one)}"
