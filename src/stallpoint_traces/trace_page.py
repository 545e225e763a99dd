"""Parts of a page about traces: for each rank the answer, a timeline, other worker counts, and gains of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.report.charts import axes, marks, shapes, theme
from stallpoint.report.charts.render import Spec, to_spec
from stallpoint.report.charts.web_page import grid
from stallpoint.text import number
from stallpoint_files import rank_chart
from stallpoint_traces.formats.events import CALL, COPY, FILL, MARK, OPERATOR, Trace
from stallpoint_traces.rank.intervals import Intervals, intersection, union
from stallpoint_traces.rank.iterations import CAUSES, LOADING, blocking, median_index
from stallpoint_traces.rank.rank import Rank
from stallpoint_traces.trace_words import WORDS, cause, joint_sentences, prediction, sentences

WIDTH = 720
LANE = 26
_MIN_RANGE = (0.9, 1.1)
"""Minimum range of the gain axis, so that negligible gains look negligible."""
_SEEN = 1 / 1000
"""Minimum fraction of an iteration for the bar of a cause to be visible."""
COMPUTE, COMMUNICATION, COPIES, WAIT, DATA = "compute", "communication", "copy", "wait", "data wait"
HOST = "host"
"""Kind of host operators and calls that only start work on a device."""
MIN_GAP = 1 / 1000
"""Minimum gap between two spans of one kind, as a fraction of an iteration."""
_KINDS = {
    COMPUTE: theme.VERMILION, COMMUNICATION: theme.BLUE,
    COPIES: theme.LIME, HOST: theme.LILAC,
    WAIT: theme.GREY, DATA: theme.GREEN,
}  # fmt: skip


_CAUSES = dict(zip(CAUSES, (
    theme.VERMILION, theme.BLUE, theme.LIME, theme.GREEN, theme.GREY, theme.LILAC, theme.OLIVE,
), strict=True))  # fmt: skip


def parts(ranks: Sequence[tuple[Trace, Rank | None]], reports: Sequence[dict[str, Any]]) -> Iterator[str | Spec]:
    """Yield the parts of a page from `explain`'s `reports`: joint ones first, then each of several ranks folded."""
    yield "".join(f"<p>{escape(sentence)}</p>" for sentence in joint_sentences(reports))
    yield from (rank_chart.draw(one["stragglers"]["cells"]) for one in reports if one["stragglers"])
    if sum(one["seconds"] is not None for one in reports) > 1:
        yield _ranks_chart(reports)
    if len(reports) > 1:
        yield _notes_list([note for note in reports[0]["notes"] if all(note in one["notes"] for one in reports)])
    for (_, rank), one in zip(ranks, reports, strict=True):
        head = f"{escape(one['file'])}: rank {one['rank']} of {one['world_size']}"
        if len(reports) > 1:
            yield f"<details><summary>{head}</summary>"
            yield from _rank_parts(rank, one)
            yield "</details>"
        else:
            yield f"<h2>{head}</h2>"
            yield from _rank_parts(rank, one)


def _rank_parts(rank: Rank | None, one: dict[str, Any]) -> Iterator[str | Spec]:
    yield "".join(f"<p>{escape(sentence)}</p>" for sentence in (*sentences(one), *prediction(one)))
    if rank:
        yield _timeline(rank)
    if one["seconds"]:
        yield _causes_chart(one)
    if one["predicted"]:
        yield _speedup_chart(one)
        yield _gains_chart(one["predicted"])
    if one["collectives"]:
        yield f"<details><summary>Collectives</summary>{_collectives_table(one['collectives'])}</details>"
    yield _notes_list(one["notes"])


def _notes_list(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else ""


def _ranks_chart(reports: Sequence[dict[str, Any]]) -> Spec:
    """Return the causes of the iteration time on each of several ranks, a bar for each."""
    known = [one for one in reports if one["seconds"]]
    found = [name for name in CAUSES if any(one["seconds"][name] > _SEEN * one["iteration_seconds"] for one in known)]
    rows = pd.DataFrame(
        [(f"rank {one['rank']}", WORDS[name], position, 1e3 * one["seconds"][name])
         for one in known for position, name in enumerate(CAUSES) if name in found],
        columns=["rank", "cause", "order", "ms"],
    )  # fmt: skip
    colours = alt.Scale(domain=[WORDS[name] for name in found], range=[_CAUSES[name] for name in found])
    legend = alt.Legend(columns=2, labelLimit=320)
    chart = (
        alt.Chart(rows[rows["ms"] > 0])
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="of an iteration, medians [ms]"),
            y=alt.Y("rank:N", title=None, sort=list(dict.fromkeys(rows["rank"]))),
            color=alt.Color("cause:N", title=None, scale=colours, legend=legend),
            order="order:Q",
        )
        .properties(width=WIDTH - 60, height=alt.Step(max(6, min(22, 900 // len(known)))))
    )
    return _titled(chart, "What an iteration's time goes to, on each rank")


def _titled(chart: alt.TopLevelMixin, title: str) -> Spec:
    return {**to_spec(chart), "title": title}


def _timeline(rank: Rank) -> Spec:
    position = median_index(rank.iterations.seconds)
    rows = pd.DataFrame(
        [(one.lane, one.kind, 1e3 * one.begin, 1e3 * one.end) for one in spans(rank, position)],
        columns=["lane", "kind", "begin", "end"],
    )
    found = [kind for kind in _KINDS if kind in set(rows["kind"])]
    x = alt.X("begin:Q", title="since the iteration began [ms]", scale=alt.Scale(nice=False, zero=True))
    y = alt.Y("lane:N", title=None, sort=list(dict.fromkeys(rows["lane"])), axis=alt.Axis(labelOverlap=False))
    colours = alt.Scale(domain=found, range=[_KINDS[kind] for kind in found])
    chart = (
        alt.Chart(rows)
        .mark_bar(height=LANE - 8)
        .encode(x=x, x2="end:Q", y=y, color=alt.Color("kind:N", title=None, scale=colours))
        .properties(width=WIDTH, height=alt.Step(LANE))
    )
    return _titled(chart, f"Timeline of the iteration that takes the median time (number {position + 1})")


def _causes_chart(one: dict[str, Any]) -> Spec:
    rows = pd.DataFrame(
        [(cause(one, name), 1e3 * one["seconds"][name]) for name in CAUSES if one["seconds"][name]],
        columns=["cause", "ms"],
    )
    rows["share"] = [f"{number(ms / one['iteration_seconds'] / 10, 2)} %" for ms in rows["ms"]]
    y = alt.Y("cause:N", title=None, sort=list(rows["cause"]), axis=alt.Axis(labelLimit=400, labelOverlap=False))
    x = alt.X("ms:Q", title="of an iteration, median [ms]")
    base = alt.Chart(rows).encode(y=y, x=x)
    chart = alt.layer(
        base.mark_bar(color=theme.BLUE), base.mark_text(align="left", dx=4).encode(text="share:N")
    ).properties(width=WIDTH - 340, height=alt.Step(22))
    return _titled(chart, "What an iteration's time goes to")


def _speedup_chart(one: dict[str, Any]) -> Spec:
    rows = pd.DataFrame([
        {"workers": at["workers"], "basis": "measured" if at["workers"] == one["world_size"] else "predicted",
         "value": at["speedup"], "low": at["speedup_low"], "high": at["speedup_high"]}
        for at in one["predicted"]["workers"]
    ])  # fmt: skip
    y = axes.ratio_y([1, rows["workers"].max(), *rows["low"]], "throughput relative to one replica")
    tips = {"workers": "workers", "basis": "basis", "value": "speedup"}
    chart = shapes.over_workers(rows, y, tips, width=WIDTH // 2, height=WIDTH // 3)
    return _titled(chart, "Speedup at other worker counts, each worker with its mini-batch; 90 % intervals")


def _gains_chart(found: dict[str, Any]) -> Spec:
    rows = pd.DataFrame(
        [
            (at["change"], *(at[f"throughput_factor{end}"] for end in ("", "_low", "_high")))
            for at in found["what_if"]
        ],
        columns=["change", "gain", "low", "high"],
    )  # fmt: skip
    ends = [min(rows["low"].min(), _MIN_RANGE[0]), max(rows["high"].max(), _MIN_RANGE[1])]
    x = alt.X("gain:Q", title="times the throughput", scale=alt.Scale(zero=False, domain=ends))
    y = alt.Y("change:N", title=None, sort=list(rows["change"]), axis=alt.Axis(labelLimit=260, labelOverlap=False))
    base = alt.Chart(rows).encode(y=y)
    chart = alt.layer(
        alt.Chart(pd.DataFrame({"one": [1.0]})).mark_rule(style="ideal").encode(x=marks.axis(x, "one")),
        base.mark_rule(strokeWidth=1.5).encode(x=marks.axis(x, "low"), x2="high:Q"),
        base.mark_point(filled=True, size=50, opacity=1).encode(x=x),
    ).properties(width=WIDTH - 220, height=alt.Step(22))
    return _titled(chart, f"What if, on {found['what_if_workers']} workers; 90 % intervals")


def _collectives_table(rows: Sequence[dict[str, Any]]) -> str:
    head = ("kind", "algorithm", "protocol", "MB", "ranks", "in an iteration", "median ms", "shortest ms")
    return grid(head, [[
        row["kind"] or "-", row["algorithm"] or "-", row["protocol"] or "-",
        "-" if row["bytes"] is None else number(row["bytes"] / 1e6), str(row["group_size"] or "-"),
        number(row["per_iteration"], 2), number(1e3 * row["seconds"]), number(1e3 * row["shortest_seconds"]),
    ] for row in rows])  # fmt: skip


@dataclass(frozen=True)
class LaneSpan:
    """Activity of one kind in a lane; begin and end in s since the iteration began."""

    lane: str
    kind: str
    begin: float
    end: float


def spans(rank: Rank, iteration: int) -> list[LaneSpan]:
    """Return the spans within an iteration."""
    begin, end = float(rank.iterations.begin[iteration]), float(rank.iterations.end[iteration])
    gap = MIN_GAP * (end - begin)
    return [
        LaneSpan(lane, kind, float(first - begin), float(last - begin))
        for lane, kind, when in _lanes(rank, np.array([[begin, end]]))
        for first, last in _without_gaps(when, gap)
    ]


def _lanes(rank: Rank, window: Intervals) -> Iterator[tuple[str, str, Intervals]]:
    events = rank.trace.events
    waits = blocking(events)
    loads = (events.kind == MARK) & events.called(LOADING)
    works = np.isin(events.kind, (CALL, OPERATOR)) & ~waits
    for lane, kind, chosen in (
        ("host", HOST if rank.on_device else COMPUTE, works),
        ("host", WAIT, waits),
        ("host", DATA, loads),
    ):
        yield lane, kind, intersection(union(events.start[chosen], events.end[chosen]), window)
    started, own = rank.started, rank.started.events
    copies = np.isin(own.kind, (COPY, FILL))
    for lane in np.unique(started.lane):
        only = started.lane == lane
        name = f"{'stream' if rank.on_device else 'Gloo'} {lane + 1}"
        for kind, chosen in (
            (COMPUTE, started.computes), (COMMUNICATION, started.communicates), (COPIES, copies),
        ):  # fmt: skip
            mine = only & chosen
            yield name, kind, intersection(union(own.start[mine], own.end[mine]), window)


def _without_gaps(when: Intervals, gap: float) -> Intervals:
    """Return intervals with gaps below `gap` closed, each at least `gap` long."""
    if not len(when):
        return when
    joined = union(when[:, 0], when[:, 1] + gap)
    joined[:, 1] -= gap
    joined[:, 1] = np.maximum(joined[:, 1], joined[:, 0] + gap)
    return joined
