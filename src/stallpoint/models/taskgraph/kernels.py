"""The loop behind `tasks.schedule`: from one end of a task to the next, as a plain function that numba compiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallpoint.models.base.statistics import Reals

_Numbers = npt.NDArray[np.int64]

COMPUTE, MESSAGE = 1, 2
"""Places in `tasks.Kind`."""
LONGEST = 1e300
"""More seconds than any task takes; infinity is not for compiled loops that take all numbers for finite."""


def run(
    seconds: Reals, beside: Reals, slows: Reals,
    stream: _Numbers, kind: _Numbers, first: _Numbers, follower: _Numbers, missing: _Numbers,
    start: Reals, end: Reals,
) -> bool:  # fmt: skip
    """Fill `start` and `end` [members, tasks] of each member of the ensemble; False where tasks wait for each other."""
    members, tasks = seconds.shape
    streams = stream.max() + 1
    head, following = np.full(streams, -1), np.full(tasks, -1)
    whole = np.empty(streams)  # what each stream's task takes at the present rate; below 0: none is under way
    for task in range(tasks - 1, -1, -1):
        following[task] = head[stream[task]]
        head[stream[task]] = task
    for member in range(members):
        current, waits, begun = head.copy(), missing.copy(), np.zeros(tasks, np.bool_)
        part = np.ones(tasks)  # of each task that is left
        now, left = 0.0, tasks
        while left:
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
                whole[at] = -1.0
                if task >= 0 and waits[task] == 0:
                    whole[at] = seconds[member, task]
                    if kind[task] == COMPUTE:
                        whole[at] *= slow
                    elif kind[task] == MESSAGE and computing:
                        whole[at] = beside[member, task]
                    if part[task] * whole[at] < step:
                        step, next_ = part[task] * whole[at], task
            now += step
            for at in range(streams):
                if whole[at] > 0:
                    part[current[at]] = max(part[current[at]] - step / whole[at], 0.0)
            end[member, next_] = now
            current[stream[next_]] = following[next_]
            left -= 1
            for edge in range(first[next_], first[next_ + 1]):
                waits[follower[edge]] -= 1
    return True
