"""The loop of `tasks.schedule`: each step leads to the moment at which the next task ends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals

_Numbers = npt.NDArray[np.int64]

COMPUTE, MESSAGE = 1, 2
"""Positions in `tasks.Kind`."""
LONGEST = 1e300
"""Seconds longer than any task; compiled loops assume finite numbers."""


def run(
    seconds: Reals, co_running: Reals, slows: Reals,
    stream: _Numbers, kind: _Numbers, first: _Numbers, follower: _Numbers, missing: _Numbers,
    start: Reals, end: Reals,
) -> bool:  # fmt: skip
    """Fill `start` and `end` [members, tasks] of the ensemble's members; return False if tasks wait for each other."""
    members, tasks = seconds.shape
    streams = stream.max() + 1
    head, following = np.full(streams, -1), np.full(tasks, -1)
    full_seconds = np.empty(streams)  # seconds of each stream's task at its present rate; -1 if none is running
    for task in range(tasks - 1, -1, -1):
        following[task] = head[stream[task]]
        head[stream[task]] = task
    for member in range(members):
        current, waits, begun = head.copy(), missing.copy(), np.zeros(tasks, np.bool_)
        part = np.ones(tasks)  # part of each task that remains
        now, remaining = 0.0, tasks
        while remaining:
            slow, computing, none = 1.0, False, True
            for at in range(streams):
                task = current[at]
                if task >= 0 and waits[task] == 0:
                    none = False
                    if not begun[task]:
                        begun[task] = True
                        start[member, task] = now
                    if kind[task] == COMPUTE:
                        computing = True
                    elif kind[task] == MESSAGE:
                        slow = max(slow, slows[member, task])
            if none:
                return False
            step, next_ = LONGEST, -1
            for at in range(streams):
                task = current[at]
                full_seconds[at] = -1.0
                if task >= 0 and waits[task] == 0:
                    full_seconds[at] = seconds[member, task]
                    if kind[task] == COMPUTE:
                        full_seconds[at] *= slow
                    elif kind[task] == MESSAGE and computing:
                        full_seconds[at] = co_running[member, task]
                    if part[task] * full_seconds[at] < step:
                        step, next_ = part[task] * full_seconds[at], task
            now += step
            for at in range(streams):
                if full_seconds[at] > 0:
                    part[current[at]] = max(part[current[at]] - step / full_seconds[at], 0.0)
            end[member, next_] = now
            current[stream[next_]] = following[next_]
            remaining -= 1
            for edge in range(first[next_], first[next_ + 1]):
                waits[follower[edge]] -= 1
    return True
