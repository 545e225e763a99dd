"""Task graphs of a training job, and when each task runs: what is under way slows the rest down.

A *stream* does its tasks in their order, one at a time, as CUDA streams and a message queue do. A task begins when its
stream is free and all tasks before it have ended. While a message is under way computing goes on at a fraction of its
speed, and while a worker computes a message takes longer than on idle workers: rates change with what is under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint.models.base.statistics import Reals
from stallpoint.models.taskgraph import kernels
from stallpoint.models.taskgraph.compilation import kernel


class Kind(Enum):
    """What slows what down."""

    INPUT = "input"
    """Reading and copying: at its own speed whatever else goes on."""
    COMPUTE = "compute"
    """Slower beside a message."""
    MESSAGE = "message"
    """Longer beside computing."""


@dataclass(frozen=True)
class Task:
    """One task; durations are numbers or ensembles [...] of one shape, in s."""

    name: str
    kind: Kind
    stream: str
    seconds: npt.ArrayLike
    """With nothing beside it."""
    after: tuple[str, ...] = ()
    """Tasks that must have ended before."""
    beside: npt.ArrayLike | None = None
    """Of a message: seconds while a worker computes; as many as `seconds` unless given."""
    slows: npt.ArrayLike = 1.0
    """Of a message: how many times as long computing takes while it is under way."""


@dataclass(frozen=True)
class Schedule:
    """When tasks run, s [...]; not a number where a duration is none."""

    start: Mapping[str, Reals]
    end: Mapping[str, Reals]


def schedule(tasks: Sequence[Task]) -> Schedule:
    """When each task runs, for each member of the ensemble by itself.

    Raises `InputError` for a name used twice or unknown, a duration below 0, and tasks that wait for each other.
    """
    place = {task.name: number for number, task in enumerate(tasks)}
    if len(place) < len(tasks):
        raise InputError("task graph: two tasks have the same name")
    for task in tasks:
        if unknown := [name for name in task.after if name not in place]:
            raise InputError(f"task graph: {task.name} comes after {unknown[0]}, which does not exist")
    streams = {stream: number for number, stream in enumerate(dict.fromkeys(task.stream for task in tasks))}
    columns = (
        [task.seconds for task in tasks],
        [task.seconds if task.beside is None else task.beside for task in tasks],
        [task.slows for task in tasks],
    )
    shape = np.broadcast_shapes(*{np.shape(value) for values in columns for value in values})
    seconds, beside, slows = (_members(values, shape) for values in columns)
    known = np.isfinite(seconds + beside + slows).all(axis=-1)
    if (np.minimum(seconds, beside)[known] < 0).any() or (slows[known] < 1).any():
        wrong = np.minimum(np.minimum(seconds, beside), slows - 1)[known].min(axis=0)
        raise InputError(f"task graph: {tasks[int(wrong.argmin())].name} has a duration below 0, or speeds others up")
    first, follower, missing = _edges([[place[name] for name in task.after] for task in tasks])
    ends = np.full((2, *seconds.shape), np.nan)
    found = np.empty((2, int(known.sum()), len(tasks)))
    whole = kernel(kernels.run, found.size * len(streams))(
        seconds[known], beside[known], slows[known],
        np.array([streams[task.stream] for task in tasks], np.int64),
        np.array([list(Kind).index(task.kind) for task in tasks], np.int64),
        first, follower, missing, found[0], found[1],
    )  # fmt: skip
    if not whole:
        raise InputError("task graph: tasks wait for each other")
    ends[:, known] = found
    start, end = (dict(zip(place, np.moveaxis(of.reshape(*shape, -1), -1, 0), strict=True)) for of in ends)
    return Schedule(start, end)


def _members(values: Sequence[npt.ArrayLike], shape: tuple[int, ...]) -> Reals:
    """Values of tasks, each [...], as [members, tasks]."""
    found = np.empty((len(values), *shape))
    for task, value in enumerate(values):
        found[task] = value
    return np.ascontiguousarray(found.reshape(len(values), -1).T)


def _edges(before: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], ...]:
    """Task t's followers are follower[first[t]:first[t + 1]]; and how many tasks come right before each."""
    missing = np.array([len(of) for of in before], np.int64)
    after = np.repeat(np.arange(len(before)), missing)
    sources = np.array([task for of in before for task in of], np.int64)
    order = np.argsort(sources, kind="stable")
    first = np.searchsorted(sources[order], np.arange(len(before) + 1)).astype(np.int64)
    return first, after[order], missing
