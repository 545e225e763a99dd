"""The loop of `tasks.schedule`: each step leads to the moment at which the next task ends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals

_IntegerArray = npt.NDArray[np.int64]

COMPUTE, MESSAGE = 1, 2
"""Positions in `tasks.Kind`."""
LONGER_THAN_ANY_TASK = 1e300
"""Seconds longer than any task; compiled loops assume finite numbers."""


def run(
    seconds: Reals, co_running: Reals, computing_factors: Reals,
    stream: _IntegerArray, kind: _IntegerArray, first: _IntegerArray, followers: _IntegerArray, missing: _IntegerArray,
    start: Reals, end: Reals,
) -> bool:  # fmt: skip
    """Fill `start` and `end` [members, tasks] of the ensemble's members; return False if tasks wait for each other."""
    members, tasks = seconds.shape
    stream_count = stream.max() + 1
    head, following = np.full(stream_count, -1), np.full(tasks, -1)
    full_seconds = np.empty(stream_count)  # seconds a stream's whole task takes at its present rate; -1 if none runs
    for task in range(tasks - 1, -1, -1):
        following[task] = head[stream[task]]
        head[stream[task]] = task
    for member in range(members):
        current, waits, begun = head.copy(), missing.copy(), np.zeros(tasks, np.bool_)
        part = np.ones(tasks)  # share of each task that remains
        now, remaining = 0.0, tasks
        while remaining:
            computing_factor, computing, nothing_runs = 1.0, False, True
            for at in range(stream_count):
                task = current[at]
                if task >= 0 and waits[task] == 0:
                    nothing_runs = False
                    if not begun[task]:
                        begun[task] = True
                        start[member, task] = now
                    if kind[task] == COMPUTE:
                        computing = True
                    elif kind[task] == MESSAGE:
                        computing_factor = max(computing_factor, computing_factors[member, task])
            if nothing_runs:
                return False
            step, next_ = LONGER_THAN_ANY_TASK, -1
            for at in range(stream_count):
                task = current[at]
                full_seconds[at] = -1.0
                if task >= 0 and waits[task] == 0:
                    full_seconds[at] = seconds[member, task]
                    if kind[task] == COMPUTE:
                        full_seconds[at] *= computing_factor
                    elif kind[task] == MESSAGE and computing:
                        full_seconds[at] = co_running[member, task]
                    if part[task] * full_seconds[at] < step:
                        step, next_ = part[task] * full_seconds[at], task
            now += step
            for at in range(stream_count):
                if full_seconds[at] > 0:
                    part[current[at]] = max(part[current[at]] - step / full_seconds[at], 0.0)
            end[member, next_] = now
            current[stream[next_]] = following[next_]
            remaining -= 1
            for edge in range(first[next_], first[next_ + 1]):
                waits[followers[edge]] -= 1
    return True
