"""What the three charts of compute time at falling mini-batch share."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, axes, marks
from stallpoint.charts.frames import compact, estimate, rows
from stallpoint.numerals import number

CELLS = "train cells with scaling: compute"
AS_ON = "as on n nodes"
"""Title of the column that `as_on_nodes` adds."""


def layer_scaling(tables: Tables, *, all_layers: bool) -> pd.DataFrame:
    """The table with a panel for each network and hardware: the rows of all layers together, or of each type."""
    frame = rows(tables, "layer_scaling", CELLS)
    frame = frame[(frame["layer_type"] == "all") == all_layers]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    panel = frame["network"] + " · " + frame["hardware"]
    return frame.assign(panel=panel).sort_values(["network", "hardware", "worker_batch"], kind="stable")


def falling_batch(frame: pd.DataFrame, field: str, title: str, *, bands: bool) -> alt.FacetChart:
    """Speedup curves over the mini-batch, a colour for each `field`, with bands or error bars, and the ideal line."""
    curves = as_on_nodes(estimate(frame, "speedup").assign(basis="measured", series=frame[field]))
    ideal = marks.ideal_rows(curves, "worker_batch", falling=True)
    x = axes.batch_x(curves)
    y = axes.ratio_y([*axes.reach(curves), ideal["value"].max()], "speedup over the largest b")
    drawn = pd.concat([axes.clipped(curves, y), ideal])
    drawn = compact(drawn, ["panel", field, "worker_batch", "basis", "value", "low", "high", "shown", "n", "start"])
    measured = marks.only("measured").encode(x=x, color=marks.colour(curves, field))
    tips = marks.tips(**{field: title}, worker_batch="b [samples]", n=AS_ON, shown="speedup (90 % interval)")
    intervals = marks.band(measured, y) if bands else marks.error_bars(measured, y)
    layers = [marks.ideal(x, y), intervals, measured.mark_line().encode(y=y), marks.points(measured, y)]
    return marks.panels([*layers[:-1], layers[-1].encode(tooltip=tips)], drawn)


def as_on_nodes(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with ``n``: among how many workers the panel's largest mini-batch is split where b is left of it."""
    largest = frame.groupby("panel")["worker_batch"].transform("max")
    return frame.assign(n=[number(share) for share in largest / frame["worker_batch"]])
