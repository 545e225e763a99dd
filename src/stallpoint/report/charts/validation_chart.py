"""Iteration times at larger node counts, predicted from smaller ones, against what was measured."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks
from stallpoint.report.charts.labels import ENDS, NEARBY, against_measured, at_place, compact, rows

CELLS = "train cells on more workers than the fewest two counts"


def draw(tables: Tables) -> alt.FacetChart:
    """One point for each combination held out, a panel for each hardware and number of workers."""
    frame = rows(tables, "validation", CELLS)
    counted = axes.workers(frame)
    if frame.empty:
        raise NoData(f"no {CELLS}")
    panel = pd.Series("", index=frame.index)
    for _, part in frame.groupby(["hardware", "ranks", "workers_per_node"]):
        panel[part.index] = _title(part)
    frame = against_measured(frame).assign(panel=panel)
    x, y, drawn = marks.agreement(frame, " iteration", "s")
    columns = ["panel", "network", "series", "ranks", "calibration", "basis", *ENDS, "shown", "found", "off", *NEARBY]
    tips = marks.tips(
        network="network", series="series", ranks=counted, calibration="training known at", found="measured",
        shown="predicted (90 % interval)", off="prediction off by",
    )  # fmt: skip
    return marks.panels(marks.compared(frame, x, y, tips), compact(drawn, columns))


def _title(part: pd.DataFrame) -> str:
    hardware, place = part["hardware"].iloc[0], at_place(part.iloc[0])
    covered, median = int(part["covered"].sum()), part["error"].abs().median()
    return f"{hardware}, {place}\n{covered} of {len(part)} intervals hold it, median error {100 * median:.1f} %"
