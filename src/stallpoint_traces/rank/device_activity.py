"""Activity of a device: computing, communicating, copying and idle time.

`shares` follows HolisticTraceAnalysis 0.5 (Meta, `breakdown_analysis`, `communication_analysis`), so that numbers of
the two tools are comparable: the time from the first kernel's start to the last one's end is idle, computing, or
non-computing (other work while nothing computes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats.events import CALL, COPY, FILL, KERNEL, MARK, Events
from stallpoint_traces.rank.intervals import Intervals, intersection, length, union

COMMUNICATION = re.compile(r"^(?:nccl|mscclpp|msccl).*Kernel")
"""Names of communication kernels: NCCL's, which RCCL keeps, and MSCCL's in RCCL."""
STEP = re.compile(r"^(?:ProfilerStep#|(?:train(?:ing)?[ _])?(?:iteration|iter|step)[ _#:]*)\d+", re.IGNORECASE)
"""Marks of `torch.profiler.profile.step`, and of programs that mark their iterations by number themselves."""
_NO_COMPUTING = re.compile(COMMUNICATION.pattern + r"|Memcpy|^Memset|Sync")
"""Names of kernels that do not compute."""


def on_device(events: Events) -> npt.NDArray[np.bool_]:
    """Return which events ran on a device: kernels, copies and fills; [events]."""
    return np.isin(events.kind, (KERNEL, COPY, FILL))


def computes(events: Events) -> npt.NDArray[np.bool_]:
    """Return which events compute on a device: kernels that do not communicate, copy or synchronise; [events]."""
    return np.asarray((events.kind == KERNEL) & ~events.called(_NO_COMPUTING))


@dataclass(frozen=True)
class Device:
    """Events on a rank's device, in all streams."""

    events: Events
    """Kernels, copies and fills, by start."""
    computes: npt.NDArray[np.bool_]
    """Whether each event computes, [events]."""
    communicates: npt.NDArray[np.bool_]
    """Whether each event communicates, [events]."""

    @classmethod
    def of(cls, events: Events) -> Device:
        """Return the device's part of a trace; without events if there was no device."""
        own = events.where(on_device(events) & (events.stream >= 0))
        return cls(own, computes(own), own.called(COMMUNICATION))

    @property
    def computing(self) -> Intervals:
        """Intervals in which a kernel computed."""
        return self._intervals(self.computes)

    @property
    def communicating(self) -> Intervals:
        """Intervals in which a kernel communicated, waiting for other ranks included."""
        return self._intervals(self.communicates)

    @property
    def busy(self) -> Intervals:
        """Intervals in which anything ran."""
        return self._intervals(np.ones(len(self.events), np.bool_))

    def _intervals(self, chosen: npt.NDArray[np.bool_]) -> Intervals:
        return union(self.events.start[chosen], self.events.end[chosen])


def shares(events: Events) -> Mapping[str, float] | None:
    """Return ``idle``, ``compute`` and ``non_compute`` of the device's time, and the ``overlap`` of communication with
    computing over all communication, in %; None without a device.

    As in HolisticTraceAnalysis, work that the host started in the last marked step does not count: its end may lack.
    """
    device = Device.of(started_before(events, last_step(events)))
    if not len(device.events):
        return None
    computing, communicating = device.computing, device.communicating
    total = float(device.events.end.max() - device.events.start.min())
    busy, compute, communicated = length(device.busy), length(computing), length(communicating)
    parts = {"idle": total - busy, "compute": compute, "non_compute": busy - compute}
    overlap = 100 * length(intersection(communicating, computing)) / communicated if communicated else 0.0
    percent = {name: 100 * seconds / total if total else 0.0 for name, seconds in parts.items()}
    return {name: round(value, 9) for name, value in (percent | {"overlap": overlap}).items()}


def last_step(events: Events) -> float:
    """Return the start of the last of several marked steps, s; inf if fewer than two are marked."""
    marked = events.start[(events.kind == MARK) & events.called(STEP)]
    return float(marked.max()) if len(marked) > 1 else np.inf


def started_before(events: Events, moment: float) -> Events:
    """Return host events before a moment, and the device events that they started; all events if it is inf."""
    if np.isinf(moment):
        return events
    calls = events.correlation[(events.kind == CALL) & (events.start < moment)]
    return events.where(np.where(on_device(events), np.isin(events.correlation, calls), events.start < moment))
