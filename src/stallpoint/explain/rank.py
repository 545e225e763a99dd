"""All that is understood of one rank's trace, for predictions, records and pages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stallpoint.explain.device_activity import on_device
from stallpoint.explain.graph import graphs
from stallpoint.explain.groups import Groups, groups
from stallpoint.explain.iterations import Iterations, iterations, seconds_by_cause
from stallpoint.explain.started import Started
from stallpoint.explain.trace_collectives import Collectives, collectives
from stallpoint.explain.trace_phases import Phases, phases
from stallpoint.inputs import trace_formats
from stallpoint.inputs.events import COPY, KERNEL, Events, Trace
from stallpoint.models.taskgraph.cycle_time import Cycle, cycle


@dataclass(frozen=True)
class Rank:
    """One rank."""

    trace: Trace
    iterations: Iterations
    causes: Mapping[str, npt.NDArray[np.float64]]
    """As `seconds_by_cause` gives them, [iterations]."""
    started: Started
    collectives: Collectives
    replays: Mapping[int, Cycle]
    """Of iterations by their place: of all, or of as many as `MAX_STARTED` allows."""
    other_hosts: Sequence[Mapping[int, Cycle]]
    """The same with hosts that work as long as `FASTER_HOSTS` says: where the device is never idle."""
    phases: Phases
    workers: int
    """Of the whole training, as far as the trace tells."""
    groups: Groups

    @classmethod
    def of(cls, trace: Trace) -> Rank | None:
        """What is understood of a trace; None where it has no iterations."""
        found = iterations(trace.events)
        if found is None:
            return None
        started = Started.of(trace.events)
        found = found.followed(started) if trace.computing else found
        communicated = collectives(trace.events, started, found)
        causes = seconds_by_cause(trace.events, found)
        hosts = FASTER_HOSTS if on_device(started.events).any() and _never_idle(causes, found) else ()
        replays, *others = _replays(trace.events, found, started, (1.0, *hosts)) if trace.computing else [{}]
        parts = phases(trace.events, found, started, communicated, causes)
        workers = max(trace.world_size, int(communicated.group_size.max(initial=1)))
        among = groups(communicated, found, parts, workers)
        return cls(trace, found, causes, started, communicated, replays, others, parts, workers, among)

    @property
    def on_device(self) -> bool:
        """Whether a device computed."""
        return bool(np.isin(self.started.events.kind, (KERNEL, COPY)).any())

    @property
    def replayed(self) -> npt.NDArray[np.float64]:
        """Those iterations as their graphs give them back, s, [replays]."""
        return np.array([float(one.iteration(one.seconds)) for one in self.replays.values()])

    @property
    def traced(self) -> npt.NDArray[np.float64]:
        """The same iterations as they were traced, s, [replays]."""
        return self.iterations.seconds[list(self.replays)]


MAX_STARTED = 100_000
"""What was started in the iterations that are replayed: each takes a kilobyte of a graph, and there may be millions."""


FASTER_HOSTS = (0.5, 0.0)
"""Parts of its traced time that the host may work for as well where the device is never idle, which shows that the host
is not the limit, and not how long it takes; the first is the one that is taken where one is."""
_BUSY = 0.99
"""Part of an iteration from which on the device is never idle."""


def _never_idle(causes: Mapping[str, npt.NDArray[np.float64]], found: Iterations) -> bool:
    busy = causes["compute"] + causes["exposed_communication"] + causes["copy"]
    return bool(np.median(busy / found.seconds) >= _BUSY)


def _replays(
    events: Events, found: Iterations, started: Started, slowdowns: Sequence[float]
) -> list[dict[int, Cycle]]:  # fmt: skip
    """Replays of the iterations in the middle of the trace, as many as `MAX_STARTED` allows but one at least; for each
    slowdown of the host."""
    counts = np.bincount(found.of(started.launch) + 1, minlength=len(found.seconds) + 1)[1:]
    busiest = max(1, int(counts.max(initial=0)) * len(slowdowns))
    many = int(np.clip(MAX_STARTED // busiest, 1, len(counts)))
    first = (len(counts) - many) // 2
    own = found.part(first, first + many)
    # What was started in the iteration before is what the first one waits for.
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
    """Every trace, in the order of ranks, with what is understood of it.

    `workers` where a trace does not say how many there were; else graphs of an iteration are of as many as there are.
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
