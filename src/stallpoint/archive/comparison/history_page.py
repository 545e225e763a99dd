"""A machine over time as a web page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.archive.comparison.history import History, PastMachine
from stallpoint.archive.comparison.history_words import sentences_of
from stallpoint.base.frames import records
from stallpoint.base.statistics import NORMAL_INTERVAL
from stallpoint.report.charts import marks
from stallpoint.report.charts.labels import AXES, compact_rows, label, varies, with_interval
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import grid, page
from stallpoint.text import number

WIDTH, HEIGHT = 560, 220


def to_html(found: History) -> str:
    """Return the page ``history.html``."""
    return page("Is it getting slower?", _parts(found))


def _parts(found: History) -> Iterator[str | Spec]:
    for machine in found.machines:
        yield "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences_of(machine))
        step_words = f", a step at {machine.step_at}" if machine.step else ""
        title = f"{machine.hardware}: {machine.verdict}{step_words}"
        yield _chart(_slowdown_rows(machine), "time of an iteration over the first", title)
    for (network, hardware), rows in found.rates.groupby(["network", "hardware"]):
        yield _chart(_rate_rows(rows), "samples per second", f"Throughput of {network} on {hardware}")
    table = [
        [machine.hardware, row["name"], f"{row['began']:%Y-%m-%d %H:%M}", number(float(np.exp(row["log"])))]
        for machine in found.machines
        for row in records(machine.slowdowns)
    ]
    yield f"<h2>Studies</h2>{grid(('hardware', 'study', 'began', 'time of an iteration over the first'), table)}"


def _slowdown_rows(machine: PastMachine) -> pd.DataFrame:
    """Return iteration times relative to the first study. Intervals contain the scatter of visits and of studies."""
    slowdowns = machine.slowdowns
    half_width = NORMAL_INTERVAL / 2 * np.hypot(slowdowns["error"], machine.between)
    ends = {"value": 0.0, "value_low": -half_width, "value_high": half_width}
    times = {name: np.exp(slowdowns["log"] + apart) for name, apart in ends.items()}
    return slowdowns.assign(**times, series=machine.hardware)


def _rate_rows(rows: pd.DataFrame) -> pd.DataFrame:
    varying_axes = [axis for axis in AXES if varies(rows, axis)]
    series = label(rows, varying_axes) + (" · " if varying_axes else "") + "n = " + rows["ranks"].astype(str)
    return rows.rename(columns={"low": "value_low", "high": "value_high"}).assign(series=series)


def _chart(rows: pd.DataFrame, quantity: str, title: str) -> Spec:
    shown_rows = rows.assign(shown=with_interval(rows, "value"), low=rows["value_low"], high=rows["value_high"])
    shown_rows = compact_rows(shown_rows, ["series", "name", "value", "low", "high", "shown"]).assign(
        began=[f"{began:%Y-%m-%dT%H:%M:%S}" for began in rows["began"]]
    )
    x = alt.X("began:T", title=None)
    y = alt.Y("value:Q", title=quantity, scale=alt.Scale(type="log", nice=False))
    tips = [*marks.tips(name="study", series="of", shown=quantity), alt.Tooltip("began:T", title="began")]
    base = alt.Chart().encode(x=x, color=marks.colour(shown_rows, "series"), tooltip=tips)
    layers = [base.mark_line(strokeWidth=1, opacity=0.5).encode(y=y), marks.error_bars(base, y), marks.points(base, y)]
    return {**to_spec(alt.layer(*layers, data=shown_rows).properties(width=WIDTH, height=HEIGHT)), "title": title}
