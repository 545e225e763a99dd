"""One iteration of synchronous training, repeated: tasks that every worker does, and tasks all of them share.

Workers that are equal in everything are one lane, so that 4,096 equal workers cost as much as one. Workers that
differ are lanes of an array: where precedence fixes the order on every resource (`order.fixed`), a whole row of
them is done at once, and else the job is written out as a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint.models.dag import lanes
from stallpoint.models.dag.compilation import kernel
from stallpoint.models.dag.graph import Graph, Indices, Task, durations, task_graph
from stallpoint.models.dag.order import Order, fixed
from stallpoint.models.statistics import Reals


@dataclass(frozen=True)
class Replicas:
    """Ends of all tasks of a job, s."""

    worker: Reals
    """[iterations, tasks of a worker, lanes]; the last two iterations, if not all were to be kept."""
    shared: Reals
    """[iterations, shared tasks]."""


@dataclass(frozen=True)
class Template:
    """The tasks of one iteration; names in `after` are of the same iteration.

    A shared task comes after a worker's task when all workers have done it, and all workers wait for a shared
    one. Raises `InputError` for a name used twice or unknown.
    """

    worker: Sequence[Task]
    """Each worker has these, on resources of its own unless shared tasks use them too or they are in `common`."""
    shared: Sequence[Task]
    carried: Sequence[tuple[str, str]] = ()
    """Edges from a task to one of the next iteration."""
    common: frozenset[str] = frozenset()
    """Resources that the workers' tasks share, such as a file server that answers one at a time."""

    def __post_init__(self) -> None:
        if len(self.place) < len(self.tasks):
            raise InputError("DAG: two tasks of an iteration have the same name")
        for before, after in self._named_edges:
            for name in (before, after):
                if name not in self.place:
                    raise InputError(f"DAG: edge {before} -> {after} names a task that does not exist")

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The workers' tasks, then the shared ones."""
        return (*self.worker, *self.shared)

    @cached_property
    def place(self) -> Mapping[str, int]:
        """Position in `tasks`, by name."""
        return {task.name: index for index, task in enumerate(self.tasks)}

    @cached_property
    def together(self) -> frozenset[str]:
        """Resources there is one of for all workers."""
        return self.common | {task.resource for task in self.shared}

    @property
    def _named_edges(self) -> list[tuple[str, str]]:
        return [*((name, task.name) for task in self.tasks for name in task.after), *self.carried]

    @cached_property
    def edges(self) -> list[tuple[int, int, int]]:
        """(before, after, iterations in between) as positions in `tasks`."""
        within = [(self.place[name], after, 0) for after, task in enumerate(self.tasks) for name in task.after]
        return [*within, *((self.place[before], self.place[after], 1) for before, after in self.carried)]

    @cached_property
    def order(self) -> Order | None:
        """The order in which tasks are done, if it is the same whatever the durations; else None."""
        if any(task.resource in self.together for task in self.worker):
            return None  # the workers' tasks queue behind each other
        return fixed(self.tasks, self.edges)

    def run(
        self,
        worker: npt.ArrayLike | None = None,
        shared: npt.ArrayLike | None = None,
        *,
        iterations: int,
        keep: bool = True,
    ) -> Replicas:
        """Schedule `iterations` of the job.

        Durations, s: `worker` [iterations or 1, tasks, lanes] and `shared` [iterations or 1, tasks]; the tasks' own
        and one lane unless given. `keep` says whether all ends are wanted or the last two iterations will do.
        """
        seconds, together = self._durations(worker, shared, iterations)
        if self.order is None:
            return self._written_out(seconds, together, iterations, keep)
        order, count, width = self.order, len(self.worker), seconds.shape[2]
        ends = np.empty((iterations if keep else min(2, iterations), count, width))
        ends_shared = np.empty((iterations, len(self.shared)))
        kernel(lanes.replicate, iterations * len(self.tasks) * width)(
            order.sequence, order.first, order.before, order.lag, seconds, together, ends, ends_shared
        )
        if not keep and iterations % 2:
            ends = ends[::-1]
        return Replicas(ends, ends_shared)

    def graph(
        self,
        worker: npt.ArrayLike | None = None,
        shared: npt.ArrayLike | None = None,
        *,
        iterations: int,
    ) -> Graph:
        """The job written out, one task for each lane: iteration by iteration, lane by lane, then what is shared."""
        seconds, together = self._durations(worker, shared, iterations)
        numbers = self._numbers(seconds.shape[2], iterations)
        priority = [task.priority for task in self.tasks]
        return task_graph(
            self._spread(np.moveaxis(seconds, 2, 1), together, seconds.shape[2], iterations),
            *self._resources(seconds.shape[2], iterations),
            *self._edges(*numbers),
            priority=self._by_task(priority, seconds.shape[2], iterations) if len(set(priority)) > 1 else None,
        )

    def written_out(self, workers: int, iterations: int) -> list[Task]:
        """The job as named tasks: ``forward 1 of 0 on 2`` is worker 2's in the first iteration, ``update of 0``."""
        tasks = [
            replace(
                task,
                name=self._name(task.name, i, w),
                resource=task.resource if task.resource in self.together else f"{task.resource} {w}",
            )
            for i in range(iterations)
            for members, everyone in ((self.worker, range(workers)), (self.shared, range(1)))
            for w in everyone
            for task in members
        ]
        before: dict[str, list[str]] = {task.name: [] for task in tasks}
        owned = len(self.worker)
        for source, target, lag in self.edges:
            for i in range(lag, iterations):
                for w in range(workers if target < owned else 1):
                    sources = [w] if target < owned else range(workers if source < owned else 1)
                    name = self._name(self.tasks[target].name, i, w)
                    before[name] += [self._name(self.tasks[source].name, i - lag, v) for v in sources]
        return [replace(task, after=tuple(before[task.name])) for task in tasks]

    def _name(self, name: str, iteration: int, worker: int) -> str:
        of = f"{name} of {iteration}"
        return f"{of} on {worker}" if self.place[name] < len(self.worker) else of

    def _durations(
        self, worker: npt.ArrayLike | None, shared: npt.ArrayLike | None, iterations: int
    ) -> tuple[Reals, Reals]:
        if iterations < 1:
            raise InputError(f"DAG: {iterations} iterations; at least one is needed")
        own = [[[task.duration] for task in self.worker]] if worker is None else worker
        seconds = np.ascontiguousarray(own, dtype=np.float64)
        if worker is None:
            seconds = seconds.reshape(1, len(self.worker), 1)
        together = np.ascontiguousarray([[t.duration for t in self.shared]] if shared is None else shared, np.float64)
        for array, expected, name in ((seconds, len(self.worker), "worker"), (together, len(self.shared), "shared")):
            if array.ndim != (3 if name == "worker" else 2) or array.shape[1] != expected:
                raise InputError(f"DAG: {name} durations of shape {array.shape}, but there are {expected} {name} tasks")
            if array.shape[0] not in (1, iterations):
                raise InputError(f"DAG: {name} durations for {array.shape[0]} of {iterations} iterations")
            durations(array.reshape(-1), None)
        if seconds.shape[2] == 0:
            raise InputError("DAG: no worker; at least one is needed")
        return seconds, together

    # --- written out ------------------------------------------------------------------------------

    def _written_out(self, seconds: Reals, together: Reals, iterations: int, keep: bool) -> Replicas:
        width, count = seconds.shape[2], len(self.worker)
        ends = self.graph(seconds, together, iterations=iterations).run().end.reshape(iterations, -1)
        worker = ends[:, : width * count].reshape(iterations, width, count)
        return Replicas(np.moveaxis(worker, 1, 2)[0 if keep else -2 :], ends[:, width * count :])

    def _numbers(self, width: int, iterations: int) -> tuple[Indices, Indices]:
        """Numbers of the workers' tasks [iterations, lanes, tasks] and the shared ones [iterations, tasks]."""
        owned = width * len(self.worker)
        numbers = np.arange(iterations * (owned + len(self.shared)), dtype=np.int32).reshape(iterations, -1)
        return numbers[:, :owned].reshape(iterations, width, -1), numbers[:, owned:]

    def _edges(self, worker: Indices, shared: Indices) -> tuple[Indices, Indices]:
        owned = len(self.worker)
        iterations, width = worker.shape[:2]
        sources, targets = list[Indices](), list[Indices]()

        def numbers(task: int, when: slice) -> Indices:
            if task < owned:
                return worker[when, :, task]
            alone = shared[when, task - owned, None]
            return np.broadcast_to(alone, (len(alone), width))

        for before, after, lag in self.edges:
            ends = numbers(before, slice(iterations - lag)), numbers(after, slice(lag, None))
            one = slice(None) if min(before, after) < owned else slice(1)  # between shared tasks
            sources.append(ends[0][:, one].reshape(-1))
            targets.append(ends[1][:, one].reshape(-1))
        none = np.empty(0, np.int32)
        return np.concatenate([none, *sources]), np.concatenate([none, *targets])

    def _resources(self, width: int, iterations: int) -> tuple[Indices]:
        shared = {name: index for index, name in enumerate(sorted(self.together))}
        own = {name: index for index, name in enumerate(sorted({t.resource for t in self.worker} - self.together))}
        numbers = np.empty((width, len(self.worker)), np.int32)
        for column, task in enumerate(self.worker):
            name = task.resource
            if name in shared:
                numbers[:, column] = shared[name]
            else:
                numbers[:, column] = len(shared) + own[name] * width + np.arange(width)
        row = np.concatenate([numbers.reshape(-1), np.array([shared[t.resource] for t in self.shared], np.int32)])
        return (np.tile(row, iterations),)

    def _by_task(self, values: Sequence[float], width: int, iterations: int) -> Reals:
        owned = len(self.worker)
        return np.tile(np.concatenate([np.tile(values[:owned], width), values[owned:]]), iterations)

    def _spread(self, seconds: Reals, together: Reals, width: int, iterations: int) -> Reals:
        """Durations of every task, in their order; `seconds` [iterations or 1, lanes, tasks]."""
        out = np.empty((iterations, width * len(self.worker) + len(self.shared)))
        out[:, : width * len(self.worker)].reshape(iterations, width, -1)[:] = seconds
        out[:, width * len(self.worker) :] = together
        return out.reshape(-1)
