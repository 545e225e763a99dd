"""Rates that scaling laws predict from the smaller worker counts, against what was measured."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, marks
from stallpoint.report.charts.labels import compact, rows
from stallpoint.text import number

CELLS = "train cells at four or more numbers of workers, nor external table with so many worker counts"


def draw(tables: Tables) -> alt.FacetChart:
    """One point for each count left out, a panel for each table."""
    frame = rows(tables, "law_validation", CELLS)
    frame = frame[frame["predicted"].notna()]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    frame = frame.assign(
        panel=frame["table"].map({table: _title(str(table), part) for table, part in frame.groupby("table")}),
        basis="measured",
        shown=[
            f"{number(value)} ({number(low)} to {number(high)}) /s"
            for value, low, high in zip(frame["predicted"], frame["lower"], frame["upper"], strict=True)
        ],
        off=[f"{error:+.1%}" for error in frame["error"]],
    )
    x, y, drawn = marks.agreement(frame, "", "samples/s")
    columns = ["panel", "series", "workers", "fitted_up_to", "basis", "measured", "predicted", "lower", "upper"]
    tips = marks.tips(
        series="series", workers="workers", fitted_up_to="fitted up to", measured="measured /s",
        shown="predicted (90 % interval)", off="prediction off by", law="law",
    )  # fmt: skip
    base = marks.only("measured")
    layers = [
        marks.only("ideal").mark_line(style="ideal").encode(x=x, y=y),
        base.mark_rule(clip=True, opacity=0.5).encode(x=x, y=marks.at(y, "lower"), y2="upper:Q"),
        base.mark_point(filled=True, size=35, opacity=0.8).encode(x=x, y=y, tooltip=tips),
    ]
    return marks.panels(layers, compact(drawn, [*columns, "shown", "off", "law"]))


def _title(table: str, part: pd.DataFrame) -> str:
    covered, median = int(part["covered"].sum()), part["error"].abs().median()
    return f"{table}\n{covered} of {len(part)} intervals hold it, median error {100 * median:.1f} %"
