"""Dependency graph of a traced iteration, with the host's threads and a device's streams.

After Daydream (Zhu et al., USENIX ATC 2020), dPRO (Hu et al., MLSys 2022) and Lumos (Liang et al., MLSys 2025): a task
takes its traced duration, and begins when its lane is free, after the call that started it. The host is reduced to the
points at which it starts a task or waits; the time between two points is as traced, without the time in calls that a
full device queue blocked. Two delays are constant over the trace: from a call to its task, and from one task of a lane
to the next. Traced starts of tasks decide which edges exist, not when a task starts in a replay.
Edges are:

- from a call to the task that it starts, and from one task of a lane to the next;
- from another lane, where a stream has to wait (``cudaStreamWaitEvent``): the next task that the calling thread starts
  follows all tasks started before. In a trace without such calls, collectives follow the computing started before, and
  the first computing task after an iteration's last collective follows all of its collectives;
- between kernels of two lanes, where one began as the other ended without another reason to wait: the device was full;
- to a point at which the host waited: for the device in a synchronising call or a blocking copy, for the backward pass
  in autograd's own thread, or for a collective of Gloo, if only its end explains the end of a pause.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stallpoint_traces.formats.events import CALL, COPY, KERNEL, MARK, OPERATOR, Events
from stallpoint_traces.rank.cycle_time import StreamTask
from stallpoint_traces.rank.device_activity import STEP, on_device
from stallpoint_traces.rank.intervals import Intervals, intersection, union
from stallpoint_traces.rank.iterations import LONG_CALL, OPTIMIZER, WAITING, Iterations
from stallpoint_traces.rank.started import Started

BACKWARD = re.compile(r"^autograd::engine::evaluate_function|^\w+Backward\d*$|^torch::autograd::AccumulateGrad")
"""Operators of autograd's backward pass; the second and third pattern match traces before 2022."""
_STREAM_WAIT = re.compile(r"StreamWaitEvent")
_COPY_CALLS = re.compile(r"^(?:cuda|hip)Memcpy")
_EQUAL = 1e-9
"""Maximum distance of two moments that count as equal, s."""
_ROUNDING = 1e-6
"""Maximum time by which an edge may be violated, due to rounding or two clocks of one machine, s."""
_LONG_PAUSE = 10.0
"""Minimum ratio of a pause to the host's median pause between operators for it to be waiting."""
_MAX_REST = 0.1
"""Maximum fraction of a pause, or of a kernel, that may remain at the end of the wait."""

HOST = 0
"""Number of the stream of the host's points; lanes follow."""


@dataclass
class _Point:
    """A moment at which a host thread starts tasks or waits."""

    time: float
    thread: int
    starts: list[int] = field(default_factory=list)
    """Indices in `Started` of the tasks that it starts."""
    lag: float | None = None
    """Delay after the end of the wait's cause, s; None if the point did not wait."""
    awaits: list[int] = field(default_factory=list)
    """Indices in `Started` of the tasks that it waited for."""
    joins: int | None = None
    """Thread whose last point this one waited for, or that woke this thread."""
    anew: bool = False
    """Whether the point depends only on `joins`, as its own thread was idle."""


def graphs(
    events: Events, found: Iterations, started: Started, slowdowns: Sequence[float] = (1.0,)
) -> Iterator[list[list[StreamTask]]]:
    """Yield the graphs of each iteration, one for each slowdown of the host.

    An iteration lasts from its start on the host to the next one's start. Keys of collectives are indices in `started`.
    """
    trace = _Trace(events, found, started)
    return ([trace.graph(index, slowdown) for slowdown in slowdowns] for index in range(len(found.seconds)))


class _Trace:
    """Data that the graphs of all iterations take from a trace."""

    def __init__(self, events: Events, found: Iterations, started: Started) -> None:
        self._found, self._started = found, started
        self._iteration = found.of(started.launch)
        self._main = _main_thread(events)
        self._latency, self._gap = _overheads(started)
        self._of_lane = [np.flatnonzero(started.lane == lane) for lane in np.unique(started.lane)]
        self._before = _waits_between_lanes(events, found, started)
        _add_full_device(self._before, started, self._latency, self._gap)
        self._points = sorted(self._all_points(events), key=lambda point: point.time)
        self._times = np.array([point.time for point in self._points])
        self._clocks = _working_clocks(events, started)

    def _all_points(self, events: Events) -> Iterator[_Point]:
        for index, (time, thread) in enumerate(zip(self._started.launch, self._started.by, strict=True)):
            yield _Point(float(time), int(thread), starts=[index])
        yield from _synchronising(events, self._started)
        yield from _backward_threads(events, self._main)
        if not len(self._started) or (self._started.events.kind == MARK).any():
            yield from _pauses(events, self._started, self._main)

    def graph(self, iteration: int, slowdown: float) -> list[StreamTask]:
        """Return the graph of an iteration, with a host that takes `slowdown` times its traced time."""
        begin, end = self._found.host_begin[iteration], self._found.host_end[iteration]
        building = _GraphBuilder(
            self._started, begin, self._last_before(iteration), self._latency, self._gap, self._clocks, slowdown
        )
        first, last = np.searchsorted(self._times, [begin - _ROUNDING, end + _ROUNDING])
        # At equal times, points that start tasks come before tasks, and points that wait come after.
        order: list[tuple[float, int, _Point | int]] = []
        for point in self._points[first:last]:
            # At an iteration's end, waiting belongs to this iteration, but tasks that start then belong to the next.
            starts = self._iteration[point.starts[0]] if point.starts else None
            if starts == iteration or (starts is None and begin + _EQUAL < point.time <= end + _EQUAL):
                order.append((point.time, 0 if point.starts else 2, point))
        for index in range(*np.searchsorted(self._started.launch, [begin, end])):
            order.append((max(self._started.launch[index], self._started.events.start[index]), 1, int(index)))
        for _, _, one in sorted(order, key=lambda entry: entry[:2]):
            if isinstance(one, _Point):
                building.add_point(one)
            else:
                building.add_task(one, self._before.get(one, ()))
        building.add_point(_Point(float(end), self._main))
        return building.nodes

    def _last_before(self, iteration: int) -> set[int]:
        """Return the indices of each lane's last task that earlier iterations started."""
        moment = self._found.host_begin[iteration]
        counts = (int(np.searchsorted(self._started.launch[own], moment)) for own in self._of_lane)
        return {int(own[count - 1]) for own, count in zip(self._of_lane, counts, strict=True) if count}


class _GraphBuilder:
    """The graph of an iteration, to which nodes are added in their traced order."""

    def __init__(
        self, started: Started, begin: float, earlier: set[int], latency: float, gap: float,
        clocks: Mapping[int, _WorkingClock], slowdown: float,
    ) -> None:  # fmt: skip
        self.nodes: list[StreamTask] = []
        self._started, self._begin, self._earlier = started, begin, earlier
        self._latency, self._gap = latency, gap
        self._clocks, self._slowdown = clocks, slowdown
        self._tasks: dict[int, int] = {}  # index of each task's node
        self._callers: dict[int, int] = {}  # index of the node of the point that started each task
        self._lanes: dict[int, int] = {}  # index of the node of each lane's last task
        self._threads: dict[int, tuple[int, float]] = {}  # each thread's last point: index of its node, and its time

    def add_point(self, point: _Point) -> None:
        """Add a point of the host."""
        before, moment = self._threads.get(point.thread, (-1, self._begin))
        clock = self._clocks.get(point.thread)
        passed = max(0.0, clock.at(point.time) - clock.at(moment) if clock else point.time - moment) * self._slowdown
        after = [] if point.anew else [(before, passed if point.lag is None else min(point.lag, passed))]
        after += self._edges_from(point.awaits, point.lag or 0.0)
        if point.joins is not None:
            other, at = self._threads.get(point.joins, (-1, self._begin))
            after.append((other, (point.time - at) * self._slowdown if point.lag is None else point.lag))
        self._threads[point.thread] = len(self.nodes), point.time
        self._callers |= dict.fromkeys(point.starts, len(self.nodes))
        self.nodes.append(StreamTask(HOST, 0.0, after))

    def add_task(self, index: int, before: Iterable[int]) -> None:
        """Add a task of a lane."""
        lane = _stream(self._started, index)
        after = [(self._callers[index], self._latency), (self._lanes.get(lane, -1 - lane), self._gap)]
        after += self._edges_from(before, 0.0)
        self._tasks[index] = self._lanes[lane] = len(self.nodes)
        key = index if self._started.communicates[index] else -1
        self.nodes.append(StreamTask(lane, float(self._started.events.seconds[index]), after, key))

    def _edges_from(self, places: Iterable[int], seconds: float) -> Iterator[tuple[int, float]]:
        """Yield edges from the ends of tasks; of earlier iterations only each lane's last task is known."""
        for index in places:
            if index in self._tasks:
                yield self._tasks[index], seconds
            elif index in self._earlier:
                yield -1 - _stream(self._started, index), seconds


class _WorkingClock:
    """Clock of a host thread that stops while a call waits for room in a device queue."""

    def __init__(self, full: Intervals) -> None:
        self._begins, self._ends = full.T.tolist()
        self._stood = [0.0, *np.cumsum(full[:, 1] - full[:, 0]).tolist()]

    def at(self, moment: float) -> float:
        """Return the clock's time at a moment, s."""
        index = bisect_right(self._begins, moment)
        over = max(0.0, self._ends[index - 1] - moment) if index else 0.0
        return float(moment - self._stood[index] + over)


def _working_clocks(events: Events, started: Started) -> dict[int, _WorkingClock]:
    """Return a clock for each thread with long launch calls on a busy device, whose queue was then full."""
    kernels = started.events.correlation[started.events.kind == KERNEL]
    calls = events.where((events.kind == CALL) & (events.seconds >= LONG_CALL) & np.isin(events.correlation, kernels))
    device = events.where(on_device(events))
    busy = union(device.start, device.end)
    stood = ((thread, calls.where(calls.thread == thread)) for thread in np.unique(calls.thread).tolist())
    full = {thread: intersection(union(own.start, own.end), busy) for thread, own in stood}
    return {thread: _WorkingClock(own) for thread, own in full.items() if len(own)}


def _stream(started: Started, index: int) -> int:
    return HOST + 1 + int(started.lane[index])


def _main_thread(events: Events) -> int:
    """Return the thread of the host that marks iterations or steps; else the one with most operators and calls."""
    marks = events.thread[(events.kind == MARK) & (events.called(OPTIMIZER) | events.called(STEP))]
    own = marks if len(marks) else events.thread[np.isin(events.kind, (CALL, OPERATOR))]
    if not len(own):
        return -1
    threads, counts = np.unique(own, return_counts=True)
    return int(threads[counts.argmax()])


def _overheads(started: Started) -> tuple[float, float]:
    """Return two median delays, s: from a call to its task if nothing blocks it, and from a task to a waiting next one.

    A kernel is blocked by any stream of the device, a collective of Gloo by its own thread. What blocked the first
    kernel was not traced.
    """
    starts, ends = started.events.start, started.events.end
    done = np.append(np.inf, np.maximum.accumulate(ends))[:-1]
    for lane in np.unique(started.lane[started.events.kind == MARK]):
        own = np.flatnonzero(started.lane == lane)
        done[own] = np.append(-np.inf, ends[own[:-1]])
    idle = (starts - started.launch)[started.launch >= done]
    latency = max(0.0, float(np.median(idle))) if len(idle) else 0.0
    gaps = []
    for lane in np.unique(started.lane):
        own = np.flatnonzero(started.lane == lane)
        between = starts[own[1:]] - ends[own[:-1]]
        # A gap longer than the latency of a call has another reason.
        gaps.append(between[(started.launch[own[1:]] < ends[own[:-1]]) & (between <= latency)])
    every = np.concatenate(gaps) if gaps else np.empty(0)
    return latency, max(0.0, float(np.median(every))) if len(every) else 0.0


def _waits_between_lanes(events: Events, found: Iterations, started: Started) -> dict[int, list[int]]:
    """Return the tasks that a stream has to wait for before each task: the last one of every other lane, by index."""
    waits = events.where((events.kind == CALL) & events.called(_STREAM_WAIT))
    starts, ends = started.events.start, started.events.end
    by_lane = {int(lane): np.flatnonzero(started.lane == lane) for lane in np.unique(started.lane)}
    launched = {lane: started.launch[places] for lane, places in by_lane.items()}
    reached = {lane: np.maximum.accumulate(ends[places]) for lane, places in by_lane.items()}
    before: dict[int, list[int]] = defaultdict(list)

    def waits_for(index: int, moment: float) -> None:
        """Add the last task of every other lane that was started before `moment` and ended before the task began."""
        for other, places in by_lane.items():
            done = int(np.searchsorted(reached[other], starts[index] + _ROUNDING, side="right"))
            at = min(int(np.searchsorted(launched[other], moment)), done) - 1
            if other != started.lane[index] and at >= 0:
                before[index].append(int(places[at]))

    if not len(waits):
        for index, moment in _after_collectives(found, started):
            waits_for(index, moment)
    for thread in np.unique(waits.thread):
        own, moments = np.flatnonzero(started.by == thread), waits.start[waits.thread == thread]
        following = np.searchsorted(started.launch[own], moments)
        for at, moment in zip(following.tolist(), moments.tolist(), strict=True):
            if at < len(own):
                waits_for(int(own[at]), moment)
    return before


def _add_full_device(before: dict[int, list[int]], started: Started, latency: float, gap: float) -> None:
    """Add edges to kernels that had no room on the device until a kernel of another lane (nearly) ended."""
    kernels, starts, ends = started.events.kind == KERNEL, started.events.start, started.events.end
    free = np.full(len(started), -np.inf)
    for lane in np.unique(started.lane):
        own = np.flatnonzero(started.lane == lane)
        free[own[1:]] = ends[own[:-1]]
    could = np.maximum(started.launch + latency, free + gap)
    for index, others in before.items():
        could[index] = max(could[index], *ends[others]) if others else could[index]
    overhead = max(latency + gap, _ROUNDING)
    fills = kernels & started.computes
    computing = {int(lane): np.flatnonzero(fills & (started.lane == lane)) for lane in np.unique(started.lane)}
    for index in np.flatnonzero(kernels & (starts - could > overhead)).tolist():
        moment, full = starts[index], []
        for lane, own in computing.items():
            # Only the last two earlier kernels of another lane can have filled the device until this kernel began.
            last = int(np.searchsorted(starts[own], moment)) if lane != started.lane[index] else 0
            for other in own[max(0, last - 2) : last].tolist():
                nearly = ends[other] - _MAX_REST * started.events.seconds[other]
                if nearly <= moment and ends[other] >= max(moment - overhead, could[index] + overhead):
                    full.append((float(ends[other]), other))
        if full:
            before[index].append(min(full)[1])


def _after_collectives(found: Iterations, started: Started) -> Iterator[tuple[int, float]]:
    """Yield each collective, and the first computing task after an iteration's last one, with the time of the call."""
    iteration = found.of(started.launch)
    on_device = started.events.kind != MARK
    for index in np.flatnonzero(started.communicates & on_device):
        yield int(index), float(started.launch[index])
    collectives = np.flatnonzero(started.communicates & on_device & (iteration >= 0))
    computing = np.flatnonzero(started.computes)
    last = collectives[np.append(np.diff(iteration[collectives]) != 0, True)] if len(collectives) else collectives
    for following in np.searchsorted(computing, last):
        if following < len(computing):
            yield int(computing[following]), float(started.launch[computing[following]])


def _synchronising(events: Events, started: Started) -> Iterator[_Point]:
    """Yield points before and after each call in which the host waited for a device."""
    calls = events.where((events.kind == CALL) & (events.called(WAITING) | events.called(_COPY_CALLS)))
    waits, ends = calls.called(WAITING), started.events.end
    copied = {int(started.events.correlation[at]): at for at in np.flatnonzero(started.events.kind == COPY)}
    lanes = [np.flatnonzero(started.lane == lane) for lane in np.unique(started.lane)]
    lasts = [np.searchsorted(started.launch[lane], calls.start, side="right") - 1 for lane in lanes]
    for index, (begin, end) in enumerate(zip(calls.start, calls.end, strict=True)):
        own = copied.get(int(calls.correlation[index]))
        if waits[index]:
            awaited = [int(of[last[index]]) for of, last in zip(lanes, lasts, strict=True) if last[index] >= 0]
        else:
            awaited = [] if own is None else [int(own)]
        awaited = [at for at in awaited if ends[at] <= end + _ROUNDING]
        if awaited:
            lag = max(0.0, float(end - max(begin, ends[awaited].max())))
            thread = int(calls.thread[index])
            if waits[index]:
                yield _Point(float(begin), thread)
            yield _Point(float(end), thread, lag=lag, awaits=awaited)


def _backward_threads(events: Events, main: int) -> Iterator[_Point]:
    """Yield points at which the main thread hands over to autograd's threads, and at which it continues."""
    works = np.isin(events.kind, (CALL, OPERATOR))
    threads = np.unique(events.thread[works & events.called(BACKWARD)])
    backward = events.where(works & np.isin(events.thread, threads[threads != main]))
    own = events.where((events.thread == main) & works)
    if not len(own):
        return
    after = np.searchsorted(own.start, backward.start)
    for thread in np.unique(backward.thread):
        mine = backward.thread == thread
        places, firsts = np.unique(after[mine], return_index=True)
        lasts = np.maximum.reduceat(backward.end[mine], firsts)
        for at, begin, end in zip(places, backward.start[mine][firsts].tolist(), lasts.tolist(), strict=True):
            yield _Point(begin, main)
            yield _Point(begin, int(thread), joins=main, anew=True)
            yield _Point(end, int(thread))
            if at < len(own) and own.start[at] >= end:
                yield _Point(float(own.start[at]), main, lag=float(own.start[at]) - end, joins=int(thread))


def _pauses(events: Events, started: Started, main: int) -> Iterator[_Point]:
    """Yield points where the main thread continued after another thread's collective, and before optimiser steps."""
    own = events.where((events.thread == main) & (events.kind == OPERATOR))
    busy: Intervals = union(own.start, own.end)
    if not len(busy):
        return
    begins, ends = busy[:-1, 1], busy[1:, 0]
    pauses = ends - begins
    long = pauses > _LONG_PAUSE * np.median(pauses) if len(pauses) else np.empty(0, np.bool_)
    done = started.events.end
    order = np.argsort(done, kind="stable")
    collectives = order[started.communicates[order]]
    firsts, lasts = (np.searchsorted(done[collectives], moments[long], side="right") for moments in (begins, ends))
    for begin, end, first, last in zip(begins[long], ends[long], firsts, lasts, strict=True):
        if first < last and end - done[collectives[last - 1]] <= _MAX_REST * (end - begin):
            lag = float(end - done[collectives[last - 1]])
            yield _Point(float(begin), main)
            yield _Point(float(end), main, lag=lag, awaits=[int(at) for at in sorted(collectives[first:last])])
    # The last ended task of a lane stands for all before it, as tasks of a lane follow one another.
    of_lane = [order[started.lane[order] == lane] for lane in np.unique(started.lane)]
    lanes = [(places, done[places]) for places in of_lane]
    for moment in events.start[(events.kind == MARK) & events.called(OPTIMIZER) & (events.thread == main)]:
        ended = ((places, int(np.searchsorted(at, moment, side="right"))) for places, at in lanes)
        yield _Point(float(moment), main, awaits=[int(places[count - 1]) for places, count in ended if count])
