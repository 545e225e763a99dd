"""Compute and communication time by nodes as lines, as Keuper & Pfreundt, Fig. 3, draws them."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks
from stallpoint.report.charts.communication_chart import CELLS, COMPUTE, EXPOSED
from stallpoint.report.charts.labels import arrange, rows
from stallpoint.text import number

CURVE = ["network", "hardware", "scaling", "sync", "batch", "workers_per_node", "ranks"]
TIMES = {"communication": "communication", "exposed_communication": EXPOSED}


def draw(tables: Tables) -> alt.FacetChart:
    """Seconds of one iteration that go into computing, communicating, and waiting for communication."""
    predictions = rows(tables, "predictions", CELLS)
    predictions = predictions[predictions["scaling"] != "compute"]
    times = pd.concat([_times(predictions, basis) for basis in ("measured", "predicted")])
    # A single worker does not communicate; zero has no place on a logarithmic axis.
    times = times[times["value"] > 0]
    if not (times["time"] == "communication").any():
        raise NoData(f"no {CELLS}")
    # Communication hidden all but completely would stretch the axis over many empty decades.
    times = times[times["value"] >= times.loc[times["time"] != EXPOSED, "value"].min() / 5]
    frame = arrange(times.assign(storage="", prefetch=0), single=True)
    x, y = axes.ranks_x(frame), axes.log10_y(frame["value"], "time in one iteration [s]")
    tips = marks.tips(
        time="time", ranks=axes.workers(frame), basis="basis", shown="median (range over storages and prefetch)"
    )
    colour = marks.colour(frame, "time")
    line = alt.Chart().encode(x=x, y=y, color=colour, strokeDash=marks.dashes())
    exposed = f"datum.time == '{EXPOSED}'"
    # Without overlap all communication is exposed: the wide line then shows on both sides of the narrow one.
    layers = [
        line.transform_filter(exposed).mark_line(strokeWidth=4.5, opacity=0.6),
        line.transform_filter(f"!({exposed})").mark_line(),
        marks.hover(marks.only("predicted").encode(x=x, color=colour), y).encode(tooltip=tips),
        marks.points(marks.only("measured").encode(x=x, color=colour), y).encode(tooltip=tips),
    ]
    return marks.panels(layers, frame)


def _times(predictions: pd.DataFrame, basis: str) -> pd.DataFrame:
    """Median over storages and prefetch depths, with their range, one row for each kind of time."""
    compute = predictions[[f"{basis}_{part}" for part in COMPUTE]].sum(axis=1, skipna=False)
    wide = predictions[CURVE].assign(
        compute=compute, **{shown: predictions[f"{basis}_{name}"] for name, shown in TIMES.items()}
    )
    long = wide.melt(CURVE, var_name="time", value_name="value").dropna(subset="value")
    spread = long.groupby([*CURVE, "time"], sort=False)["value"].agg(["median", "min", "max"])
    ranges = zip(spread["median"], spread["min"], spread["max"], strict=True)
    shown = [f"{number(value)} s ({number(low)} to {number(high)})" for value, low, high in ranges]
    return spread["median"].rename("value").reset_index().assign(basis=basis, shown=shown)
