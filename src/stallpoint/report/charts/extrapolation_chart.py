"""Rates that scaling laws predict from the smaller worker counts, against measurements."""

from __future__ import annotations

import altair as alt

from stallpoint.report.charts import NoData, Tables, shapes
from stallpoint.report.charts.labels import coverage, rows, with_interval

CELLS = "train cells at four or more numbers of workers, nor external table with so many worker counts"


def draw(tables: Tables) -> alt.FacetChart:
    """Draw one point for each held-out count, a panel for each table."""
    frame = rows(tables, "law_validation", CELLS)
    frame = frame[frame["predicted"].notna()]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    frame = frame.rename(columns={"lower": "predicted_low", "upper": "predicted_high"})
    frame = frame.assign(
        panel=coverage(frame, ["table"], lambda one: str(one["table"])),
        shown=with_interval(frame, "predicted", "/s"),
        off=[f"{error:+.1%}" for error in frame["error"]],
    )
    tips = {
        "series": "series", "workers": "workers", "fitted_up_to": "fitted up to", "measured": "measured /s",
        "shown": "predicted (90 % interval)", "off": "prediction off by", "law": "law",
    }  # fmt: skip
    return shapes.agreement(frame, "", "samples/s", tips)
