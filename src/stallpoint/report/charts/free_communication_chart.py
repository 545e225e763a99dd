"""Speedup of one worker at falling mini-batch, as if communication were free (Keuper & Pfreundt, Fig. 4)."""

from __future__ import annotations

from dataclasses import replace

import altair as alt

from stallpoint.report.charts import Tables, shapes
from stallpoint.report.charts.labels import smallest_row
from stallpoint.report.charts.layer_scaling import falling_batch, layer_scaling
from stallpoint.text import number

LINE = replace(shapes.MEASURED, intervals="band")
MANY = 0.25
"""Share of disturbed iterations above which a point is marked."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network, a curve for each hardware (named by the legend, else by the panel)."""
    frame = layer_scaling(tables, all_layers=True)
    if frame["hardware"].nunique() > 1:
        frame = frame.assign(panel=frame["network"])
    many = frame["disturbed"] > MANY * frame["iterations"]
    counts = frame["disturbed"].astype(str) + " of " + frame["iterations"].astype(str)
    return falling_batch(frame.assign(disturbed=counts.where(many)), "hardware", "hardware", LINE)


def finding(tables: Tables) -> str:
    """Return the speedup at the smallest mini-batch and the ideal one, where it falls short most."""
    frame = layer_scaling(tables, all_layers=True)
    batches = frame.groupby(["network", "hardware"])["worker_batch"]
    frame = frame.assign(workers=batches.transform("max") / frame["worker_batch"])
    ends = frame[frame["worker_batch"] == batches.transform("min")]
    at = smallest_row(ends.assign(part=ends["speedup"] / ends["workers"]), "part")
    reached = f"{number(at['workers'])} workers reach {number(at['speedup'], 2)} times"
    return f"{at['network']}: with free communication {reached}"
