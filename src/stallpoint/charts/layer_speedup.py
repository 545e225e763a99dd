"""Speedup of each layer type at falling mini-batch (Keuper & Pfreundt, Figs. 7 and 8)."""

from __future__ import annotations

import altair as alt

from stallpoint.charts import Tables
from stallpoint.charts.layer_scaling import falling_batch, layer_scaling


def draw(tables: Tables) -> alt.FacetChart:
    """A panel for each network and hardware, a curve for each layer type."""
    return falling_batch(layer_scaling(tables, all_layers=False), "layer_type", "layer type", bands=False)
