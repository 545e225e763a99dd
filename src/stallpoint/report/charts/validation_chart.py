"""Iteration times at larger node counts, predicted from smaller ones, against measurements."""

from __future__ import annotations

from typing import Any

import altair as alt

from stallpoint.report.charts import Tables, axes, shapes
from stallpoint.report.charts.labels import against_measured, coverage, placement_in_words, rows

CELLS = "train cells on more workers than the fewest two counts"


def draw(tables: Tables) -> alt.FacetChart:
    """Draw one point for each held-out combination, a panel for each hardware and number of workers."""
    frame = rows(tables, "validation", CELLS)
    frame = against_measured(frame).assign(
        panel=coverage(frame, ["hardware", "ranks", "workers_per_node"], _panel_title)
    )
    tips = {
        "network": "network", "series": "series", "ranks": axes.workers(frame), "calibration": "training known at",
        "found": "measured", "shown": "predicted (90 % interval)", "off": "prediction off by",
    }  # fmt: skip
    return shapes.agreement(frame, " iteration", "s", tips, colour="network")


def _panel_title(one: Any) -> str:
    return f"{one['hardware']}, {placement_in_words(one)}"
