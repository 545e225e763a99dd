"""Speedup of matrix products at falling mini-batch (Keuper & Pfreundt, Fig. 9)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import Tables, axes, marks
from stallpoint.charts.frames import compact, estimate, rows
from stallpoint.charts.layer_scaling import AS_ON, as_on_nodes
from stallpoint.numerals import number

REFERENCE = "reference"


def draw(tables: Tables) -> alt.FacetChart:
    """A thin line for each layer, coloured by its type, and the reference product with its interval."""
    frame = rows(tables, "sgemm_speedup", "sgemm cells")
    frame = frame.sort_values(["network", "hardware", "layer", "worker_batch"], kind="stable")
    curves = estimate(frame, "speedup").assign(
        panel=frame["network"] + " · " + frame["hardware"],
        series=frame["layer"],
        layer_type=frame["layer_type"].where(frame["layer"] != REFERENCE, REFERENCE),
        basis=frame["layer"].map({REFERENCE: REFERENCE}).fillna("layer"),
        rate=[f"{number(rate)} GFLOP/s" for rate in frame["gflops"]],
    )
    curves = as_on_nodes(curves)
    ideal = marks.ideal_rows(curves, "worker_batch", falling=True)
    x = axes.batch_x(curves)
    y = axes.ratio_y([*axes.reach(curves), ideal["value"].max()], "speedup over the largest b")
    columns = ["panel", "layer", "layer_type", "worker_batch", "basis", "value", "low", "high", "shown", "rate", "n"]
    columns.append("start")
    drawn = compact(pd.concat([axes.clipped(curves, y), ideal]), columns)
    curve = alt.Chart().encode(x=x, color=marks.colour(curves, "layer_type"), detail="layer:N")
    layer, reference = (curve.transform_filter(f"datum.basis == '{basis}'") for basis in ("layer", REFERENCE))
    tips = marks.tips(layer="layer", worker_batch="b [samples]", n=AS_ON, shown="speedup (90 % interval)", rate="rate")
    layers = [
        marks.ideal(x, y),
        layer.mark_line(strokeWidth=1.2, opacity=0.55).encode(y=y),
        marks.hover(layer, y).encode(tooltip=tips),
        marks.band(reference, y),
        reference.mark_line(strokeWidth=2.5).encode(y=y),
        marks.points(reference, y).encode(tooltip=tips),
    ]
    return marks.panels(layers, drawn)
