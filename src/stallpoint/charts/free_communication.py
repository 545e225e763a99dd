"""Speedup of one worker at falling mini-batch, as if communication were free (Keuper & Pfreundt, Fig. 4)."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import Tables
from stallpoint.charts.layer_scaling import falling_batch, layer_scaling


def draw(tables: Tables) -> alt.FacetChart:
    """A panel for each network, a curve for each hardware (which the legend or else the panel names)."""
    frame = layer_scaling(tables, all_layers=True)
    if frame["hardware"].nunique() > 1:
        frame = frame.assign(panel=frame["network"])
    return falling_batch(frame, "hardware", "hardware", bands=True)
