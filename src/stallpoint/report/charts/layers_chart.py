"""Compute time of one worker as its mini-batch falls: speedups of all layers together and of layer types, and shares of
layer types (Keuper & Pfreundt, Figs. 4 to 8)."""

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
LARGE_DISTURBED_SHARE = 0.25
"""Share of disturbed iterations above which a point has a ring."""


def _layer_scaling(tables: Tables, *, all_layers: bool) -> pd.DataFrame:
    """Return the rows of all layers together, or of each layer type, in panels of one network and hardware."""
    frame = rows(tables, "layer_scaling", CELLS)
    frame = frame[(frame["layer_type"] == "all") == all_layers]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    panel = frame["network"] + " · " + frame["hardware"]
    return frame.assign(panel=panel).sort_values(["network", "hardware", "worker_batch"], kind="stable")


def _is_small_type(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return for each row whether its layer type is small: it takes little time at every mini-batch of the panel."""
    return frame.groupby(["panel", "layer_type"])["share"].transform("max") < SMALL_SHARE


def with_node_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with ``n``, the number of workers, with b samples each, in the panel's largest mini-batch."""
    largest = frame.groupby("panel")["worker_batch"].transform("max")
    return frame.assign(n=[number(share) for share in largest / frame["worker_batch"]])


def _falling_batch(frame: pd.DataFrame, field: str, title: str, line: Line) -> alt.FacetChart:
    """Return curves of speedup over the mini-batch, coloured by `field`, in the style `line`, and the ideal line.

    If `frame` has a column ``disturbed``, disturbed points have a ring.
    """
    curves = with_node_counts(estimate(frame, "speedup").assign(basis="measured", series=frame[field]))
    ideal = marks.ideal_rows(curves, "worker_batch", is_falling=True)
    x = axes.batch_x(curves)
    y = axes.ratio_y([*axes.span(curves), ideal["value"].max()], "speedup over the largest b")
    rings = []
    if "disturbed" in frame and frame["disturbed"].notna().any():
        ring = marks.rows_of("measured").transform_filter("datum.disturbed").mark_point(size=220, strokeWidth=1.6)
        tooltip = marks.tips(worker_batch="b [samples]", disturbed="disturbed iterations")
        rings = [ring.encode(x=x, y=y, shape=alt.value("circle"), color=alt.value(theme.RED), tooltip=tooltip)]
    tips = {field: title, "worker_batch": "b [samples]", "n": N_TITLE, "shown": "speedup (90 % interval)"}
    return shapes.curves(pd.concat([curves, ideal]), x, y, tips, [line], colour=field, overlay=rings)


# --- speedup of all layers together ---------------------------------------------------------------


def _draw_all(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network, a curve for each hardware."""
    frame = _layer_scaling(tables, all_layers=True)
    if frame["hardware"].nunique() > 1:
        frame = frame.assign(panel=frame["network"])
    is_disturbed = frame["disturbed"] > LARGE_DISTURBED_SHARE * frame["iterations"]
    counts = frame["disturbed"].astype(str) + " of " + frame["iterations"].astype(str)
    line = replace(shapes.MEASURED, intervals="band")
    return _falling_batch(frame.assign(disturbed=counts.where(is_disturbed)), "hardware", "hardware", line)


def _shortest_of_ideal(tables: Tables) -> str:
    """Return the finding: the speedup at the smallest mini-batch of the curve furthest below the ideal speedup."""
    frame = _layer_scaling(tables, all_layers=True)
    batches = frame.groupby(["network", "hardware"])["worker_batch"]
    frame = frame.assign(workers=batches.transform("max") / frame["worker_batch"])
    ends = frame[frame["worker_batch"] == batches.transform("min")]
    worst = smallest_row(ends.assign(part=ends["speedup"] / ends["workers"]), "part")
    words = f"{number(worst['workers'])} workers reach {number(worst['speedup'], 2)} times"
    return f"{worst['network']}: with free communication {words}"


# --- speedup and share of each layer type ---------------------------------------------------------


def draw_speedups(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each network and hardware. A large layer type is a curve, as wide as the type's share."""
    frame = _large_types(_layer_scaling(tables, all_layers=False))
    return _falling_batch(frame, "layer_type", "layer type", replace(shapes.MEASURED, width="share"))


def _large_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of layer types that are not small, or all rows if every type is small."""
    small = _is_small_type(frame)
    return frame if small.all() else frame[~small]


def _least_gain(tables: Tables) -> str:
    """Return the finding: the layer type that is not small and gains least from the smallest mini-batch."""
    frame = _layer_scaling(tables, all_layers=False)
    large = _large_types(frame)
    worst = smallest_row(large[large["worker_batch"] == large["worker_batch"].min()], "speedup")
    types = sorted(set(frame["layer_type"]) - set(large["layer_type"]))
    note = f"; not drawn, below {100 * SMALL_SHARE:.0f} % of the time: {', '.join(types)}" if types else ""
    return f"{worst['network']}: {worst['layer_type']} gains least, {worst['speedup']:.2g} times{note}"


def draw_shares(tables: Tables) -> alt.FacetChart:
    """Draw a stacked bar for each mini-batch, from the largest to the smallest."""
    frame = _merge_small_types(estimate(_layer_scaling(tables, all_layers=False), "share", "%", scale=100))
    tips = {"layer_type": "layer type", "worker_batch": "b [samples]", "n": N_TITLE, "shown": "share (90 % interval)"}
    return shares(with_node_counts(frame), "share of compute time [%]", marks.colour(frame, "layer_type"), tips)


def _merge_small_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return shares (``value``) with the small layer types of each panel merged into one type, ``other``."""
    small = _is_small_type(frame)
    keys = ["panel", "network", "hardware", "worker_batch"]
    other_rows = frame[small].groupby(keys, sort=False)["value"].sum().reset_index()
    shown = [f"{number(share)} %" for share in other_rows["value"]]
    merged_rows = other_rows.assign(layer_type="other", shown=shown, low=other_rows["value"], high=other_rows["value"])
    # A layer type that is itself called "other" is renamed, so that it differs from the merged types.
    kept = frame[~small]
    is_other = kept["layer_type"] == "other"
    return pd.concat([kept[~is_other], kept[is_other].assign(layer_type="other layers"), merged_rows])


def shares(frame: pd.DataFrame, title: str, colour: alt.Color, tips: Mapping[str, str]) -> alt.FacetChart:
    """Return a chart of layer types' stacked shares (``value``) by mini-batch, in the order of their colours."""
    frame = frame.assign(order=frame["layer_type"].map(list(colour["scale"]["domain"]).index))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, 100], nice=False))
    x = marks.bars_x("worker_batch", axes.BATCH, is_falling=True)
    width = marks.bar_width(frame, "worker_batch")
    return shapes.bars(frame, x, y, colour, tips, order="order", width=width, own_axes=["x"])


def _largest_growth(tables: Tables) -> str:
    """Return the finding: the layer type whose share grows most from the largest to the smallest mini-batch."""
    frame = _layer_scaling(tables, all_layers=False).sort_values("worker_batch")
    shares_of = frame.groupby(["network", "hardware", "layer_type"])["share"]
    ends = pd.DataFrame({"least": shares_of.first(), "most": shares_of.last()}).reset_index()
    largest = largest_row(ends.assign(by=ends["least"] - ends["most"]), "by")
    shares = f"from {100 * largest['most']:.0f} % to {100 * largest['least']:.0f} % of the compute time"
    return f"{largest['network']}: {largest['layer_type']} grows {shares}"


free_communication = Drawing(_draw_all, _shortest_of_ideal)
layer_share = Drawing(draw_shares, _largest_growth)
layer_speedup = Drawing(draw_speedups, _least_gain)
