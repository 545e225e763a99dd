"""What a rank did in one iteration, as spans in lanes: the host, and each stream or thread that it started work in."""

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
"""Operators and calls of the host of a device, which computes itself: the host starts that."""
FINEST = 1 / 1000
"""Part of an iteration below which a gap between two spans of one kind is not told."""


@dataclass(frozen=True)
class Span:
    """Something of one kind in a lane; s since the iteration began."""

    lane: str
    kind: str
    begin: float
    end: float


def spans(rank: Rank, iteration: int) -> list[Span]:
    """The spans of an iteration; what was started in it may end after it."""
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
    """Intervals that lie closer together than `gap`, as one; those that stay shorter are as long."""
    if not len(when):
        return when
    joined = union(when[:, 0], when[:, 1] + gap)
    joined[:, 1] -= gap
    joined[:, 1] = np.maximum(joined[:, 1], joined[:, 0] + gap)
    return joined
