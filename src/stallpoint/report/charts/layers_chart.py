"""Compute time of one worker by falling mini-batch: speedups of all layers and of layer types, and shares of types
(Keuper & Pfreundt, Figs. 4 to 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import altair as alt
import pandas as pd

from stallpoint.report.charts import Drawing, NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import estimate, largest_row, rows, smallest_row
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

CELLS = "train cells with scaling: compute"
N_TITLE = "as on n nodes"
"""Title of the column that `with_node_counts` adds."""
SMALL_SHARE = 0.02
"""Layer types whose share of the compute time is smaller at every mini-batch are merged or not drawn."""
MANY_DISTURBED = 0.25
"""Share of disturbed iterations above which a point has a ring."""


def _layer_scaling(tables: Tables, *, all_layers: bool) -> pd.DataFrame:
    """Return the rows of the sum of all layers, or of each layer type, with a panel for each network and hardware."""
    frame = rows(tables, "layer_scaling", CELLS)
    frame = frame[(frame["layer_type"] == "all") == all_layers]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    panel = frame["network"] + " · " + frame["hardware"]
    return frame.assign(panel=panel).sort_values(["network", "hardware", "worker_batch"], kind="stable")


def _is_small_type(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row's layer type takes little time at every mini-batch of its panel."""
    return frame.groupby(["panel", "layer_type"])["share"].transform("max") < SMALL_SHARE


def with_node_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with ``n``: how many workers split the panel's largest mini-batch into parts of b samples."""
    largest = frame.groupby("panel")["worker_batch"].transform("max")
    return frame.assign(n=[number(share) for share in largest / frame["worker_batch"]])


def _falling_batch(frame: pd.DataFrame, field: str, title: str, line: Line) -> alt.FacetChart:
    """Return speedup curves over the mini-batch, in colours by `field` and the style `line`, and the ideal line.

    If `frame` has ``disturbed``, disturbed points are ringed.
    """
    curves = with_node_counts(estimate(frame, "speedup").assign(basis="measured", series=frame[field]))
    ideal = marks.ideal_rows(curves, "worker_batch", falling=True)
    x = axes.batch_x(curves)
    y = axes.ratio_y([*axes.reach(curves), ideal["value"].max()], "speedup over the largest b")
    rings = []
    if "disturbed" in frame and frame["disturbed"].notna().any():
        ring = marks.only("measured").transform_filter("datum.disturbed").mark_point(size=220, strokeWidth=1.6)
        tooltip = marks.tips(worker_batch="b [samples]", disturbed="disturbed iterations")
        rings = [ring.encode(x=x, y=y, shape=alt.value("circle"), color=alt.value(theme.RED), tooltip=tooltip)]
    tips = {field: title, "worker_batch": "b [samples]", "n": N_TITLE, "shown": "speedup (90 % interval)"}
    return shapes.curves(pd.concat([curves, ideal]), x, y, tips, [line], colour=field, before=rings)


# --- sum of all layers ----------------------------------------------------------------------------


def _draw_all(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network, a curve for each hardware, named by the legend or the panel."""
    frame = _layer_scaling(tables, all_layers=True)
    if frame["hardware"].nunique() > 1:
        frame = frame.assign(panel=frame["network"])
    many = frame["disturbed"] > MANY_DISTURBED * frame["iterations"]
    counts = frame["disturbed"].astype(str) + " of " + frame["iterations"].astype(str)
    line = replace(shapes.MEASURED, intervals="band")
    return _falling_batch(frame.assign(disturbed=counts.where(many)), "hardware", "hardware", line)


def _shortest_of_ideal(tables: Tables) -> str:
    """Return the speedup at the smallest mini-batch and the ideal speedup, for the curve furthest below the ideal."""
    frame = _layer_scaling(tables, all_layers=True)
    batches = frame.groupby(["network", "hardware"])["worker_batch"]
    frame = frame.assign(workers=batches.transform("max") / frame["worker_batch"])
    ends = frame[frame["worker_batch"] == batches.transform("min")]
    at = smallest_row(ends.assign(part=ends["speedup"] / ends["workers"]), "part")
    reached = f"{number(at['workers'])} workers reach {number(at['speedup'], 2)} times"
    return f"{at['network']}: with free communication {reached}"


# --- layer types ----------------------------------------------------------------------------------


def draw_speedups(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network and hardware, a curve for each large layer type, as wide as its share."""
    frame = _large_types(_layer_scaling(tables, all_layers=False))
    return _falling_batch(frame, "layer_type", "layer type", replace(shapes.MEASURED, width="share"))


def _large_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of layer types that are not small; all rows if all types are small."""
    small = _is_small_type(frame)
    return frame if small.all() else frame[~small]


def _least_gain(tables: Tables) -> str:
    """Return the layer type, of those not small, with the smallest speedup at the smallest mini-batch."""
    frame = _layer_scaling(tables, all_layers=False)
    large = _large_types(frame)
    worst = smallest_row(large[large["worker_batch"] == large["worker_batch"].min()], "speedup")
    gone = sorted(set(frame["layer_type"]) - set(large["layer_type"]))
    excluded = f"; not drawn, below {100 * SMALL_SHARE:.0f} % of the time: {', '.join(gone)}" if gone else ""
    return f"{worst['network']}: {worst['layer_type']} gains least, {worst['speedup']:.2g} times{excluded}"


def draw_shares(tables: Tables) -> alt.FacetChart:
    """Draw a stacked bar for each mini-batch, from the largest to the smallest."""
    frame = _merge_small_types(estimate(_layer_scaling(tables, all_layers=False), "share", "%", scale=100))
    tips = {"layer_type": "layer type", "worker_batch": "b [samples]", "n": N_TITLE, "shown": "share (90 % interval)"}
    return shares(with_node_counts(frame), "share of compute time [%]", marks.colour(frame, "layer_type"), tips)


def _merge_small_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return shares (``value``) in which the small layer types of each panel are merged into one type, ``other``."""
    small = _is_small_type(frame)
    keys = ["panel", "network", "hardware", "worker_batch"]
    others = frame[small].groupby(keys, sort=False)["value"].sum().reset_index()
    shown = [f"{number(share)} %" for share in others["value"]]
    named = others.assign(layer_type="other", shown=shown, low=others["value"], high=others["value"])
    # A layer type that is itself called "other" is renamed, so that it differs from the merged types.
    kept = frame[~small]
    named_other = kept["layer_type"] == "other"
    return pd.concat([kept[~named_other], kept[named_other].assign(layer_type="other layers"), named])


def shares(frame: pd.DataFrame, title: str, colour: alt.Color, tips: Mapping[str, str]) -> alt.FacetChart:
    """Return a chart of stacked shares (``value``) of layer types by mini-batch, in the order of their colours."""
    frame = frame.assign(order=frame["layer_type"].map(list(colour["scale"]["domain"]).index))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, 100], nice=False))
    x = marks.bars_x("worker_batch", axes.BATCH, falling=True)
    width = marks.bar_width(frame, "worker_batch")
    return shapes.bars(frame, x, y, colour, tips, order="order", width=width, own=["x"])


def _largest_growth(tables: Tables) -> str:
    """Return the layer type whose share grows most from the largest to the smallest mini-batch."""
    frame = _layer_scaling(tables, all_layers=False).sort_values("worker_batch")
    of = frame.groupby(["network", "hardware", "layer_type"])["share"]
    ends = pd.DataFrame({"least": of.first(), "most": of.last()}).reset_index()
    grown = largest_row(ends.assign(by=ends["least"] - ends["most"]), "by")
    shares = f"from {100 * grown['most']:.0f} % to {100 * grown['least']:.0f} % of the compute time"
    return f"{grown['network']}: {grown['layer_type']} grows {shares}"


free_communication = Drawing(_draw_all, _shortest_of_ideal)
layer_share = Drawing(draw_shares, _largest_growth)
layer_speedup = Drawing(draw_speedups, _least_gain)
