"""Iterations of a trace, and what each of them spent its time on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallpoint.explain.device_activity import STEP, Device
from stallpoint.explain.intervals import Intervals, length_within, union, without
from stallpoint.explain.started import Started
from stallpoint.inputs.events import CALL, KERNEL, MARK, OPERATOR, Events

OPTIMIZER = re.compile(r"^Optimizer\.step#")
"""Marks that PyTorch sets around every optimiser's step."""
LOADING = re.compile(r"DataLoader.*__next__|^## (?:load_batch|data)")
"""Marks around waiting for a mini-batch."""
WAITING = re.compile(r"Synchronize$|^(?:cuda|hip)(?:Memcpy|Free|FreeHost|HostFree)$|^hipMemcpyWithStream$")
"""Calls in which the host waits for the device."""
LONG_CALL = 100e-6
"""Seconds from which on any call blocks the host, which starts an operator in 5 to 10 µs: a copy from or to pageable
memory, memory that is taken or given back, a queue that is full."""
FEWEST_PERIODS = 3
"""Times that something comes again before it is called periodic."""
SAME = 0.95
"""Part of a periodic sequence that is the same one period later."""

MARKED, OPTIMIZED, PERIODIC = "ProfilerStep", "Optimizer.step", "period of kernels"
CAUSES = ("compute", "exposed_communication", "copy", "data_wait", "host_wait", "launch", "other")
"""What an iteration's time goes to; they add up to it."""


@dataclass(frozen=True)
class Iterations:
    """Iterations of one rank; [iterations] each."""

    found_by: str
    """What tells them apart: `MARKED`, `OPTIMIZED` or `PERIODIC`."""
    begin: npt.NDArray[np.float64]
    """s; on the device where the host runs ahead of it."""
    end: npt.NDArray[np.float64]
    host_begin: npt.NDArray[np.float64]
    """When the host began to start them, s."""
    host_end: npt.NDArray[np.float64]

    @classmethod
    def on_host(cls, found_by: str, begin: npt.NDArray[np.float64], end: npt.NDArray[np.float64]) -> Iterations:
        """Those that are where the host starts them."""
        return cls(found_by, begin, end, begin, end)

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """How long each took."""
        return self.end - self.begin

    @property
    def ahead(self) -> bool:
        """Whether the host runs ahead of the device."""
        return self.begin is not self.host_begin

    def part(self, first: int, last: int) -> Iterations:
        """Those from one place to another."""
        own = slice(first, last)
        return Iterations(self.found_by, self.begin[own], self.end[own], self.host_begin[own], self.host_end[own])

    def of(self, moments: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Place of the iteration in which the host did something at each moment; -1 where that is none."""
        index = np.searchsorted(self.host_begin, moments, side="right") - 1
        inside = (index >= 0) & (moments < self.host_end[np.maximum(index, 0)])
        return np.where(inside, index, -1)

    def followed(self, started: Started) -> Iterations:
        """The same, on the device where the host runs ahead of it: from the first kernel that an iteration started in
        the stream that computes most to that of the next one."""
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
        late = float(np.median(begin - started.launch[first])) > _LATE * usual
        if not late or abs(float(np.median(end - begin)) - usual) <= _APART * usual:
            return self
        return replace(self, begin=begin, end=end)


_LATE = 0.05
"""Part of an iteration from which on the device begins it so much later that the host runs ahead."""
_APART = 0.01
"""Part of an iteration by which the device's then differ from the host's, where nothing lets one wait for the other."""


def middle(seconds: npt.NDArray[np.float64]) -> int:
    """Place of the iteration that takes the median time, the shorter one of two in the middle; [iterations]."""
    return int(np.argsort(seconds, kind="stable")[(len(seconds) - 1) // 2])


def iterations(events: Events) -> Iterations | None:
    """The iterations of a trace, by the first of three signs that is there; None where there is none."""
    marks = events.where(events.kind == MARK)
    steps = marks.where(marks.called(STEP))
    if len(steps):
        # A step ends where the next one begins; the last has its own end alone.
        return Iterations.on_host(MARKED, steps.start, np.append(steps.start[1:], steps.end[-1]))
    ends = marks.end[marks.called(OPTIMIZER)]
    if len(ends) > 1:
        return Iterations.on_host(OPTIMIZED, ends[:-1], ends[1:])
    starts = _periods(events)
    return None if starts is None else Iterations.on_host(PERIODIC, starts[:-1], starts[1:])


def _periods(events: Events) -> npt.NDArray[np.float64] | None:
    """Starts of what comes again and again: kernels, or without a device operators, of the busiest thread."""
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
        if period and (row.name[:-period] == row.name[period:]).mean() >= SAME:
            return np.asarray(row.start[int(places[0]) :: period])
    return None


def seconds_by_cause(events: Events, found: Iterations) -> Mapping[str, npt.NDArray[np.float64]]:
    """Seconds of `CAUSES` in each iteration, [iterations].

    With a device, its time: computing; communication, and then copies, beside which nothing computes; and idle time by
    what the host did meanwhile: it waited for a mini-batch, or a call blocked it, or it was still starting operators
    (launch). Without a device the host's own operators compute.
    """
    device = Device.of(events)
    causes = _of_device(device, events) if len(device.events) else _of_host(events)
    seconds = {name: length_within(when, found.begin, found.end) for name, when in causes.items()}
    seconds["other"] = np.maximum(found.seconds - np.sum(list(seconds.values()), axis=0), 0.0)
    return {name: seconds[name] for name in CAUSES}


def _of_device(device: Device, events: Events) -> dict[str, Intervals]:
    computing = device.computing
    communication = without(device.communicating, computing)
    moved = without(without(device.busy, computing), communication)
    taken = device.busy
    loading, waiting, operators = _host(events)
    found = {"compute": computing, "exposed_communication": communication, "copy": moved}
    for name, when in (("data_wait", loading), ("host_wait", waiting), ("launch", operators)):
        found[name] = without(when, taken)
        taken = union(*np.concatenate([taken, when]).T)
    return found


def blocking(events: Events) -> npt.NDArray[np.bool_]:
    """Which events are calls that block the host: those that wait for the device, and any that take long."""
    return np.asarray((events.kind == CALL) & (events.called(WAITING) | (events.seconds >= LONG_CALL)))


def blocked_by(events: Events, found: Iterations) -> list[tuple[str, float, int, float]]:
    """Calls that blocked the host within iterations: name, s of an iteration on average, how many in all, and the
    longest, s; the one that took most comes first."""
    calls = events.where(blocking(events) & (found.of(events.start) >= 0))
    rows = []
    for name in np.unique(calls.name):
        own = calls.seconds[calls.name == name]
        rows.append((calls.texts[name], float(own.sum()) / len(found.seconds), len(own), float(own.max())))
    return sorted(rows, key=lambda row: -row[1])


def _host(events: Events) -> tuple[Intervals, Intervals, Intervals]:
    """When the host waited for a mini-batch, when a call blocked it, and when it ran operators or calls."""
    loads = events.called(LOADING) & (events.kind == MARK)
    chosen, end = (loads, blocking(events), np.isin(events.kind, (CALL, OPERATOR))), events.end
    loading, waiting, operators = (union(events.start[which], end[which]) for which in chosen)
    return loading, waiting, operators


_GLOO = re.compile(r"^(?:gloo|nccl|mpi|c10d):|^c10d::|record_param_comms")
"""Operators and marks of collectives on the host."""


def _of_host(host: Events) -> dict[str, Intervals]:
    sends = host.called(_GLOO)
    operators = (host.kind == OPERATOR) & ~sends
    computing = union(host.start[operators], host.end[operators])
    communication = without(union(host.start[sends], host.end[sends]), computing)
    loads = host.called(LOADING) & (host.kind == MARK)
    loading = without(without(union(host.start[loads], host.end[loads]), computing), communication)
    nothing = np.empty((0, 2))
    found = {"compute": computing, "exposed_communication": communication, "data_wait": loading}
    return found | dict.fromkeys(("copy", "host_wait", "launch"), nothing)
