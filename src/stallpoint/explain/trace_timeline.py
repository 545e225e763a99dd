"""Activity of a rank in one iteration, as spans in lanes: the host, and each stream or thread that it uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallpoint.explain.intervals import Intervals, both, union
from stallpoint.explain.iterations import LOADING, blocking
from stallpoint.explain.rank import Rank
from stallpoint.inputs.events import CALL, COPY, FILL, MARK, OPERATOR

COMPUTE, COMMUNICATION, COPIES, WAIT, DATA = "compute", "communication", "copy", "wait", "data wait"
HOST = "host"
"""Kind of a device's host's operators and calls, which only start work."""
FINEST = 1 / 1000
"""Minimum gap between two spans of one kind, as a fraction of an iteration."""


@dataclass(frozen=True)
class Span:
    """Activity of one kind in a lane; begin and end in s since the iteration began."""

    lane: str
    kind: str
    begin: float
    end: float


def spans(rank: Rank, iteration: int) -> list[Span]:
    """Return the spans within an iteration."""
    begin, end = float(rank.iterations.begin[iteration]), float(rank.iterations.end[iteration])
    gap = FINEST * (end - begin)
    return [
        Span(lane, kind, float(first - begin), float(last - begin))
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
        yield lane, kind, both(union(events.start[chosen], events.end[chosen]), window)
    started, own = rank.started, rank.started.events
    copies = np.isin(own.kind, (COPY, FILL))
    for lane in np.unique(started.lane):
        only = started.lane == lane
        name = f"{'stream' if rank.on_device else 'Gloo'} {lane + 1}"
        for kind, chosen in (
            (COMPUTE, started.computes), (COMMUNICATION, started.communicates), (COPIES, copies),
        ):  # fmt: skip
            mine = only & chosen
            yield name, kind, both(union(own.start[mine], own.end[mine]), window)


def _without_gaps(when: Intervals, gap: float) -> Intervals:
    """Return intervals with gaps below `gap` closed, each at least `gap` long."""
    if not len(when):
        return when
    joined = union(when[:, 0], when[:, 1] + gap)
    joined[:, 1] -= gap
    joined[:, 1] = np.maximum(joined[:, 1], joined[:, 0] + gap)
    return joined
