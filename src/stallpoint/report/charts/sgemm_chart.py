"""Speedup of matrix products at falling mini-batch (Keuper & Pfreundt, Fig. 9)."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import estimate, rows
from stallpoint.report.charts.layers_chart import N_TITLE, with_node_counts
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

REFERENCE, LAYERS, OUTLIER = "reference", "layers", "outlier"
LINES = (
    Line(LAYERS, theme.SOLID, "band", width=2),
    Line(OUTLIER, theme.SOLID, width=1.2),
    Line(REFERENCE, theme.SOLID, "band", points=True, width=2.5),
)
MAX_LINES = 4
"""Maximum number of lines for a layer type: its layers or, if it has more, its outliers from a band of 80 %."""
PANEL_POINT = ["panel", "network", "hardware", "worker_batch"]


def draw(tables: Tables) -> alt.FacetChart:
    """Draw the speedup of the reference product and of layers' products. Few layers have a line each, many one band."""
    curves = _curves(tables)
    drawn = with_node_counts(pd.concat([curves[curves["layer"] == REFERENCE], *_shown_layers(curves)]))
    ideal = marks.ideal_rows(drawn, "worker_batch", is_falling=True)
    x = axes.batch_x(drawn)
    y = axes.ratio_y([*axes.span(drawn), ideal["value"].max()], "speedup over the largest b")
    names = marks.rows_of(OUTLIER).mark_text(style="row", align="right", dx=-5).encode(x=x, y=y, text="named:N")
    tips = {"layer": "layer", "worker_batch": "b [samples]", "n": N_TITLE, "shown": "speedup", "rate": "rate"}
    drawn = pd.concat([drawn, ideal])
    return shapes.curves(drawn, x, y, tips, LINES, colour="layer_type", details=["layer"], overlay=[names])


def _curves(tables: Tables) -> pd.DataFrame:
    frame = rows(tables, "sgemm_speedup", "sgemm cells")
    frame = frame.sort_values(["network", "hardware", "layer", "worker_batch"], kind="stable")
    curves = estimate(frame, "speedup")
    if curves.empty:
        raise NoData("no sgemm cells at two mini-batches or more")
    return curves.assign(
        panel=curves["network"] + " · " + curves["hardware"],
        series=curves["layer"],
        layer_type=curves["layer_type"].where(curves["layer"] != REFERENCE, REFERENCE),
        basis=curves["layer"].map({REFERENCE: REFERENCE}).fillna(OUTLIER),
        rate=[f"{number(rate)} GFLOP/s" for rate in curves["gflops"]],
        named="",
    )


def _shown_layers(curves: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the layers of each panel and type: lines if there are few, else a band and lines of its outliers."""
    for (_, kind), layers in curves[curves["layer"] != REFERENCE].groupby(["panel", "layer_type"]):
        if layers["layer"].nunique() <= MAX_LINES:
            yield _name_layers(layers)
            continue
        yield _band(layers, str(kind))
        ratio = layers["value"] / layers.groupby(PANEL_POINT)["value"].transform("median")
        distance = ratio.map(np.log).groupby(layers["layer"]).mean().abs()
        low, high = distance.quantile([0.25, 0.75])
        outliers = distance[distance > high + 1.5 * (high - low)].nlargest(MAX_LINES).index
        yield _name_layers(layers[layers["layer"].isin(outliers)])


def _band(layers: pd.DataFrame, kind: str) -> pd.DataFrame:
    count = layers["layer"].nunique()
    quantiles = layers.groupby(PANEL_POINT)["value"].quantile(np.array([0.1, 0.5, 0.9])).unstack()
    edges = quantiles.set_axis(["low", "value", "high"], axis=1)
    ends = zip(edges["value"], edges["low"], edges["high"], strict=True)
    texts = [f"{number(value)} (80 % of {count} layers: {number(low)} to {number(high)})" for value, low, high in ends]
    names = {"layer": f"all {count} of {kind}", "series": kind, "layer_type": kind, "basis": LAYERS}
    return edges.reset_index().assign(**names, shown=texts, rate="", named="")


def _name_layers(layers: pd.DataFrame) -> pd.DataFrame:
    """Return `layers` with ``named``: the layer's name in the row of its smallest mini-batch, empty in other rows."""
    is_smallest = layers["worker_batch"] == layers.groupby("layer")["worker_batch"].transform("min")
    return layers.assign(named=layers["layer"].where(is_smallest, ""))


def finding(tables: Tables) -> str:
    """Return the finding: the median layer's speedup at the smallest mini-batch, and the ideal speedup."""
    curves = _curves(tables)
    layers = curves[curves["layer"] != REFERENCE]
    if layers.empty:
        return ""
    smallest, largest = layers["worker_batch"].min(), layers["worker_batch"].max()
    speedup = layers.loc[layers["worker_batch"] == smallest, "value"].median()
    times = f"{number(speedup, 2)} times as fast as at b = {largest}, not {number(largest / smallest)}"
    return f"At b = {smallest} the median layer's products are {times}"
