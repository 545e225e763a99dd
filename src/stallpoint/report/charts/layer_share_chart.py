"""Share of each layer type in compute time, by mini-batch (Keuper & Pfreundt, Figs. 5 and 6)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, marks
from stallpoint.report.charts.labels import compact, estimate, most
from stallpoint.report.charts.layer_scaling import AS_ON, as_on_nodes, layer_scaling, small_together


def draw(tables: Tables) -> alt.FacetChart:
    """Stacked bars, the largest mini-batch left."""
    frame = small_together(estimate(layer_scaling(tables, all_layers=False), "share", "%", scale=100))
    frame = as_on_nodes(frame)
    frame = compact(frame, ["panel", "layer_type", "worker_batch", "value", "shown", "n"])
    colour = marks.colour(frame, "layer_type")
    frame["order"] = frame["layer_type"].map({name: i for i, name in enumerate(colour["scale"]["domain"])})
    bars = alt.Chart().mark_bar(width={"band": marks.bar_width(frame, "worker_batch")}).encode(
        x=marks.bars_x("worker_batch", "mini-batch of one worker, b [samples]", falling=True),
        y=alt.Y("value:Q", title="share of compute time [%]", scale=alt.Scale(domain=[0, 100], nice=False)),
        color=colour,
        order="order:Q",
        tooltip=marks.tips(
            layer_type="layer type", worker_batch="b [samples]", n=AS_ON, shown="share (90 % interval)"
        ),
    )  # fmt: skip
    return marks.panels([bars], frame, independent_x=True)


def finding(tables: Tables) -> str:
    """The layer type whose share grows most from the largest to the smallest mini-batch."""
    frame = layer_scaling(tables, all_layers=False).sort_values("worker_batch")
    of = frame.groupby(["network", "hardware", "layer_type"])["share"]
    ends = pd.DataFrame({"least": of.first(), "most": of.last()}).reset_index()
    grown = most(ends.assign(by=ends["least"] - ends["most"]), "by")
    shares = f"from {100 * grown['most']:.0f} % to {100 * grown['least']:.0f} % of the compute time"
    return f"{grown['network']}: {grown['layer_type']} grows {shares}"
