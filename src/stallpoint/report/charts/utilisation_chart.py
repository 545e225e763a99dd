"""Utilisation of devices and link by each network's fastest curve, where it was measured."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, shapes
from stallpoint.report.charts.labels import estimate, largest_row, placement_in_words
from stallpoint.report.charts.throughput_chart import CELLS, fastest, y_axis
from stallpoint.text import number

FLOPS, LINK = "model FLOP/s of a worker", "bandwidth of the gradients"
MEASURES = {FLOPS: ("flops", 1e-9, "GFLOP/s"), LINK: ("link", 1e-6, "MB/s")}
"""Measure -> column, and the unit without a rating."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each measure (and hardware entry), a line for each network."""
    frame = _measures(tables).assign(basis="measured")
    tips = {"network": "network", "series": "curve", "ranks": axes.workers(frame), "shown": "(90 % interval)"}
    return shapes.curves(frame, axes.ranks_x(frame), y_axis(), tips, [shapes.MEASURED], colour="network", own=["y"])


def _measures(tables: Tables) -> pd.DataFrame:
    """Return both measures of the fastest curve of each network and hardware, in percent where the hardware is
    rated."""
    leads = fastest(tables, "utilisation")
    found = [_of(leads, measure).assign(measure=measure) for measure in MEASURES]
    frame = pd.concat([one for one in found if len(one)] or found)
    if frame.empty:
        raise NoData(f"no network of known size among the {CELLS}")
    several = leads["hardware"].nunique() > 1
    frame["panel"] = frame["measure"] + " [" + frame["unit"] + "]" + (("\n" + frame["hardware"]) if several else "")
    order = frame["measure"].map(list(MEASURES).index)
    return frame.assign(order=order).sort_values(["order", "hardware", "network", "ranks"], kind="stable")


def _of(leads: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return one measure; rated and unrated hardware have different units."""
    column, scale, unit = MEASURES[measure]
    rated = leads[f"{column}_share"].notna()
    shares = estimate(leads[rated], f"{column}_share", " %", 100).assign(unit="% of rated")
    return pd.concat([shares, estimate(leads[~rated], column, f" {unit}", scale).assign(unit=unit)])


def finding(tables: Tables) -> str:
    """Return the lowest share of the rated FLOP/s on the most workers."""
    frame = _measures(tables).query("measure == @FLOPS and unit == '% of rated'")
    if frame.empty:
        return ""
    last = frame[frame["ranks"] == frame.groupby(["network", "hardware"])["ranks"].transform("max")]
    least = largest_row(last.assign(unused=-last["value"]), "unused")
    return f"{least['network']}: {number(least['value'])} % of the rated FLOP/s on {placement_in_words(least)}"
