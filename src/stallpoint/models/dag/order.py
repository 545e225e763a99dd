"""The order in which a repeated job is done, where it is the same whatever the durations."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stallpoint.errors import InputError
from stallpoint.models.dag.graph import Indices, Task

Edge = tuple[int, int, int]
"""Before, after, and iterations in between (0 or 1)."""

_ROUNDS = 3
"""Iterations looked at: what holds from the second to the third holds from then on."""


@dataclass(frozen=True)
class Order:
    """Tasks of one iteration in an order in which they can be done, and all that each waits for.

    That includes whatever precedes it on its resource, so that no resource needs to be looked at again.
    """

    sequence: Indices
    first: Indices
    """Task t waits for before[first[t]:first[t + 1]], of this iteration or, by lag, of the one before."""
    before: Indices
    lag: Indices

    def edges(self) -> list[Edge]:
        """All that waits, as edges."""
        return [
            (int(self.before[at]), task, int(self.lag[at]))
            for task in range(len(self.first) - 1)
            for at in range(self.first[task], self.first[task + 1])
        ]


def fixed(tasks: Sequence[Task], edges: Sequence[Edge]) -> Order | None:
    """The order of `tasks`, repeated, if it is the same whatever the durations; None if it may not be.

    Two tasks a, b of one resource are done in this order if a path leads from a to b, or if all that a waits for
    leads to something b waits for (so a never arrives later) and a wins a tie.
    """
    count = len(tasks)
    sequence = _topological(count, [(before, after) for before, after, lag in edges if lag == 0], tasks)
    before, reached = _unrolled(count, sequence, edges)

    def first_for_certain(a: int, b: int) -> bool:
        if reached[b] >> a & 1:
            return True
        of_b = 0
        for source in before[b]:
            of_b |= reached[source]
        arrives = all(of_b >> source & 1 for source in before[a])
        return arrives and a < b and tasks[a % count].priority <= tasks[b % count].priority

    implied: set[Edge] = set()
    on: dict[str, list[int]] = {}
    for task in sequence:
        on.setdefault(tasks[task].resource, []).append(task)
    for members in on.values():
        unrolled = [i * count + task for i in range(_ROUNDS) for task in members]
        if not all(first_for_certain(a, b) for a, b in pairwise(unrolled)):
            return None
        implied |= {*((a, b, 0) for a, b in pairwise(members)), (members[-1], members[0], 1)}
    return _order(sequence, _reduced(count, sequence, {*edges, *implied}), count)


def _unrolled(count: int, sequence: Sequence[int], edges: Iterable[Edge]) -> tuple[list[list[int]], list[int]]:
    """Of task t in iteration i, at i · count + t: what is right before it, and all that leads to it (as bits)."""
    before: list[list[int]] = [[] for _ in range(_ROUNDS * count)]
    for source, target, lag in edges:
        for i in range(lag, _ROUNDS):
            before[i * count + target].append((i - lag) * count + source)
    reached = [0] * len(before)
    for i in range(_ROUNDS):
        for task in sequence:
            bits = 1 << (here := i * count + task)
            for source in before[here]:
                bits |= reached[source]
            reached[here] = bits
    return before, reached


def _reduced(count: int, sequence: Sequence[int], edges: set[Edge]) -> list[Edge]:
    """`edges` without those that others imply, by target."""
    before, reached = _unrolled(count, sequence, edges)
    last = (_ROUNDS - 1) * count

    def needed(edge: Edge) -> bool:
        source = last - edge[2] * count + edge[0]
        return not any(reached[other] >> source & 1 for other in before[last + edge[1]] if other != source)

    return sorted(filter(needed, edges), key=lambda edge: (edge[1], edge[2], edge[0]))


def _order(sequence: Sequence[int], edges: Sequence[Edge], count: int) -> Order:
    waits = np.bincount([after for _, after, _ in edges], minlength=count) if edges else np.zeros(count, np.int64)
    first = np.concatenate([[0], np.cumsum(waits)])
    before, lag = ([edge[column] for edge in edges] for column in (0, 2))
    return Order(*(np.array(values, np.int32) for values in (sequence, first, before, lag)))


def _topological(count: int, edges: Sequence[tuple[int, int]], tasks: Sequence[Task]) -> list[int]:
    """The order nearest to that of `tasks` in which all edges point forwards; `InputError` for a cycle."""
    followers: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for before, after in edges:
        followers[before].append(after)
        missing[after] += 1
    ready = [task for task in range(count) if missing[task] == 0]
    sequence = []
    while ready:
        task = heapq.heappop(ready)
        sequence.append(task)
        for follower in followers[task]:
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(ready, follower)
    if len(sequence) < count:
        names = [task.name for task, left in zip(tasks, missing, strict=True) if left > 0]
        raise InputError(f"DAG: a cycle among or before {', '.join(names[:10])}")
    return sequence
