"""Iteration times at larger node counts, predicted from smaller ones, against what was measured."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import NoData, Tables, marks
from stallpoint.charts.frames import ENDS, NEARBY, against_measured, compact, rows

CELLS = "train cells on more nodes than the fewest two"


def draw(tables: Tables) -> alt.FacetChart:
    """One point for each combination held out, a panel for each hardware and node count."""
    frame = rows(tables, "validation", CELLS)
    if frame.empty:
        raise NoData(f"no {CELLS}")
    panel = pd.Series("", index=frame.index)
    for _, part in frame.groupby(["hardware", "nodes"]):
        panel[part.index] = _title(part)
    frame = against_measured(frame).assign(panel=panel)
    x, y, drawn = marks.agreement(frame, " iteration", "s")
    columns = ["panel", "network", "series", "nodes", "calibration", "basis", *ENDS, "shown", "found", "off", *NEARBY]
    tips = marks.tips(
        network="network", series="series", nodes="nodes", calibration="training known at", found="measured",
        shown="predicted (90 % interval)", off="prediction off by",
    )  # fmt: skip
    return marks.panels(marks.compared(frame, x, y, tips), compact(drawn, columns))


def _title(part: pd.DataFrame) -> str:
    hardware, nodes = part["hardware"].iloc[0], part["nodes"].iloc[0]
    covered, median = int(part["covered"].sum()), part["error"].abs().median()
    return f"{hardware}, {nodes} nodes\n{covered} of {len(part)} intervals hold it, median error {100 * median:.1f} %"
