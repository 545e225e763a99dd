"""Gains of what-if scenarios, at a few numbers of workers."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, marks, shapes
from stallpoint.report.charts.labels import (
    arrange,
    estimate,
    largest_row,
    placement_in_words,
    rows,
    sort_by_lead,
    with_interval,
)

BASELINE = "as measured"
MAX_N = 3
"""Maximum number of worker counts that are shown: the fewest beyond one, the most, and one between."""


def draw(tables: Tables) -> alt.FacetChart:
    """Draw each scenario's gain in throughput over the measured cluster with as many workers, the largest on top."""
    frame = _gains(tables)
    unit = axes.unit(frame)
    x = _axis(frame)
    frame = frame.assign(time=with_interval(frame, "iteration", "s"), ranks=frame["ranks"].astype(str))
    tips = {"scenario": "scenario", "ranks": unit, "shown": "gain (90 % interval)", "time": "iteration"}
    behind = [marks.line_at(1, "x")]
    return shapes.dots(frame, x, "scenario", "ranks", tips, title=unit, height=34, width=220, behind=behind)


def _gains(tables: Tables) -> pd.DataFrame:
    """Return the gains of all scenarios but the measured cluster itself, at the numbers of workers that are shown."""
    table = rows(tables, "what_if", "what_if in the study, or train cells with scaling strong or weak")
    frame = estimate(sort_by_lead(arrange(table, own_panel=True), tables), "gain", "times")
    frame = frame[frame["scenario"] != BASELINE]
    if frame.empty:
        raise NoData("no scenario of what_if could be predicted from the cells that were measured")
    return frame[frame["ranks"].isin(_shown_counts([n for n in sorted(frame["ranks"].unique()) if n > 1] or [1]))]


def _shown_counts(counts: list[int]) -> list[int]:
    return list(dict.fromkeys([counts[0], counts[len(counts) // 2], counts[-1]])) if len(counts) >= MAX_N else counts


def _axis(frame: pd.DataFrame) -> alt.X:
    """Return a log2 axis of the gain that contains every interval."""
    domain = axes.log_domain([*frame["value"], *frame["low"], *frame["high"], 1])
    axis = alt.Axis(values=axes.log2_ticks(domain), labelExpr="'×' + format(datum.value, '~g')")
    title = f"gain on as many {axes.unit(frame)} (predicted)"
    return alt.X("value:Q", title=title, scale=alt.Scale(type="log", base=2, domain=domain, nice=False), axis=axis)


def finding(tables: Tables) -> str:
    """Return the finding: the scenario that surely gains most, on the most workers shown of fastest curves."""
    frame = _gains(tables).query("lead")
    gaining_scenarios = frame[(frame["ranks"] == frame["ranks"].max()) & (frame["low"] > 1)]
    if gaining_scenarios.empty:
        return "No scenario gains for sure: every interval holds ×1"
    best = largest_row(gaining_scenarios, "value")
    words = f"{best['scenario']} gains most, {best['value']:.1f} times"
    return f"{best['network']}: {words} at {placement_in_words(best)} (predicted)"
