"""Task graphs and their schedule: tasks with a duration and a resource, and what must end before what.

A resource does one task at a time and is not interrupted. When it is free it takes, of the tasks that wait for it,
the one with the lowest priority number, then the one that arrived first (first in, first out when priorities are
equal), then the first in the order of tasks. A task arrives when all tasks before it have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint.models.dag import kernels
from stallpoint.models.dag.compilation import kernel
from stallpoint.models.statistics import Reals

Indices = npt.NDArray[np.int32]

_NEAR = 1 << 15
"""Numbers that stay in a near cache between two looks at them."""


class Kind(Enum):
    """Computing tasks need a processor; communication tasks a disk, a bus or a network."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"


@dataclass(frozen=True)
class Task:
    """One task of the job."""

    name: str
    kind: Kind
    duration: float
    """s."""
    resource: str
    after: tuple[str, ...] = ()
    """Tasks that must have ended before."""
    priority: float = 0.0
    """Of the tasks that wait for a resource the one with the lowest number goes first."""


@dataclass(frozen=True)
class Span:
    """When a task runs, s."""

    start: float
    end: float


@dataclass(frozen=True)
class Times:
    """When each task of a graph runs, s, in the order of its tasks."""

    start: Reals
    duration: Reals

    @cached_property
    def end(self) -> Reals:
        """When each task ends, s."""
        return self.start + self.duration

    @property
    def makespan(self) -> float:
        """End of the last task; 0 without tasks."""
        return float(self.end.max(initial=0.0))


@dataclass(frozen=True)
class Graph:
    """A task graph as arrays; made by `task_graph`, which checks it.

    Tasks that are not numbered in an order in which they can be done get *places* in such an order, chain by chain,
    so that they lie in memory as they are done.
    """

    duration: Reals
    """s, by task."""
    order: Indices | None
    """The task at each place; None where each is at its own number. All below is by place."""
    first: Indices
    """Task t's followers are follower[first[t]:first[t + 1]]."""
    follower: Indices
    predecessors: Indices
    """Number of tasks right before each task."""
    queue: Indices
    """The resource a task has to queue for; -1 where precedence alone orders all tasks of its resource."""
    resources: int
    priority: Reals | None = field(default=None)
    """None where no resource tells its tasks apart by priority."""

    def __len__(self) -> int:
        return len(self.duration)

    @cached_property
    def _moved(self) -> tuple[Indices, Indices]:
        """The task at each place and the place of each task; empty where these are the same."""
        order = np.empty(0, np.int32) if self.order is None else self.order
        return order, _places(order)

    def run(self, duration: npt.ArrayLike | None = None) -> Times:
        """Schedule every task as early as it can go; `duration` replaces the graph's own, s.

        Takes O(tasks + edges) and O(log) more for each task that has to queue.
        """
        seconds = self.duration if duration is None else durations(duration, len(self))
        start = np.zeros(len(self))
        order, places = self._moved
        kernel(kernels.run, len(self))(
            seconds if self.order is None else seconds[self.order],
            self.queue,
            np.empty(0) if self.priority is None else self.priority,
            self.first,
            self.follower,
            self.predecessors.copy(),
            order,
            places,
            start,
            self.resources,
        )
        if self.order is not None:
            placed, start = start, np.empty(len(self))
            start[self.order] = placed
        return Times(start, seconds)


def task_graph(
    duration: npt.ArrayLike,
    resource: npt.ArrayLike,
    before: npt.ArrayLike = (),
    after: npt.ArrayLike = (),
    *,
    resources: int | None = None,
    priority: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> Graph:
    """The graph of tasks 0, 1, ... with edges before[e] -> after[e].

    `duration` (s) and `resource` (0, 1, ..., below `resources` if that is given) are by task, as is `priority`.
    Raises `InputError`, with `names` in the message where given, for a duration that is negative or no number, an
    unknown task or resource, or a cycle.
    """
    seconds = durations(duration, None, names)
    tasks = len(seconds)
    resource = _indices(resource, "resource", tasks)
    before, after = _indices(before, "before"), _indices(after, "after")
    if len(before) != len(after):
        raise InputError(f"DAG: {len(before)} tasks before but {len(after)} after; an edge needs both")
    if resources is None and tasks and resource.min() >= 0 and resource.max() > 2 * tasks:
        resource = np.unique(resource, return_inverse=True)[1].astype(np.int32)  # few of many numbers are used
    count = int(resource.max(initial=-1)) + 1 if resources is None else resources
    if tasks and not 0 <= resource.min() <= resource.max() < count:
        wrong = int(np.flatnonzero((resource < 0) | (resource >= count))[0])
        raise InputError(f"DAG: {_name(names, wrong)} needs resource {resource[wrong]}; there are 0 to {count - 1}")

    linked, rising = _linked(before, after, tasks)
    order = None
    if not rising:
        order = _in_order(*linked, names)
        place = _places(order)
        linked, _ = _linked(place[before], place[after], tasks)
        resource = resource[order]
    queue = np.empty(tasks, np.int32)
    kernel(kernels.queues, tasks + len(after))(resource, *linked[:2], queue, count)
    urgency = None if priority is None else _priority(priority, order, resource, count)
    return Graph(seconds, order, *linked, queue, count, urgency)


def _linked(before: Indices, after: Indices, tasks: int) -> tuple[tuple[Indices, Indices, Indices], bool]:
    """`Graph.first`, `follower` and `predecessors`, and whether every edge leads to a higher number."""
    first, follower = np.zeros(tasks + 1, np.int32), np.empty(len(after), np.int32)
    predecessors = np.zeros(tasks, np.int32)
    edge = kernel(kernels.link, tasks + len(after))(before, after, first, follower, predecessors)
    if edge >= 0:
        raise InputError(f"DAG: edge {before[edge]} -> {after[edge]} names a task that does not exist")
    return (first, follower, predecessors), edge == -1


def _in_order(first: Indices, follower: Indices, predecessors: Indices, names: Sequence[str] | None) -> Indices:
    """The tasks, each after all before it, chain by chain; `InputError` for a cycle."""
    missing, order = predecessors.copy(), np.empty(len(predecessors), np.int32)
    if kernel(kernels.sequence, len(order) + len(follower))(first, follower, missing, order) < len(order):
        within = [_name(names, int(index)) for index in np.flatnonzero(missing > 0)]
        more = " ..." if len(within) > 10 else ""
        raise InputError(f"DAG: a cycle among or before {', '.join(within[:10])}{more}")
    return order


def _places(order: Indices) -> Indices:
    """The place of each task in `order`."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places


def durations(duration: npt.ArrayLike, tasks: int | None, names: Sequence[str] | None = None) -> Reals:
    """`duration` as an array, by task; `InputError` where one is negative or no number."""
    seconds = np.ascontiguousarray(duration, dtype=np.float64)
    if seconds.ndim != 1 or (tasks is not None and len(seconds) != tasks):
        raise InputError(f"DAG: durations of shape {seconds.shape}; one for each task is needed")
    for begin in range(0, len(seconds), _NEAR):
        part = seconds[begin : begin + _NEAR]
        if not (part.min() >= 0 and part.max() < np.inf):
            task = begin + int(np.flatnonzero(~((part >= 0) & (part < np.inf)))[0])
            raise InputError(f"DAG: {_name(names, task)} has a duration of {seconds[task]} s; a number >= 0 is needed")
    return seconds


def _indices(values: npt.ArrayLike, name: str, count: int | None = None) -> Indices:
    array = np.asarray(values)
    if array.ndim != 1 or (count is not None and len(array) != count):
        raise InputError(
            f"DAG: {name} has shape {array.shape}; a list{' with one for each task' if count else ''} fits"
        )
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"DAG: {name} holds {array.dtype}, not whole numbers")
    if array.dtype != np.int32 and array.size and not -(2**31) <= array.min() <= array.max() < 2**31:
        raise InputError(f"DAG: {name} holds a number beyond 2^31")
    return np.ascontiguousarray(array, dtype=np.int32)


def _priority(priority: npt.ArrayLike, order: Indices | None, resource: Indices, resources: int) -> Reals | None:
    values = np.ascontiguousarray(priority, dtype=np.float64)
    if values.shape != resource.shape or np.isnan(values).any():
        raise InputError("DAG: priority: a number for each task is needed")
    values = values if order is None else values[order]
    lowest, highest = np.full(resources, np.inf), np.full(resources, -np.inf)
    np.minimum.at(lowest, resource, values)
    np.maximum.at(highest, resource, values)
    return values if (lowest < highest).any() else None


def _name(names: Sequence[str] | None, task: int) -> str:
    return f"task {task if names is None else names[task]}"


def from_tasks(tasks: Sequence[Task]) -> Graph:
    """The graph of named tasks; `InputError` for a name used twice or unknown."""
    place = {task.name: index for index, task in enumerate(tasks)}
    if len(place) < len(tasks):
        raise InputError("DAG: two tasks have the same name")
    for task in tasks:
        for name in task.after:
            if name not in place:
                raise InputError(f"DAG: task {task.name} comes after {name}, which does not exist")
    resources = {name: index for index, name in enumerate(dict.fromkeys(task.resource for task in tasks))}
    return task_graph(
        [task.duration for task in tasks],
        [resources[task.resource] for task in tasks],
        [place[name] for task in tasks for name in task.after],
        [index for index, task in enumerate(tasks) for _ in task.after],
        priority=[task.priority for task in tasks],
        names=list(place),
    )


def schedule(tasks: Sequence[Task]) -> dict[str, Span]:
    """When each of the named tasks runs."""
    times = from_tasks(tasks).run()
    return {
        task.name: Span(float(start), float(end))
        for task, start, end in zip(tasks, times.start, times.end, strict=True)
    }
