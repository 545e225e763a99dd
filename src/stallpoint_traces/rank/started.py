"""Tasks that the host starts: work on a device's streams, and collectives in Gloo's threads."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint_traces.formats.events import CALL, MARK, OPERATOR, UNKNOWN, Events
from stallpoint_traces.rank.device_activity import COMMUNICATION, computes, on_device

HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc):")
"""Marks of torch.distributed around a collective in threads of the host."""
_STARTS_COLLECTIVE = re.compile(r"^c10d::")


@dataclass(frozen=True)
class Started:
    """Tasks of a trace in the order in which the host started them; [started] each."""

    events: Events
    launch: npt.NDArray[np.float64]
    """Time of the start on the host, s."""
    by: npt.NDArray[np.int32]
    """Thread of the host that started it, as in `Events.thread`."""
    lane: npt.NDArray[np.int64]
    """Stream or thread, from 0: tasks of one lane run one after the other."""
    computes: npt.NDArray[np.bool_]
    communicates: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.launch)

    def part(self, first: int, last: int) -> Started:
        """Return the tasks with indices from `first` to below `last`."""
        own = slice(first, last)
        columns = self.launch[own], self.by[own], self.lane[own], self.computes[own], self.communicates[own]
        return Started(self.events.where(np.arange(first, last)), *columns)

    @classmethod
    def of(cls, events: Events) -> Started:
        """Return all tasks whose start on the host is known."""
        of_device = events.where(on_device(events) & (events.stream >= 0))
        found, launch, by = _by_calls(events, of_device) if len(of_device) else _on_host(events)
        order = np.argsort(launch, kind="stable")
        found = found.where(order)
        sends = found.called(COMMUNICATION) | found.called(HOST_COLLECTIVE)
        own = np.where(found.stream >= 0, found.stream, found.thread)
        lane = np.unique(own, return_inverse=True)[1].astype(np.int64)
        return cls(found, launch[order], by[order], lane, computes(found), sends)


def _by_calls(events: Events, of_device: Events) -> tuple[Events, npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Return the device's events with a known call on the host, and the time and thread of that call."""
    calls = events.where((events.kind == CALL) & (events.correlation >= 0))
    index = _first_indices(calls.correlation, of_device.correlation)
    known = index >= 0
    return of_device.where(known), calls.start[index[known]], calls.thread[index[known]]


def _first_indices(known: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the index of each wanted value's first occurrence among the known ones; -1 without one."""
    if not len(known):
        return np.full(len(wanted), UNKNOWN)
    order = np.argsort(known, kind="stable")
    index = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(known[order][index] == wanted, order[index], UNKNOWN)


def _on_host(events: Events) -> tuple[Events, npt.NDArray[np.float64], npt.NDArray[np.int32]]:
    """Return collectives of host threads, each started by the next unmatched earlier operator of torch.distributed."""
    marks = events.where((events.kind == MARK) & events.called(HOST_COLLECTIVE))
    operators = events.where((events.kind == OPERATOR) & events.called(_STARTS_COLLECTIVE))
    launch, by = marks.start.copy(), marks.thread.copy()
    following = 0
    for index, start in enumerate(marks.start):
        if following < len(operators) and operators.start[following] <= start:
            launch[index], by[index] = operators.start[following], operators.thread[following]
            following += 1
    return marks, launch, by
