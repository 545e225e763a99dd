"""Speedup of one worker at falling mini-batch, as if communication were free (Keuper & Pfreundt, Fig. 4)."""

from __future__ import annotations

from dataclasses import replace

import altair as alt

from stallpoint.report.charts import Tables, shapes
from stallpoint.report.charts.labels import least
from stallpoint.report.charts.layer_scaling import falling_batch, layer_scaling
from stallpoint.text import number

LINE = replace(shapes.MEASURED, intervals="band")
MANY = 0.25
"""Share of disturbed iterations from which on a point is marked."""


def draw(tables: Tables) -> alt.FacetChart:
    """A panel for each network, a curve for each hardware (which the legend or else the panel names)."""
    frame = layer_scaling(tables, all_layers=True)
    if frame["hardware"].nunique() > 1:
        frame = frame.assign(panel=frame["network"])
    many = frame["disturbed"] > MANY * frame["iterations"]
    told = frame["disturbed"].astype(str) + " of " + frame["iterations"].astype(str)
    return falling_batch(frame.assign(disturbed=told.where(many)), "hardware", "hardware", LINE)


def finding(tables: Tables) -> str:
    """The speedup at the smallest mini-batch beside the ideal one, where it falls short most."""
    frame = layer_scaling(tables, all_layers=True)
    place = frame.groupby(["network", "hardware"])["worker_batch"]
    frame = frame.assign(workers=place.transform("max") / frame["worker_batch"])
    ends = frame[frame["worker_batch"] == place.transform("min")]
    at = least(ends.assign(part=ends["speedup"] / ends["workers"]), "part")
    reached = f"{number(at['workers'])} workers reach {number(at['speedup'], 2)} times"
    return f"{at['network']}: with free communication {reached}"
