"""The small chart beside a verdict: speedup of one network on one hardware entry, with the stalling points."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, marks
from stallpoint.report.charts.labels import AXES, compact, label, rows, varies
from stallpoint.report.charts.speedup_chart import CELLS, curves

WIDTH, HEIGHT = 320, 130
MOST_CURVES = 4
"""Curves drawn; the chart of all speedups has the others too."""


def draw(tables: Tables, network: str, hardware: str, batch: int = 0) -> alt.TopLevelMixin:
    """The curves that get fastest, in one panel (of strong scaling at one B, if given); a legend for several."""
    place: dict[str, str | int] = {"network": network, "hardware": hardware}
    if batch:
        place |= {"scaling": "strong", "batch": batch}
    here = {name: _at(rows(tables, name, CELLS), place) for name in ("predictions", "stalling")}
    fastest = here["stalling"].nlargest(MOST_CURVES, "best_speedup")[list(AXES)]
    predictions = here["predictions"].merge(fastest, on=list(AXES))
    varying = [axis for axis in AXES if varies(predictions, axis)]
    named = predictions.assign(panel="", series=label(predictions, varying or ["sync"]))
    layers, frame = curves(here, named, title="speedup", legend=False)
    rows_drawn = compact(frame, marks.fields(layers, frame))
    chart: alt.TopLevelMixin = alt.layer(*layers, data=rows_drawn).properties(width=WIDTH, height=HEIGHT)
    return chart


def _at(frame: pd.DataFrame, place: dict[str, str | int]) -> pd.DataFrame:
    return frame[(frame[list(place)] == pd.Series(place)).all(axis=1)]
