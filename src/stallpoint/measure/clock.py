"""Clocks of the device's work: the host's clock for a CPU, events in the stream for an accelerator.

A mark is a point in time. To take a mark is almost free; clocks convert marks to seconds after the iteration.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import torch

from stallpoint.measure.device import has_streams, synchronize

Mark: TypeAlias = Any
"""Result of a clock's `mark`; only that clock can read it."""

host_mark = time.perf_counter_ns
"""Mark of the host's time in ns, for any device."""


def event_mark() -> Mark:
    """Return an event after the work queued so far in the current stream."""
    event = torch.Event(enable_timing=True)
    event.record()
    return event


class IterationClock(Protocol):
    """Interface of clocks. A clock converts marks to seconds since the start of the present iteration."""

    def start(self) -> None:
        """Begin an iteration; the device must have finished all earlier work."""

    def mark(self) -> Mark:
        """Return a mark after the work queued on the device so far."""

    def wait(self) -> None:
        """Wait until the device has passed all marks, so that they can be read."""

    def seconds(self, mark: Mark) -> float:
        """Return the time of a mark since the start of the iteration, s."""


class HostClock:
    """Clock of a CPU, whose work is done when a call returns."""

    mark = staticmethod(host_mark)

    def __init__(self) -> None:
        self._start = host_mark()

    def start(self) -> None:
        """Begin an iteration."""
        self._start = host_mark()

    def wait(self) -> None:
        """Do nothing: all work is done."""

    def seconds(self, mark: Mark) -> float:
        """Return the time of a mark since the start of the iteration, s."""
        return float(mark - self._start) * 1e-9


class EventClock:
    """Clock of an accelerator. Its marks are events in the current stream, so that it need not wait for the device.

    The stream is idle when an iteration starts: the device then starts the iteration at the same time as the host.
    """

    mark = staticmethod(event_mark)

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.start()

    def start(self) -> None:
        """Begin an iteration; the stream must be idle (see `wait`)."""
        self._start = self.mark()

    def wait(self) -> None:
        """Wait until the device is idle."""
        synchronize(self._device)

    def seconds(self, mark: Mark) -> float:
        """Return the time of a mark since the start of the iteration, s."""
        return float(self._start.elapsed_time(mark)) * 1e-3


def clock_for(device: torch.device) -> IterationClock:
    """Return the clock that follows `device`."""
    return EventClock(device) if has_streams(device) else HostClock()


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the total length of intervals (start, end); overlapping parts count once."""
    total, last_end = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, last_end))
        last_end = max(last_end, end)
    return total
