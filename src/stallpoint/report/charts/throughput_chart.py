"""Samples per second, efficiency and node-hours of each network's fastest curve."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, shapes
from stallpoint.report.charts.labels import estimate, label, largest_row, leading_first, placement_in_words, rows
from stallpoint.strategies.presets import NONE
from stallpoint.text import number

CELLS = "train cells with scaling strong or weak"
MEASURES = ("samples per second", "efficiency [%]", "node-hours per million samples")
PER_MILLION = 1e6 / 3600
LABELS = "datum.value < 1e4 ? format(datum.value, '~g') : format(datum.value, '~s')"
"""Thousands are shortened; thousandths are not, as 200m reads like millions."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each measure (and hardware entry), a line for each network."""
    frame = _measures(tables)
    tips = {"network": "network", "series": "curve", "ranks": axes.workers(frame), "basis": "basis",
            "shown": "(90 % interval)"}  # fmt: skip
    return shapes.curves(frame, axes.ranks_x(frame), y_axis(), tips, colour="network", own=["y"])


def y_axis() -> alt.Y:
    """Return an axis for panels of different quantities, each with its own logarithmic scale."""
    axis = alt.Axis(labelExpr=LABELS, tickCount=5)
    return alt.Y("value:Q", title=None, scale=alt.Scale(type="log", nice=False), axis=axis)


def fastest(tables: Tables, table: str) -> pd.DataFrame:
    """Return the rows of `table` of the fastest curve of each network and hardware, each curve's name as ``series``."""
    frame = rows(tables, table, CELLS)
    frame = frame[(frame["scaling"] != "compute") & (frame["sync"] != NONE)]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    leads = leading_first(frame, tables).query("lead").drop(columns="lead")
    return leads.assign(series=label(leads, ["scaling", "sync", "batch"]))


def _measures(tables: Tables) -> pd.DataFrame:
    """Return the three measures of the fastest curve of each network and hardware, measured and predicted."""
    leads = fastest(tables, "predictions")
    found = [
        one.assign(basis=basis)
        for basis in ("measured", "predicted")
        for one in _of(leads, basis)
    ]  # fmt: skip
    frame = pd.concat(found)
    several = leads["hardware"].nunique() > 1
    frame["panel"] = frame["measure"] + (("\n" + frame["hardware"]) if several else "")
    order = frame["measure"].map(MEASURES.index)
    return frame.assign(order=order).sort_values(["order", "hardware", "network", "ranks"], kind="stable")


def _of(leads: pd.DataFrame, basis: str) -> list[pd.DataFrame]:
    """Return a frame for each measure; ends of quantities that fall with the iteration time are swapped."""
    time = {end: leads[f"{basis}_iteration{end}"] for end in ("", "_low", "_high")}
    swapped = {"": "", "_low": "_high", "_high": "_low"}
    more = leads["ranks"] / leads.groupby(["network", "hardware"])["ranks"].transform("min")
    quantities = (
        {end: leads["global_batch"] / time[swapped[end]] for end in time},
        {end: 100 * leads[f"{basis}_speedup{end}"] / more for end in time},
        {end: PER_MILLION * leads["nodes"] * time[end] / leads["global_batch"] for end in time},
    )
    return [
        estimate(leads.assign(measure=name, **{f"quantity{end}": found for end, found in of.items()}), "quantity")
        for name, of in zip(MEASURES, quantities, strict=True)
    ]


def finding(tables: Tables) -> str:
    """Return the cost of a sample on the most measured workers over that on the fewest, where it differs most."""
    frame = _measures(tables).query("basis == 'measured'")
    cost = frame[frame["measure"] == MEASURES[2]].sort_values("ranks")
    curves = cost.groupby(["network", "hardware"])
    ends = {"first": curves["value"].first(), "last": curves["value"].last()}
    ends |= {name: curves[name].last() for name in ("ranks", "workers_per_node")}
    known = pd.DataFrame(ends).reset_index().query("ranks > 1")
    if known.empty:
        return ""
    worst = largest_row(known.assign(ratio=known["last"] / known["first"]), "ratio")
    ratio, placement = number(worst["ratio"], 2), placement_in_words(worst)
    if ratio == "1":
        return f"{worst['network']}: a sample costs as many node-hours at {placement} as on the fewest"
    return f"{worst['network']}: a sample costs {ratio} times the node-hours at {placement}"
