"""The loops of the engine, for `compilation.kernel`: plain functions on arrays that numba understands."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float64]


def link(before: Indices, after: Indices, first: Indices, follower: Indices, predecessors: Indices) -> int:
    """Fill `first`, `follower` (rising within each task's) and `predecessors` (both zero at first) from edges.

    Returns an edge that names a task that does not exist; else -1 if every edge leads to a higher number and -2 if not.
    """
    tasks = predecessors.size
    grouped, rising, sequential = True, True, True
    for edge in range(before.size):
        source, target = before[edge], after[edge]
        if source < 0 or source >= tasks or target < 0 or target >= tasks:
            return edge
        if edge > 0:
            grouped &= before[edge - 1] <= source
            rising &= before[edge - 1] != source or after[edge - 1] <= target
        sequential &= source < target
        first[source + 1] += 1
        predecessors[target] += 1
    for task in range(tasks):
        first[task + 1] += first[task]
    if grouped:
        follower[:] = after
    else:
        place = first[:-1].copy()
        for edge in range(before.size):
            source = before[edge]
            follower[place[source]] = after[edge]
            place[source] += 1
        rising = False
    if not rising:
        for task in range(tasks):
            for at in range(first[task] + 1, first[task + 1]):
                if follower[at - 1] > follower[at]:
                    follower[first[task] : first[task + 1]].sort()
                    break
    return -1 if sequential else -2


def sequence(first: Indices, follower: Indices, missing: Indices, order: Indices) -> int:
    """Fill `order` with the tasks, each after all before it; uses up `missing`, the numbers of predecessors.

    Chains are kept together. Returns the number of tasks outside cycles.
    """
    tasks = missing.size
    stack = np.empty(tasks, np.int32)
    top, done = 0, 0
    for task in range(tasks - 1, -1, -1):
        if missing[task] == 0:
            stack[top] = task
            top += 1
    while top > 0:
        top -= 1
        task = stack[top]
        while task >= 0:
            order[done] = task
            done += 1
            following = -1
            for at in range(first[task], first[task + 1]):
                after = follower[at]
                missing[after] -= 1
                if missing[after] == 0:
                    if following >= 0:
                        stack[top] = following
                        top += 1
                    following = after
            task = following
    return done


def queues(resource: Indices, first: Indices, follower: Indices, queue: Indices, count: int) -> None:
    """Fill `queue`: each task's resource, or -1 if precedence alone orders all tasks of that resource.

    That is looked for over a few tasks in between; where it is not found, tasks queue, which costs time and changes
    nothing. Every edge leads to a higher number.
    """
    tasks = resource.size
    latest = np.full(count, -1, np.int32)
    queued = np.zeros(count, np.bool_)
    near = np.empty(32, np.int32)
    for task in range(tasks):
        needs = resource[task]
        if queued[needs]:
            continue
        previous = latest[needs]
        latest[needs] = task
        if previous < 0:
            continue
        # The latest task of this resource must lead here: breadth first over a few tasks.
        found = False
        near[0] = previous
        seen, looked = 1, 0
        while looked < seen and not found:
            low, end = first[near[looked]], first[near[looked] + 1]
            for at in range(low, min(end, low + near.size - seen)):
                near[seen] = follower[at]
                seen += 1
            high = end
            while low < high:
                middle = (low + high) // 2
                if follower[middle] < task:
                    low = middle + 1
                else:
                    high = middle
            found = low < end and follower[low] == task
            looked += 1
        queued[needs] = not found
    for task in range(tasks):
        queue[task] = resource[task] if queued[resource[task]] else -1


def run(
    duration: Reals,
    queue: Indices,
    priority: Reals,
    first: Indices,
    follower: Indices,
    missing: Indices,
    order: Indices,
    places: Indices,
    start: Reals,
    resources: int,
) -> None:
    """Fill `start` (zero at first) with each task's start; uses up `missing`, the numbers of predecessors.

    All is by place; `order` and `places` say which task that is and where a task is, or are empty if it is the same.

    Tasks that need not queue are done as soon as all before them are, whatever the time: chains are followed in
    memory order. What remains is to serve the queues in the order of time, and whatever arrives later then does
    so at the end of a task taken from a queue, never before it.
    """
    tasks = duration.size
    stack = np.empty(tasks, np.int32)
    free = np.zeros(resources)
    top = 0
    for task in range(tasks - 1, -1, -1):
        if missing[task] == 0:
            stack[top] = task
            top += 1
    events: list[tuple[Any, int, Any]] = [(0.0, 0, 0)]  # time; 0: a task arrives, 1: a resource chooses; which
    events.clear()
    by_priority = priority.size > 0
    moved = order.size > 0
    waiting = [[(0.0, 0.0, 0)] for _ in range(resources if by_priority else 0)]  # priority, arrival, task
    for line in waiting:
        line.clear()
    task, served = -1, -1
    while True:
        while task >= 0 or top > 0:
            if task < 0:
                top -= 1
                task = stack[top]
            if queue[task] >= 0 and task != served:
                heappush(events, (start[task], 0, np.int64(order[task] if moved else task)))
                task = -1
                continue
            end = start[task] + duration[task]
            following = -1
            for at in range(first[task], first[task + 1]):
                after = follower[at]
                start[after] = max(start[after], end)
                missing[after] -= 1
                if missing[after] == 0:
                    if following >= 0:
                        stack[top] = following
                        top += 1
                    following = after
            task = following
        if len(events) == 0:
            return
        now, choosing, which = heappop(events)
        if choosing == 1:
            resource = which
            _, _, which = heappop(waiting[resource])
            served = places[which] if moved else which
            if len(waiting[resource]) > 0:
                heappush(events, (now + duration[served], 1, np.int64(resource)))
        elif by_priority:
            arrived = places[which] if moved else which
            resource = queue[arrived]
            if len(waiting[resource]) == 0:
                heappush(events, (max(now, free[resource]), 1, np.int64(resource)))
            heappush(waiting[resource], (priority[arrived], now, which))
            continue
        else:
            served = places[which] if moved else which
            resource = queue[served]
            now = max(now, free[resource])
        start[served] = now
        free[resource] = now + duration[served]
        task = served
