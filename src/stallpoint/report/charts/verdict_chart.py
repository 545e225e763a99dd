"""The small chart of a verdict: speedup of one network on one hardware entry, with the stalling points."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import Tables, marks
from stallpoint.report.charts.labels import AXES, compact, label, rows, varies
from stallpoint.report.charts.speedup_chart import CELLS, curves

WIDTH, HEIGHT = 320, 130
MAX_CURVES = 4
"""Number of curves drawn; the chart of all speedups has the others too."""


def draw(tables: Tables, network: str, hardware: str, batch: int = 0) -> alt.TopLevelMixin:
    """Draw the fastest curves, in one panel (of strong scaling at one B, if given); a legend for several."""
    chosen: dict[str, str | int] = {"network": network, "hardware": hardware}
    if batch:
        chosen |= {"scaling": "strong", "batch": batch}
    here = {name: _at(rows(tables, name, CELLS), chosen) for name in ("predictions", "stalling")}
    fastest = here["stalling"].nlargest(MAX_CURVES, "best_speedup")[list(AXES)]
    predictions = here["predictions"].merge(fastest, on=list(AXES))
    varying = [axis for axis in AXES if varies(predictions, axis)]
    named = predictions.assign(panel="", series=label(predictions, varying or ["sync"]))
    layers, frame = curves(here, named, title="speedup", legend=False)
    rows_drawn = compact(frame, marks.fields(layers, frame))
    chart: alt.TopLevelMixin = alt.layer(*layers, data=rows_drawn).properties(width=WIDTH, height=HEIGHT)
    return chart


def _at(frame: pd.DataFrame, chosen: dict[str, str | int]) -> pd.DataFrame:
    return frame[(frame[list(chosen)] == pd.Series(chosen)).all(axis=1)]
