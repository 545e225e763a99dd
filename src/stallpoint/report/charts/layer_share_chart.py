"""Share of each layer type in compute time, by mini-batch (Keuper & Pfreundt, Figs. 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, axes, marks, shapes
from stallpoint.report.charts.labels import estimate, largest_row
from stallpoint.report.charts.layer_scaling import AS_ON, as_on_nodes, layer_scaling, merge_small_types


def draw(tables: Tables) -> alt.FacetChart:
    """Draw stacked bars, the largest mini-batch left."""
    frame = merge_small_types(estimate(layer_scaling(tables, all_layers=False), "share", "%", scale=100))
    tips = {"layer_type": "layer type", "worker_batch": "b [samples]", "n": AS_ON, "shown": "share (90 % interval)"}
    return shares(as_on_nodes(frame), "share of compute time [%]", marks.colour(frame, "layer_type"), tips)


def shares(frame: pd.DataFrame, title: str, colour: alt.Color, tips: Mapping[str, str]) -> alt.FacetChart:
    """Return stacked shares (``value``) of the layer types, in the order of their colours, by mini-batch."""
    frame = frame.assign(order=frame["layer_type"].map(list(colour["scale"]["domain"]).index))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, 100], nice=False))
    x = marks.bars_x("worker_batch", axes.BATCH, falling=True)
    width = marks.bar_width(frame, "worker_batch")
    return shapes.bars(frame, x, y, colour, tips, order="order", width=width, own=["x"])


def finding(tables: Tables) -> str:
    """Return the layer type whose share grows most from the largest to the smallest mini-batch."""
    frame = layer_scaling(tables, all_layers=False).sort_values("worker_batch")
    of = frame.groupby(["network", "hardware", "layer_type"])["share"]
    ends = pd.DataFrame({"least": of.first(), "most": of.last()}).reset_index()
    grown = largest_row(ends.assign(by=ends["least"] - ends["most"]), "by")
    shares = f"from {100 * grown['most']:.0f} % to {100 * grown['least']:.0f} % of the compute time"
    return f"{grown['network']}: {grown['layer_type']} grows {shares}"
