"""Shared parts of the three charts of compute time at falling mini-batch."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, shapes, theme
from stallpoint.report.charts.labels import estimate, rows
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number

CELLS = "train cells with scaling: compute"
RING = theme.RED
"""Colour of the ring around a disturbed point."""
AS_ON = "as on n nodes"
"""Title of the column that `as_on_nodes` adds."""


def layer_scaling(tables: Tables, *, all_layers: bool) -> pd.DataFrame:
    """Return the table with a panel for each network and hardware: the rows of all layers together, or of each type."""
    frame = rows(tables, "layer_scaling", CELLS)
    frame = frame[(frame["layer_type"] == "all") == all_layers]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    panel = frame["network"] + " · " + frame["hardware"]
    return frame.assign(panel=panel).sort_values(["network", "hardware", "worker_batch"], kind="stable")


SMALL = 0.02
"""Share of the compute time below which, at every mini-batch, layer types are merged."""


def merge_small_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Return shares (``value``) with the `SMALL` layer types of each panel as one, ``other``."""
    small = frame.groupby(["panel", "layer_type"])["share"].transform("max") < SMALL
    keys = ["panel", "network", "hardware", "worker_batch"]
    others = frame[small].groupby(keys, sort=False)["value"].sum().reset_index()
    shown = [f"{number(share)} %" for share in others["value"]]
    named = others.assign(layer_type="other", shown=shown, low=others["value"], high=others["value"])
    # A type with that name is merged, too.
    kept = frame[~small]
    clash = kept["layer_type"] == "other"
    return pd.concat([kept[~clash], kept[clash].assign(layer_type="other layers"), named])


def falling_batch(frame: pd.DataFrame, field: str, title: str, line: Line) -> alt.FacetChart:
    """Return speedup curves over the mini-batch, a colour for each `field`, drawn as `line`, and the ideal line.

    Points of a `frame` with ``disturbed`` are ringed.
    """
    curves = as_on_nodes(estimate(frame, "speedup").assign(basis="measured", series=frame[field]))
    ideal = marks.ideal_rows(curves, "worker_batch", falling=True)
    x = axes.batch_x(curves)
    y = axes.ratio_y([*axes.reach(curves), ideal["value"].max()], "speedup over the largest b")
    rings = []
    if "disturbed" in frame and frame["disturbed"].notna().any():
        ring = marks.only("measured").transform_filter("datum.disturbed").mark_point(size=220, strokeWidth=1.6)
        tooltip = marks.tips(worker_batch="b [samples]", disturbed="disturbed iterations")
        rings = [ring.encode(x=x, y=y, shape=alt.value("circle"), color=alt.value(RING), tooltip=tooltip)]
    tips = {field: title, "worker_batch": "b [samples]", "n": AS_ON, "shown": "speedup (90 % interval)"}
    return shapes.curves(pd.concat([curves, ideal]), x, y, tips, [line], colour=field, before=rings)


def as_on_nodes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with ``n``: the workers among which the panel's largest mini-batch is split at b."""
    largest = frame.groupby("panel")["worker_batch"].transform("max")
    return frame.assign(n=[number(share) for share in largest / frame["worker_batch"]])
