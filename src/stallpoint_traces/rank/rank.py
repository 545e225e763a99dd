"""The interpretation of one rank's trace, for predictions, records and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats import trace_formats
from stallpoint_traces.formats.events import COPY, KERNEL, Events, Trace
from stallpoint_traces.layout.groups import Groups, groups
from stallpoint_traces.rank.cycle_time import Cycle, cycle
from stallpoint_traces.rank.device_activity import on_device
from stallpoint_traces.rank.graph import graphs
from stallpoint_traces.rank.intervals import Intervals, union
from stallpoint_traces.rank.iterations import Iterations, iterations, seconds_by_cause
from stallpoint_traces.rank.started import Started
from stallpoint_traces.rank.trace_collectives import Collectives, collectives
from stallpoint_traces.rank.trace_phases import TracedPhases, phases


@dataclass(frozen=True)
class Rank:
    """Iterations, tasks, collectives and replays of one rank."""

    trace: Trace
    iterations: Iterations
    causes: Mapping[str, npt.NDArray[np.float64]]
    """Seconds by cause, as from `seconds_by_cause`, [iterations]."""
    started: Started
    collectives: Collectives
    replays: Mapping[int, Cycle]
    """Replays by the index of their iteration: of all, or as many as `MAX_STARTED` allows."""
    other_hosts: Sequence[Mapping[int, Cycle]]
    """Replays for each of `FASTER_HOSTS`, if the device is never idle."""
    phases: TracedPhases
    workers: int
    """Number of workers of the training, as far as known."""
    groups: Groups

    @classmethod
    def of(cls, trace: Trace) -> Rank | None:
        """Return the interpretation of a trace; None without iterations."""
        found = iterations(trace.events)
        if found is None:
            return None
        started = Started.of(trace.events)
        found = found.with_device_times(started) if trace.computing else found
        communicated = collectives(trace.events, started, found)
        causes = seconds_by_cause(trace.events, found)
        hosts = FASTER_HOSTS if on_device(started.events).any() and _never_idle(causes, found) else ()
        replays, *others = _replays(trace.events, found, started, (1.0, *hosts)) if trace.computing else [{}]
        parts = phases(trace.events, found, started, communicated, causes)
        workers = max(trace.world_size, int(communicated.group_size.max(initial=1)))
        among = groups(communicated, found, parts, workers, started)
        return cls(trace, found, causes, started, communicated, replays, others, parts, workers, among)

    @property
    def on_device(self) -> bool:
        """Whether the work was on a device."""
        return bool(np.isin(self.started.events.kind, (KERNEL, COPY)).any())

    @cached_property
    def computing(self) -> Intervals:
        """Intervals in which the device computed."""
        own = self.started.events.where(self.started.computes)
        return union(own.start, own.end)

    @property
    def replayed(self) -> npt.NDArray[np.float64]:
        """Duration of the replayed iterations, s; [replays]."""
        return np.array([float(one.iteration(one.seconds)) for one in self.replays.values()])

    @property
    def traced(self) -> npt.NDArray[np.float64]:
        """Traced duration of the replayed iterations, s; [replays]."""
        return self.iterations.seconds[list(self.replays)]


MAX_STARTED = 100_000
"""Maximum number of tasks in replayed iterations: each takes 1 kB of a graph, and a trace may have millions."""


FASTER_HOSTS = (0.5, 0.0)
"""Fractions of its traced time that the host may take if the device is never idle: the host is then not the limit, and
its own time is unknown."""
_MIN_BUSY = 0.99
"""Busy fraction of an iteration from which the device counts as never idle."""


def _never_idle(causes: Mapping[str, npt.NDArray[np.float64]], found: Iterations) -> bool:
    busy = causes["compute"] + causes["exposed_communication"] + causes["copy"]
    return bool(np.median(busy / found.seconds) >= _MIN_BUSY)


def _replays(
    events: Events, found: Iterations, started: Started, slowdowns: Sequence[float]
) -> list[dict[int, Cycle]]:  # fmt: skip
    """Return replays of iterations in the middle of the trace, for each slowdown of the host.

    They are as many as `MAX_STARTED` allows, but at least one.
    """
    counts = np.bincount(found.of(started.launch) + 1, minlength=len(found.seconds) + 1)[1:]
    busiest = max(1, int(counts.max(initial=0)) * len(slowdowns))
    many = int(np.clip(MAX_STARTED // busiest, 1, len(counts)))
    first = (len(counts) - many) // 2
    own = found.part(first, first + many)
    # The first replayed iteration waits for tasks of the iteration before.
    begin, end = found.host_begin[max(0, first - 1)] if first else -np.inf, own.host_end[-1]
    if first + many == len(counts):
        end = np.inf
    low, high = np.searchsorted(started.launch, [begin, end])
    window = events.where((events.end >= begin) & (events.start <= end)) if many < len(counts) else events
    local = started.part(int(low), int(high))
    replays: list[dict[int, Cycle]] = [{} for _ in slowdowns]
    for index, of_hosts in enumerate(graphs(window, own, local, slowdowns), first):
        for of_host, nodes in zip(replays, of_hosts, strict=True):
            one = cycle(nodes)
            of_host[index] = replace(one, keys=one.keys + low)
    return replays


def read_ranks(files: Sequence[Path], workers: int | None = None) -> list[tuple[Trace, Rank | None]]:
    """Return every trace with its interpretation, in the order of ranks.

    `workers` applies to traces that do not give it; by default, iteration graphs imply it by their highest rank.
    """
    traces = sorted((trace for file in files for trace in trace_formats.read(file)), key=lambda trace: trace.rank)
    numbers = {trace.rank for trace in traces if trace.graph}
    known = (
        replace(one, world_size=workers or (1 + max(numbers) if one.graph and len(numbers) > 1 else 1))
        if one.world_size == 1
        else one
        for one in traces
    )
    return [(trace, Rank.of(trace)) for trace in known]
