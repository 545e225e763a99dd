"""Throughput of the study's scaling curves by the chosen scaling law and by the DAG model."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, theme
from stallpoint.report.charts.labels import arrange, compact, estimate, rows

CELLS = "train cells with scaling strong or weak"
RATE = "samples_per_second"
BASES = {"measured": f"measured_{RATE}", "scaling law": RATE, "DAG model": f"dag_{RATE}"}
TITLE = "throughput [samples/s]"


def draw(tables: Tables) -> alt.FacetChart:
    """Measured points, the chosen law with its band, the DAG model."""
    frame = rows(tables, "scaling_laws", CELLS)
    frame = arrange(frame[frame["law"] == "chosen"])
    if frame[RATE].isna().all():
        raise NoData(f"no {CELLS} at three or more numbers of workers")
    curves = pd.concat([estimate(frame, name).assign(basis=basis) for basis, name in BASES.items()])
    x, y = axes.ranks_x(curves), axes.log10_y(axes.reach(curves), TITLE)
    colour, shape = marks.by_preset(curves)
    tips = marks.tips(
        series="series", ranks=axes.workers(frame), basis="basis", shown="samples/s (90 % interval)", note="law"
    )
    dash = alt.StrokeDash(
        "basis:N",
        scale=alt.Scale(domain=list(BASES), range=[theme.SOLID, theme.DASHED, theme.DOTTED]),
        legend=alt.Legend(title=None, symbolType="stroke", symbolSize=marks.DASH_SIZE),
    )
    measured = marks.only("measured").encode(x=x, color=colour)
    layers = [
        marks.band(marks.only("scaling law").encode(x=x, color=colour), y),
        alt.Chart().mark_line().encode(x=x, y=y, color=colour, strokeDash=dash),
        marks.hover(alt.Chart().encode(x=x, color=colour), y).encode(tooltip=tips),
        marks.error_bars(measured, y),
        marks.points(measured, y, shape).encode(tooltip=tips),
    ]
    columns = ["panel", "series", "ranks", "basis", "value", "low", "high", "shown", "note"]
    return marks.panels(layers, compact(axes.clipped(curves, y), columns))
