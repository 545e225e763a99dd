"""The study over time: visits in order, the sentinel, disturbed iterations."""

from __future__ import annotations

import json
import math

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.records.disturbances import REASONS, sentinels
from stallpoint.report.charts import Tables, marks, theme
from stallpoint.report.charts.labels import compact_rows, rows
from stallpoint.text import number

CELLS = "cells that were visited"
WIDTH, ROW = 640, 26
SENTINEL_ROWS = 4
"""Height of the sentinel's lane, in rows of the others."""
MIN_REACH = 1.0
"""Minimum range of the sentinel's lane, in doublings up and down."""
MIN_PAUSE = 1.0
"""Length, minutes, above which a pause between visits is cut out of the time axis."""
_VISIT = ["cell", "visit"]


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a panel for each hardware: its lanes are below each other, on one time axis."""
    visits = _place_visits(rows(tables, "visits", CELLS))
    first = visits[visits["rank"] == 0]
    ends, disturbed = _sentinels(visits, first), _disturbed_rows(tables, first)
    sentinel_range = _sentinel_range(ends)
    positions, labels = _lanes(first, disturbed, sentinel_range)
    top = max(positions.values()) + 0.75
    bars = first.assign(basis="visit", what=first["kind"], place=first["lane"].map(positions))
    ticks = disturbed.assign(basis="disturbed", place=disturbed["lane"].map(positions))
    height = SENTINEL_ROWS / sum(sentinel_range)
    for name in ("value", "low", "high"):
        ends[f"at_{name}"] = positions["sentinel"] + height * np.log2(ends[name])
    points = ends.assign(basis="sentinel", place=ends["at_value"])
    usual = first[["hardware"]].drop_duplicates().assign(basis="usual", place=positions["sentinel"])
    frame = pd.concat([bars, points, ticks, usual])
    frame = frame.astype(dict.fromkeys(("nodes", "visit", "position", "iterations"), float))
    frame = frame.assign(panel=frame["hardware"], below=frame["place"] - 0.36, above=frame["place"] + 0.36)
    chart = _chart(frame, labels, [-0.75, top]).properties(width=WIDTH, height=round(ROW * (top + 0.75)))
    facet: alt.FacetChart = chart.facet(
        facet=alt.Facet("panel:N", title=None, header=alt.Header(labelAnchor="start")), columns=1
    )
    return facet


def _chart(frame: pd.DataFrame, labels: dict[float, str], domain: list[float]) -> alt.LayerChart:
    """Return all marks on one time axis; `labels` maps the vertical position of each lane to its name."""
    span = alt.Scale(domain=[0, float(f"{frame['end'].max():.5g}")], nice=False)
    x = alt.X("start:Q", title="time since the first visit, pauses excluded [min]", scale=span)
    texts = {f"{place:.3f}": text for place, text in labels.items()}
    axis = alt.Axis(
        values=list(labels),
        labelExpr=f"({json.dumps(texts)})[format(datum.value, '.3f')]",
        labelOverlap=False,
        ticks=False,
        grid=False,
        domain=False,
    )
    y = alt.Y("place:Q", title=None, scale=alt.Scale(domain=domain, nice=False, zero=False), axis=axis)
    # The legend names only the kinds of cells, as the axis names the reasons of disturbances.
    visited = set(frame.loc[frame["basis"] == "visit", "what"])
    kinds = theme.colours("visit", frame["what"].dropna())
    legend = alt.Legend(title=None, values=[kind for kind in kinds["domain"] if kind in visited])
    colour = alt.Color("what:N", scale=kinds, legend=legend)

    bars = marks.rows_of("visit").encode(
        x=x, x2="end:Q", y=marks.axis(y, "below"), y2="above:Q", color=colour,
        stroke=alt.Stroke("what:N", scale=kinds, legend=legend),
        tooltip=marks.tips(
            of="cell", nodes="nodes", visit="visit", position="position", seconds="duration", share="of that measured",
            what="kind",
        ),
    )  # fmt: skip
    sentinel = marks.rows_of("sentinel").encode(
        x=x,
        tooltip=marks.tips(shown="sentinel over its median", when="measured", of="cell", nodes="nodes", visit="visit"),
    )
    ticks = marks.rows_of("disturbed").encode(
        x=x, y=marks.axis(y, "below"), y2="above:Q", color=colour,
        tooltip=marks.tips(reason="disturbed by", iterations="iterations", of="cell", nodes="nodes", visit="visit"),
    )  # fmt: skip
    layers = (
        marks.rows_of("usual").mark_rule(style="ideal").encode(y=y),
        bars.mark_bar(strokeWidth=0.6),
        sentinel.mark_rule(color=theme.GREY, opacity=0.6).encode(y=marks.axis(y, "at_low"), y2="at_high:Q"),
        sentinel.mark_point(filled=True, size=22, opacity=1, color=theme.GREY).encode(y=y),
        ticks.mark_rule(strokeWidth=2),
    )
    chart: alt.LayerChart = alt.LayerChart(layer=layers, data=compact_rows(frame, marks.fields(layers, frame)))
    return chart


def _place_visits(visits: pd.DataFrame) -> pd.DataFrame:
    """Return visits with tooltips and ``start`` and ``end``, in minutes since the first visit to their hardware."""
    starts = pd.to_datetime(visits["started"], utc=True)
    visits = visits.assign(start=(starts - starts.min()).dt.total_seconds() / 60)
    visits["start"] -= _pauses(visits)
    return visits.assign(
        end=visits["start"] + visits["duration"] / 60,
        lane=[f"n = {nodes}" for nodes in visits["nodes"]],
        of=visits["cell"].map({path: _name(path) for path in visits["cell"].unique()}),
        seconds=[f"{number(seconds)} s" for seconds in visits["duration"]],
        share=[f"{100 * share:.0f} %" for share in visits["measuring"] / visits["duration"]],
    )


def _pauses(visits: pd.DataFrame) -> pd.Series:
    """Return the minutes cut out before each visit: those until the hardware's first visit, and later long pauses."""
    found = []
    for _, here in visits.sort_values("start").groupby("hardware"):
        last_end = (here["start"] + here["duration"] / 60).cummax().shift(fill_value=0.0)
        gap = here["start"] - last_end
        pauses = gap.where(gap > MIN_PAUSE, 0.0)
        pauses.iloc[0] = gap.iloc[0]
        found.append(pauses.cumsum())
    return pd.concat(found)


def _name(path: str) -> str:
    """Return a cell in words: ``train, alexnet, nodes 2, ...``. Its hardware is omitted, as it is the panel's name."""
    kind, *axes = path.split("/")
    axes_shown = [axis.replace("~", " ").removeprefix("network ") for axis in axes if not axis.startswith("hardware~")]
    return ", ".join([kind, *axes_shown])


def _sentinels(visits: pd.DataFrame, first: pd.DataFrame) -> pd.DataFrame:
    """Return the sentinel before and after each visit, relative to its usual time: median and range of ranks."""
    ratios, found = sentinels(visits), []
    for when, at in (("before", "start"), ("after", "end")):
        ratio = ratios[when]
        ranks = ratio[ratio > 0].groupby([visits[name] for name in _VISIT]).agg(["median", "min", "max"])
        ranks = ranks.set_axis(["value", "low", "high"], axis=1).reset_index()
        rows = first[["hardware", *_VISIT, "of", "nodes", "start", "end"]].merge(ranks, on=_VISIT)
        found.append(rows.assign(when=f"{when} the visit", start=rows[at], end=rows[at]))
    frame = pd.concat(found, ignore_index=True)
    texts = [
        number(value) + (f" ({number(low)} to {number(high)} over ranks)" if low < high else "")
        for value, low, high in zip(frame["value"], frame["low"], frame["high"], strict=True)
    ]
    return frame.assign(shown=texts)


def _disturbed_rows(tables: Tables, first: pd.DataFrame) -> pd.DataFrame:
    """Return the number of disturbed iterations for each visit and reason, placed in the middle of the visit."""
    table = tables.get("disturbances")
    columns = ["hardware", "of", "nodes", "visit", "start", "what", "lane", "reason", "iterations"]
    if table is None or table.empty:
        return pd.DataFrame(columns=columns)
    single = table.assign(what=table["reason"].str.split(", ")).explode("what")
    counts = single.groupby([*_VISIT, "what"]).size().rename("iterations").reset_index()
    found = counts.merge(first[["hardware", *_VISIT, "of", "nodes", "start", "end"]], on=_VISIT)
    return found.assign(start=(found["start"] + found["end"]) / 2, lane=found["what"], reason=found["what"])[columns]


def _sentinel_range(ends: pd.DataFrame) -> tuple[float, float]:
    """Return how many doublings the sentinel's lane shows below and above the usual speed."""
    logs = np.log2(ends[["low", "high"]].to_numpy(dtype=float).ravel())
    return (max(MIN_REACH, -logs.min(initial=0.0) * 1.05), max(MIN_REACH, logs.max(initial=0.0) * 1.05))


def _lanes(
    first: pd.DataFrame, disturbed: pd.DataFrame, sentinel_range: tuple[float, float]
) -> tuple[dict[str, float], dict[float, str]]:
    """Return the position of each lane, and the labels of the axis, by position.

    Lanes, from below: one for each reason of disturbances, the sentinel at its usual speed, visits by nodes.
    """
    present = set(disturbed["what"])
    reasons = [reason for reason in REASONS if reason in present]
    positions = {reason: float(at) for at, reason in enumerate(reversed(reasons))}
    labels = {at: reason for reason, at in positions.items()}
    if not reasons:
        labels[0.0] = "none disturbed"
    sentinel_bottom = max(len(reasons), 1) + 0.25
    height = SENTINEL_ROWS / sum(sentinel_range)
    positions["sentinel"] = round(sentinel_bottom + height * sentinel_range[0], 3)
    step = max(1, math.ceil(sum(sentinel_range) / SENTINEL_ROWS))
    for power in range(-int(sentinel_range[0] // step) * step, int(sentinel_range[1] // step) * step + 1, step):
        text = number(2.0**power)
        labels[round(positions["sentinel"] + height * power, 3)] = f"sentinel × {text}" if power == 0 else f"× {text}"
    for at, nodes in enumerate(sorted(first["nodes"].unique())):
        positions[f"n = {nodes}"] = sentinel_bottom + SENTINEL_ROWS + 0.75 + at
        labels[positions[f"n = {nodes}"]] = f"visits, n = {nodes}"
    return positions, labels
