"""Iterations of a trace, and the time of each by cause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats.events import CALL, KERNEL, MARK, OPERATOR, Events
from stallpoint_traces.rank.device_activity import STEP, Device
from stallpoint_traces.rank.intervals import Intervals, length_within, union, without
from stallpoint_traces.rank.started import Started

OPTIMIZER = re.compile(r"^Optimizer\.step#")
"""Marks that PyTorch sets around every optimiser's step."""
LOADING = re.compile(r"DataLoader.*__next__|^## (?:load_batch|data)")
"""Marks around waiting for a mini-batch."""
WAITING = re.compile(r"Synchronize$|^(?:cuda|hip)(?:Memcpy|Free|FreeHost|HostFree)$|^hipMemcpyWithStream$")
"""Calls in which the host waits for the device."""
LONG_CALL = 100e-6
"""Duration from which a call counts as blocking the host, s; starting an operator takes 5 to 10 µs. Such calls copy
from or to pageable memory, allocate or free memory, or wait for a full queue."""
FEWEST_PERIODS = 3
"""Minimum number of repetitions of a periodic sequence."""
MIN_EQUAL = 0.95
"""Minimum fraction of a sequence's names that recur one period later for it to be periodic."""

MARKED, OPTIMIZED, PERIODIC = "ProfilerStep", "Optimizer.step", "period of kernels"
CAUSES = ("compute", "exposed_communication", "copy", "data_wait", "host_wait", "launch", "other")
"""Causes of an iteration's time, which add up to it."""


@dataclass(frozen=True)
class Iterations:
    """Iterations of one rank; [iterations] each."""

    found_by: str
    """Sign that separates iterations: `MARKED`, `OPTIMIZED` or `PERIODIC`."""
    begin: npt.NDArray[np.float64]
    """Start, s; on the device if the host runs ahead of it."""
    end: npt.NDArray[np.float64]
    host_begin: npt.NDArray[np.float64]
    """Start on the host, s."""
    host_end: npt.NDArray[np.float64]

    @classmethod
    def on_host(cls, found_by: str, begin: npt.NDArray[np.float64], end: npt.NDArray[np.float64]) -> Iterations:
        """Return iterations whose times are the host's."""
        return cls(found_by, begin, end, begin, end)

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """Duration of each iteration, s."""
        return self.end - self.begin

    @property
    def ahead(self) -> bool:
        """Whether the host runs ahead of the device."""
        return self.begin is not self.host_begin

    def part(self, first: int, last: int) -> Iterations:
        """Return the iterations with indices from `first` to below `last`."""
        own = slice(first, last)
        return Iterations(self.found_by, self.begin[own], self.end[own], self.host_begin[own], self.host_end[own])

    def of(self, moments: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the index of the host's iteration at each moment; -1 outside of all iterations."""
        index = np.searchsorted(self.host_begin, moments, side="right") - 1
        inside = (index >= 0) & (moments < self.host_end[np.maximum(index, 0)])
        return np.where(inside, index, -1)

    def with_device_times(self, started: Started) -> Iterations:
        """Return the iterations, with the device's times if the host runs ahead of it.

        An iteration then lasts from its first kernel, in the stream that computes most, to the next iteration's.
        """
        own = np.flatnonzero(started.computes & (self.of(started.launch) >= 0))
        if not len(own):
            return self
        lanes, places = np.unique(started.lane[own], return_inverse=True)
        own = own[places == np.bincount(places, started.events.seconds[own], len(lanes)).argmax()]
        found, firsts = np.unique(self.of(started.launch[own]), return_index=True)
        if len(found) < max(2, len(self.begin)):
            return self
        first = own[firsts]
        begin = started.events.start[first]
        end = np.append(begin[1:], started.events.end[own].max())
        usual = float(np.median(self.seconds))
        late = float(np.median(begin - started.launch[first])) > _MIN_DELAY * usual
        if not late or abs(float(np.median(end - begin)) - usual) <= _MIN_DIFFERENCE * usual:
            return self
        return replace(self, begin=begin, end=end)


_MIN_DELAY = 0.05
"""Minimum delay of the device for the host to run ahead, as a fraction of an iteration."""
_MIN_DIFFERENCE = 0.01
"""Minimum difference of the device's and the host's iteration times if neither waits, as a fraction of the latter."""


def median_index(seconds: npt.NDArray[np.float64]) -> int:
    """Return the index of the iteration with median duration, the shorter one of two."""
    return int(np.argsort(seconds, kind="stable")[(len(seconds) - 1) // 2])


def iterations(events: Events) -> Iterations | None:
    """Return the iterations of a trace, by the first of three signs in it; None without an iteration."""
    marks = events.where(events.kind == MARK)
    steps = marks.where(marks.called(STEP))
    ends = marks.end[marks.called(OPTIMIZER)]
    if len(steps):
        # A step ends where the next step begins; only the last step ends with its own mark.
        found_by, bounds = MARKED, np.append(steps.start, steps.end[-1])
    elif len(ends) > 1:
        found_by, bounds = OPTIMIZED, ends
    elif (starts := _periods(events)) is not None:
        found_by, bounds = PERIODIC, starts
    else:
        return None
    bounds = np.unique(bounds)  # a mark may be repeated in a file
    return Iterations.on_host(found_by, bounds[:-1], bounds[1:]) if len(bounds) > 1 else None


def _periods(events: Events) -> npt.NDArray[np.float64] | None:
    """Return the starts of periods in the busiest thread's kernels (or operators); None if it is not periodic."""
    kernels = events.where(events.kind == KERNEL)
    own = kernels if len(kernels) else events.where(events.kind == OPERATOR)
    if not len(own):
        return None
    threads, counts = np.unique(own.thread, return_counts=True)
    row = own.where(own.thread == threads[counts.argmax()])
    names, times = np.unique(row.name, return_counts=True)
    for name in names[np.argsort(times, kind="stable")]:
        places = np.flatnonzero(row.name == name)
        period = int(np.median(np.diff(places))) if len(places) > FEWEST_PERIODS else 0
        if period and (row.name[:-period] == row.name[period:]).mean() >= MIN_EQUAL:
            return np.asarray(row.start[int(places[0]) :: period])
    return None


def seconds_by_cause(events: Events, found: Iterations) -> Mapping[str, npt.NDArray[np.float64]]:
    """Return the time of each of `CAUSES` in each iteration, s; [iterations].

    With a device, its time is split into computing; communication, and then copies, during which nothing computes; and
    idle time by the host's activity: waiting for a mini-batch, a blocking call, or starting operators (launch). Without
    a device, the host's own operators compute.
    """
    device = Device.of(events)
    causes = _device_causes(device, events) if len(device.events) else _host_causes(events)
    seconds = {name: length_within(when, found.begin, found.end) for name, when in causes.items()}
    seconds["other"] = np.maximum(found.seconds - np.sum(list(seconds.values()), axis=0), 0.0)
    return {name: seconds[name] for name in CAUSES}


def _device_causes(device: Device, events: Events) -> dict[str, Intervals]:
    computing = device.computing
    communication = without(device.communicating, computing)
    moved = without(without(device.busy, computing), communication)
    taken = device.busy
    loading, waiting, operators = _host_intervals(events)
    found = {"compute": computing, "exposed_communication": communication, "copy": moved}
    for name, when in (("data_wait", loading), ("host_wait", waiting), ("launch", operators)):
        found[name] = without(when, taken)
        taken = union(*np.concatenate([taken, when]).T)
    return found


def blocking(events: Events) -> npt.NDArray[np.bool_]:
    """Return whether each event is a call that blocks the host: a wait for the device, or any long call; [events]."""
    return np.asarray((events.kind == CALL) & (events.called(WAITING) | (events.seconds >= LONG_CALL)))


def blocked_by(events: Events, found: Iterations) -> list[tuple[str, float, int, float]]:
    """Return the calls that blocked the host, by total duration: name, s per iteration, number, longest duration, s."""
    calls = events.where(blocking(events) & (found.of(events.start) >= 0))
    rows = []
    for name in np.unique(calls.name):
        own = calls.seconds[calls.name == name]
        rows.append((calls.texts[name], float(own.sum()) / len(found.seconds), len(own), float(own.max())))
    return sorted(rows, key=lambda row: -row[1])


def _host_intervals(events: Events) -> tuple[Intervals, Intervals, Intervals]:
    """Return the intervals in which the host waited for a mini-batch, was blocked by a call, and ran operators."""
    loads = events.called(LOADING) & (events.kind == MARK)
    chosen, end = (loads, blocking(events), np.isin(events.kind, (CALL, OPERATOR))), events.end
    loading, waiting, operators = (union(events.start[which], end[which]) for which in chosen)
    return loading, waiting, operators


_HOST_COLLECTIVES = re.compile(r"^(?:gloo|nccl|mpi|c10d):|^c10d::|record_param_comms")
"""Operators and marks of collectives on the host."""


def _host_causes(host: Events) -> dict[str, Intervals]:
    sends = host.called(_HOST_COLLECTIVES)
    operators = (host.kind == OPERATOR) & ~sends
    computing = union(host.start[operators], host.end[operators])
    communication = without(union(host.start[sends], host.end[sends]), computing)
    loads = host.called(LOADING) & (host.kind == MARK)
    loading = without(without(union(host.start[loads], host.end[loads]), computing), communication)
    nothing = np.empty((0, 2))
    found = {"compute": computing, "exposed_communication": communication, "data_wait": loading}
    return found | dict.fromkeys(("copy", "host_wait", "launch"), nothing)
