"""Phases of a training iteration in a trace: forward, backward, exposed communication, and the update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats.events import OPERATOR, Events
from stallpoint_traces.rank.graph import BACKWARD
from stallpoint_traces.rank.iterations import Iterations
from stallpoint_traces.rank.started import Started
from stallpoint_traces.rank.trace_collectives import Collectives

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TracedPhases:
    """Phases that add up to the iteration, s; nan if no backward pass is marked; [iterations] each.

    A phase begins on the device with the first kernel that the host started in it, and without a device on the host.
    """

    data_wait: Reals
    copy: Reals
    """Exposed copy of the mini-batch to the device."""
    forward: Reals
    backward_start: Reals
    """Time from the start of the iteration to that of the backward pass."""
    backward: Reals
    exposed: Reals
    """Time from the end of the backward pass to the end of the last collective that was ready by then."""
    update: Reals


def phases(
    events: Events, found: Iterations, started: Started, collectives: Collectives, causes: Mapping[str, Reals]
) -> TracedPhases:
    """Return the phases of each iteration."""
    backward = events.where((events.kind == OPERATOR) & events.called(BACKWARD))
    # Binary searches work, as events are sorted by start, and tasks that the host started by launch.
    ends = backward.end
    firsts, lasts = (np.searchsorted(backward.start, moments) for moments in (found.host_begin, found.host_end))
    order = np.argsort(collectives.iteration, kind="stable")
    collectives_of = np.split(order, np.searchsorted(collectives.iteration[order], np.arange(1, len(found.seconds))))
    columns: dict[str, list[float]] = {name: [] for name in TracedPhases.__dataclass_fields__}
    for index, (begin, end) in enumerate(zip(found.begin, found.end, strict=True)):
        own = slice(firsts[index], lasts[index])
        at = collectives_of[index]
        waits, copies = float(causes["data_wait"][index]), float(causes["copy"][index])
        first = last = np.nan
        if len(backward.start[own]):
            first, last = _device_interval(started, float(backward.start[own].min()), float(ends[own].max()))
        first, last = max(first - begin, waits + copies), min(last, end) - begin
        done = collectives.start[at] + collectives.seconds[at]
        last_end = float(done[collectives.ready[at] <= last + begin + _MAX_DELAY].max(initial=-np.inf))
        exposed = max(0.0, min(last_end, end) - begin - last) if np.isfinite(last_end) else 0.0
        values = {
            "data_wait": waits, "copy": copies, "forward": first - waits - copies, "backward_start": first,
            "backward": last - first, "exposed": exposed, "update": end - begin - last - exposed,
        }  # fmt: skip
        for name, value in values.items():
            columns[name].append(value)
    return TracedPhases(**{name: np.array(values, np.float64) for name, values in columns.items()})


_MAX_DELAY = 1e-3
"""Maximum delay after the backward pass for a collective to belong to it, s."""


def _device_interval(started: Started, begin: float, end: float) -> tuple[float, float]:
    """Return the device's interval of the tasks that the host started from `begin` to `end`, or these two if none."""
    first, last = np.searchsorted(started.launch, begin), np.searchsorted(started.launch, end, side="right")
    own = first + np.flatnonzero(started.computes[first:last])
    if not len(own):
        return begin, end
    starts = started.events.start[own]
    return float(starts.min()), float((starts + started.events.seconds[own]).max())
