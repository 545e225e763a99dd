"""Speedup of each layer type at falling mini-batch (Keuper & Pfreundt, Figs. 7 and 8)."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, shapes
from stallpoint.report.charts.labels import smallest_row
from stallpoint.report.charts.layer_scaling import SMALL, falling_batch, layer_scaling

LINE = replace(shapes.MEASURED, width="share")


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network and hardware, a curve for each layer type that takes time, as wide as its share."""
    frame = layer_scaling(tables, all_layers=False)
    return falling_batch(frame[~_small(frame)], "layer_type", "layer type", LINE)


def _small(frame: pd.DataFrame) -> pd.Series[bool]:
    small = frame.groupby(["panel", "layer_type"])["share"].transform("max") < SMALL
    return small if not small.all() else small & False


def finding(tables: Tables) -> str:
    """Return the layer types, of those that take time, whose speedup is smallest at the smallest mini-batch."""
    frame = layer_scaling(tables, all_layers=False)
    large = frame[~_small(frame)]
    worst = smallest_row(large[large["worker_batch"] == large["worker_batch"].min()], "speedup")
    gone = sorted(set(frame["layer_type"]) - set(large["layer_type"]))
    excluded = f"; not drawn, below {100 * SMALL:.0f} % of the time: {', '.join(gone)}" if gone else ""
    return f"{worst['network']}: {worst['layer_type']} gains least, {worst['speedup']:.2g} times{excluded}"
