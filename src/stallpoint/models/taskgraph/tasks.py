"""Task graphs of a training job, and their schedule: concurrent tasks slow each other down.

A *stream* runs its tasks in order, one at a time, as CUDA streams and a message queue do. A task begins when its
stream is free and all its predecessors have ended. Computing is slower during a message, and a message takes longer
while a worker computes: rates change with the concurrent tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals
from stallpoint.errors import InputError
from stallpoint.loops import kernel
from stallpoint.models.taskgraph.kernels import run


class Kind(Enum):
    """Kinds of tasks, which decide how concurrent tasks slow each other down."""

    INPUT = "input"
    """Reading and copying, at a constant speed."""
    COMPUTE = "compute"
    """Slower while a message is under way."""
    MESSAGE = "message"
    """Longer while a worker computes."""


_KIND_NUMBERS = {kind: place for place, kind in enumerate(Kind)}


@dataclass(frozen=True)
class Task:
    """A task; durations are numbers or ensembles [...] of one shape, in s."""

    name: str
    kind: Kind
    stream: str
    seconds: npt.ArrayLike
    """Duration without co-running tasks."""
    after: tuple[str, ...] = ()
    """Tasks that must have ended before."""
    co_running: npt.ArrayLike | None = None
    """Duration of a message while a worker computes, s; `seconds` unless given."""
    slows: npt.ArrayLike = 1.0
    """Factor on computing while this message is under way."""


@dataclass(frozen=True)
class TaskSchedule:
    """Start and end of tasks, s [...]; NaN where a duration is NaN."""

    start: Mapping[str, Reals]
    end: Mapping[str, Reals]


def schedule(tasks: Sequence[Task]) -> TaskSchedule:
    """Return the schedule of tasks, for each member of the ensemble separately.

    Raises `InputError` for a repeated or unknown name, a duration below 0, and tasks that wait for each other.
    """
    task_numbers = {task.name: number for number, task in enumerate(tasks)}
    if len(task_numbers) < len(tasks):
        twice = Counter(task.name for task in tasks).most_common(1)[0][0]
        raise InputError(f"task graph: two tasks have the same name, {twice}")
    for task in tasks:
        if unknown := [name for name in task.after if name not in task_numbers]:
            raise InputError(f"task graph: {task.name} comes after {unknown[0]}, which does not exist")
    streams = {stream: number for number, stream in enumerate(dict.fromkeys(task.stream for task in tasks))}
    columns = (
        [task.seconds for task in tasks],
        [task.seconds if task.co_running is None else task.co_running for task in tasks],
        [task.slows for task in tasks],
    )
    shape = np.broadcast_shapes(*{np.shape(value) for values in columns for value in values})
    seconds, co_running, slows = (_by_member(values, shape) for values in columns)
    known = np.isfinite(seconds + co_running + slows).all(axis=-1)
    if (np.minimum(seconds, co_running)[known] < 0).any() or (slows[known] < 1).any():
        margins = np.minimum(np.minimum(seconds, co_running), slows - 1)[known].min(axis=0)
        raise InputError(f"task graph: {tasks[int(margins.argmin())].name} has a duration below 0, or speeds others up")
    first, follower, missing = _edges([[task_numbers[name] for name in task.after] for task in tasks])
    ends = np.full((2, *seconds.shape), np.nan)
    found = np.empty((2, int(known.sum()), len(tasks)))
    is_acyclic = kernel(run, found.size * len(streams))(
        seconds[known], co_running[known], slows[known],
        np.array([streams[task.stream] for task in tasks], np.int64),
        np.array([_KIND_NUMBERS[task.kind] for task in tasks], np.int64),
        first, follower, missing, found[0], found[1],
    )  # fmt: skip
    if not is_acyclic:
        raise InputError("task graph: tasks wait for each other: their edges and the order of a stream form a cycle")
    ends[:, known] = found
    start, end = (dict(zip(task_numbers, np.moveaxis(of.reshape(*shape, -1), -1, 0), strict=True)) for of in ends)
    return TaskSchedule(start, end)


def _by_member(values: Sequence[npt.ArrayLike], shape: tuple[int, ...]) -> Reals:
    """Return the `values` of tasks, each broadcast to `shape`, as [members of the ensemble, tasks]."""
    found = np.empty((len(values), *shape))
    for task, value in enumerate(values):
        found[task] = value
    return np.ascontiguousarray(found.reshape(len(values), -1).T)


def _edges(before: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return first, follower, missing: task t waits for missing[t] tasks, and follower[first[t]:first[t + 1]] for t."""
    missing = np.array([len(of) for of in before], np.int64)
    after = np.repeat(np.arange(len(before)), missing)
    predecessors = np.array([task for of in before for task in of], np.int64)
    order = np.argsort(predecessors, kind="stable")
    first = np.searchsorted(predecessors[order], np.arange(len(before) + 1)).astype(np.int64)
    return first, after[order], missing
