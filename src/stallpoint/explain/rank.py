"""All that is understood of one rank's trace, for predictions, records and pages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

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
    """Of iterations by their place: of all, or of as many as `MOST_STARTED` allows."""
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
        sent = collectives(trace.events, started, found)
        causes = seconds_by_cause(trace.events, found)
        replays = _replays(trace.events, found, started) if trace.computing else {}
        parts = phases(trace.events, found, started, sent, causes)
        workers = max(trace.world_size, int(sent.group_size.max(initial=1)))
        return cls(trace, found, causes, started, sent, replays, parts, workers, groups(sent, found, parts, workers))

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


MOST_STARTED = 100_000
"""What was started in the iterations that are replayed: each takes a kilobyte of a graph, and there may be millions."""


def _replays(events: Events, found: Iterations, started: Started) -> dict[int, Cycle]:
    """Replays of the iterations in the middle of the trace, as many as `MOST_STARTED` allows but one at least."""
    counts = np.bincount(found.of(started.launch) + 1, minlength=len(found.seconds) + 1)[1:]
    many = int(np.clip(MOST_STARTED // max(1, int(counts.max(initial=0))), 1, len(counts)))
    first = (len(counts) - many) // 2
    own = found.part(first, first + many)
    # What was started in the iteration before is what the first one waits for.
    begin, end = found.host_begin[max(0, first - 1)] if first else -np.inf, own.host_end[-1]
    if first + many == len(counts):
        end = np.inf
    low, high = np.searchsorted(started.launch, [begin, end])
    window = events.where((events.end >= begin) & (events.start <= end)) if many < len(counts) else events
    local = started.part(int(low), int(high))
    replays = map(cycle, graphs(window, own, local))
    return {place: replace(one, keys=one.keys + low) for place, one in enumerate(replays, first)}


def read_ranks(files: Sequence[Path], workers: int | None = None) -> list[tuple[Trace, Rank | None]]:
    """Every trace, in the order of ranks, with what is understood of it; `workers` where a trace does not say how many
    there were."""
    traces = sorted((trace for file in files for trace in trace_formats.read(file)), key=lambda trace: trace.rank)
    known = (replace(one, world_size=workers) if workers and one.world_size == 1 else one for one in traces)
    return [(trace, Rank.of(trace)) for trace in known]
