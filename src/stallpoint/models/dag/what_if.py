"""The iteration time of one job under many scenarios: other bandwidths, latencies, speeds, sizes.

The duration of a task is a sum over causes, sum_c parts[c, task] · factors[c, scenario]. In the steady state an
iteration takes as long as the slowest cycle of the repeated job: the longest way from a task back to itself some
iterations later, by the number of these iterations (Baccelli et al. 1992, Synchronization and Linearity, theorem
3.23: the maximum cycle mean is the eigenvalue of a max-plus matrix). Every cycle crosses from one iteration to the
next, so it is enough to begin with the few tasks that the next iteration waits for. The ways are found once and
become a short list of steps, which are taken for many scenarios at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError
from stallpoint.models.dag import lanes
from stallpoint.models.dag.compilation import kernel
from stallpoint.models.dag.graph import Indices
from stallpoint.models.dag.order import Order
from stallpoint.models.dag.template import Template
from stallpoint.models.statistics import Reals

_TOKENS = 4
"""Tasks carried into each other from iteration to iteration up to which all their cycles are followed."""
_SETTLED = 8
"""Iterations after which a job with more of them, or without a fixed order, is taken to be steady."""
_CHUNK = 1 << 14
"""Scenarios that a thread takes at a time."""


@dataclass(frozen=True)
class Structure:
    """A job whose durations depend on a scenario."""

    template: Template
    parts: Reals
    """[causes, tasks], s, in the order of `Template.tasks`; workers are equal."""

    def __post_init__(self) -> None:
        tasks = len(self.template.tasks)
        if self.parts.ndim != 2 or self.parts.shape[1] != tasks:
            raise InputError(f"what-if: parts of shape {self.parts.shape}; causes x {tasks} tasks are needed")
        shared = {task.resource for task in self.template.worker} & self.template.together
        if shared:
            raise InputError(
                f"what-if: workers queue for {', '.join(sorted(shared))}; they must not wait for each other"
            )
        _check(self.parts, "parts")

    @cached_property
    def _program(self) -> _Program | None:
        order = self.template.order
        ways = None if order is None else _ways(order)
        return None if ways is None else _compiled(ways, self.parts)

    def iteration_seconds(self, factors: npt.ArrayLike) -> Reals:
        """Iteration time in the steady state for `factors` [causes, scenarios], s."""
        values = np.ascontiguousarray(factors, dtype=np.float64)
        if values.ndim != 2 or len(values) != len(self.parts):
            raise InputError(
                f"what-if: factors of shape {values.shape}; {len(self.parts)} causes x scenarios are needed"
            )
        _check(values, "factors")
        program = self._program
        if program is None:
            return self._settled(values)
        out = np.empty(values.shape[1])
        evaluate = kernel(lanes.evaluate, (1 + len(program.row)) * values.shape[1])

        def chunk(begin: int) -> None:
            evaluate(
                program.row, program.left, program.right, program.ready_first, program.ready_cause,
                program.ready_seconds, program.own_first, program.own_cause, program.own_seconds, program.every,
                program.shift, program.rows, values, out, begin, min(begin + _CHUNK, len(out)),
            )  # fmt: skip

        chunks = range(0, values.shape[1], _CHUNK)
        if len(chunks) < 2:
            for begin in chunks:
                chunk(begin)
        else:
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
                list(threads.map(chunk, chunks))
        return out

    def _settled(self, factors: Reals) -> Reals:
        """Scenarios scheduled one beside the other, as workers that have nothing to do with each other."""
        alone = Template(self.template.tasks, (), self.template.carried)
        out = np.empty(factors.shape[1])
        size = max(1, 2_000_000 // (_SETTLED * max(1, len(alone.tasks))))
        for begin in range(0, len(out), size):
            seconds = self.parts.T @ factors[:, begin : begin + size]
            ends = alone.run(seconds[None], iterations=_SETTLED, keep=False).worker.max(1, initial=0.0)
            out[begin : begin + size] = ends[-1] - ends[-2]
        return out


def _check(values: Reals, name: str) -> None:
    if not (values >= 0).all() or not np.isfinite(values).all():
        raise InputError(f"what-if: {name} hold a number that is negative or not finite")


# --- cycles -------------------------------------------------------------------------------------------

_Node = tuple[int, int, int]
"""Token where the way began, iteration since, task."""


@dataclass(frozen=True)
class _Ways:
    """All ways from each token back to itself: what is right before each task, tasks in order."""

    before: dict[_Node, list[_Node]]
    closing: dict[_Node, int]
    """Ends of the ways: the iterations they span."""


def _ways(order: Order) -> _Ways | None:
    edges = order.edges()
    within: dict[int, list[int]] = {}
    carried: dict[int, list[int]] = {}
    for before, after, lag in edges:
        (carried if lag else within).setdefault(before, []).append(after)
    reach = {token: _reachable(carried[token], within) for token in carried}
    leads = {token: {other for other in carried if other in reach[token]} for token in carried}
    closed = {token: _reachable(leads[token], leads) for token in carried}
    ways = _Ways({}, {})
    for token in carried:
        group = [other for other in closed[token] if token in closed[other]]
        if len(group) > _TOKENS:
            return None
        if token in group:
            _follow(ways, order, token, set(group), carried, within)
    return ways


def _reachable(begin: Iterable[int], followers: dict[int, list[int]] | dict[int, set[int]]) -> set[int]:
    found: set[int] = set()
    waiting = list(begin)
    while waiting:
        task = waiting.pop()
        if task not in found:
            found.add(task)
            waiting += followers.get(task, ())
    return found


def _follow(
    ways: _Ways, order: Order, token: int, group: set[int], carried: dict[int, list[int]], within: dict[int, list[int]]
) -> None:
    """Add the ways from `token` back to it, over as many iterations as its group has members."""
    backward: dict[int, list[int]] = {}
    for source, targets in within.items():
        for target in targets:
            backward.setdefault(target, []).append(source)
    useful = _reachable(group, backward)
    entering = {token}
    for span in range(1, len(group) + 1):
        begun = {target for source in entering for target in carried[source]}
        here = _reachable(begun, within) & useful
        for task in order.sequence.tolist():
            if task in here:
                before = [(token, span, source) for source in backward.get(task, ()) if source in here]
                if span > 1:
                    before += [
                        (token, span - 1, source)
                        for source in entering
                        if task in carried[source] and (token, span - 1, source) in ways.before
                    ]
                ways.before[token, span, task] = before
        if token in here:
            ways.closing[token, span, token] = span
        entering = group & here


# --- steps --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Program:
    """Steps row[n] = max(left[n], right[n], ready) + own on a few rows of lanes.

    Rows are numbered, -1 is none. `ready` and `own` are sums of seconds · factors of causes, those of step n
    at ready_first[n]:ready_first[n + 1] and own_first[n]:own_first[n + 1]. A step closes ways of every[n] iterations
    (0: none), which take `shift` more than the step says.
    """

    row: Indices
    left: Indices
    right: Indices
    ready_first: Indices
    ready_cause: Indices
    ready_seconds: Reals
    own_first: Indices
    own_cause: Indices
    own_seconds: Reals
    every: Indices
    shift: Reals
    rows: int


@dataclass
class _Step:
    """A step of a program, sources named as nodes."""

    node: object
    sources: list[object]
    ready: Reals | None
    own: Reals
    every: int


def _compiled(ways: _Ways, parts: Reals) -> _Program:
    straight: dict[_Node, Reals] = {}
    steps: list[_Step] = []
    for node in _deepest_first(ways):
        own, every = parts[:, node[2]], ways.closing.get(node, 0)
        rows = [source for source in ways.before[node] if source not in straight]
        sums = _not_dominated([straight[source] for source in ways.before[node] if source in straight])
        if not rows and len(sums) < 2:
            straight[node] = own + (sums[0] if sums else 0.0)
        else:
            steps += _in_pairs(node, rows, sums, own, every)
    steps = _chains_merged(steps)
    nothing = np.zeros(len(parts))
    steps += [_Step(node, [], straight[node], nothing, span) for node, span in ways.closing.items() if node in straight]
    readies = [step.ready for step in steps if step.ready is not None]
    # All that begins, begins later by what every task waits for at least: that much can be added at the end.
    shift = np.min(readies, axis=0) if readies else nothing
    row, left, right, rows_needed = _placed(steps)
    ready = _sparse([nothing if step.ready is None else step.ready - shift for step in steps])
    return _Program(
        row, left, right, *ready, *_sparse([step.own for step in steps]),
        every=np.array([step.every for step in steps], np.int32),
        shift=shift, rows=rows_needed,
    )  # fmt: skip


def _deepest_first(ways: _Ways) -> list[_Node]:
    """Nodes in an order that leaves few results waiting."""
    depth: dict[_Node, int] = {}
    for node, sources in ways.before.items():
        depth[node] = 1 + max((depth[source] for source in sources), default=0)
    order: dict[_Node, None] = {}
    for end in ways.closing:
        waiting = [(end, False)]
        while waiting:
            node, ready = waiting.pop()
            if ready:
                order.setdefault(node)
            elif node not in order:
                waiting.append((node, True))
                waiting += [(source, False) for source in sorted(ways.before[node], key=depth.__getitem__)]
    return list(order)


def _not_dominated(sums: list[Reals]) -> list[Reals]:
    """Those of `sums` that are the largest for some factors, for all we know."""
    kept: list[Reals] = []
    for one in sums:
        if not any((other >= one).all() for other in kept):
            kept = [other for other in kept if not (one >= other).all()] + [one]
    return kept


def _in_pairs(node: _Node, rows: Sequence[object], sums: Sequence[Reals], own: Reals, every: int) -> list[_Step]:
    """The steps of one node: two rows at a time, or one and what is ready; its own time in the last."""
    nothing = np.zeros_like(own)
    waiting, ready = list(rows), list(sums)
    steps: list[_Step] = []
    while True:
        sources = waiting[: 2 - min(1, len(ready))]
        waiting = waiting[len(sources) :]
        one = ready.pop() if ready else None
        if not waiting and not ready:
            return [*steps, _Step(node, sources, one, own, every)]
        part = (node, len(steps))
        steps.append(_Step(part, sources, one, nothing, 0))
        waiting.insert(0, part)


def _chains_merged(steps: list[_Step]) -> list[_Step]:
    """Steps that only add to a result nobody else wants are added there."""
    uses: dict[object, int] = {}
    for step in steps:
        for source in step.sources:
            uses[source] = uses.get(source, 0) + 1
    made: dict[object, _Step] = {}
    for step in steps:
        source = made.get(step.sources[0]) if len(step.sources) == 1 and step.ready is None else None
        if source is not None and uses[source.node] == 1 and not source.every:
            del made[source.node]
            step = _Step(step.node, source.sources, source.ready, source.own + step.own, step.every)
        made[step.node] = step
    return list(made.values())


def _placed(steps: list[_Step]) -> tuple[Indices, Indices, Indices, int]:
    """Row of each step's result and of its sources, and the number of rows needed."""
    uses: dict[object, int] = {}
    for step in steps:
        for source in step.sources:
            uses[source] = uses.get(source, 0) + 1
    place: dict[object, int] = {}
    free: list[int] = []
    table = np.full((3, len(steps)), -1, np.int32)
    rows = 0
    for number, step in enumerate(steps):
        # A row of its own: loops that overwrite what they read are not done several lanes at a time.
        if not free:
            free.append(rows)
            rows += 1
        place[step.node] = table[0, number] = free.pop()
        for side, source in enumerate(step.sources):
            table[1 + side, number] = place[source]
            uses[source] -= 1
        free += [place.pop(source) for source in {*step.sources} if uses[source] == 0]
        if step.node not in uses:
            free.append(place.pop(step.node))
    return table[0], table[1], table[2], rows


def _sparse(vectors: Sequence[Reals]) -> tuple[Indices, Indices, Reals]:
    """First, cause and seconds of what is not zero in each of `vectors`."""
    causes = [np.flatnonzero(vector) for vector in vectors]
    first = np.cumsum([0, *map(len, causes)])
    seconds = [vector[cause] for vector, cause in zip(vectors, causes, strict=True)]
    return (
        first.astype(np.int32),
        np.concatenate([np.empty(0, np.int32), *causes]).astype(np.int32),
        np.concatenate([np.empty(0), *seconds]),
    )
