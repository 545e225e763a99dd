"""Throughput of the study's scaling curves by the chosen scaling law and by the DAG model."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, shapes, theme
from stallpoint.report.charts.labels import arrange, estimate, rows
from stallpoint.report.charts.shapes import Line

CELLS = "train cells with scaling strong or weak"
RATE = "samples_per_second"
LINES = {
    shapes.MEASURED: f"measured_{RATE}",
    Line("scaling law", theme.DASHED, "band"): RATE,
    Line("DAG model", theme.DOTTED): f"dag_{RATE}",
}


def draw(tables: Tables) -> alt.FacetChart:
    """Draw measured points, the chosen law with its band, the DAG model."""
    frame = rows(tables, "scaling_laws", CELLS)
    frame = arrange(frame[frame["law"] == "chosen"])
    if frame[RATE].isna().all():
        raise NoData(f"no {CELLS} at three or more numbers of workers")
    curves = pd.concat([estimate(frame, name).assign(basis=line.basis) for line, name in LINES.items()])
    y = axes.log10_y(axes.reach(curves), "throughput [samples/s]")
    tips = {"series": "series", "ranks": axes.workers(frame), "basis": "basis", "shown": "samples/s (90 % interval)",
            "note": "law"}  # fmt: skip
    return shapes.curves(curves, axes.ranks_x(curves), y, tips, list(LINES))
