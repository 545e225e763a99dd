"""The iteration time of one job under many scenarios: other bandwidths, latencies, speeds, sizes.

The duration of a task is a sum over causes, sum_c parts[c, task] · factors[c, scenario]. In the steady state an
iteration takes as long as the slowest cycle of the repeated job: the longest way from a task back to itself some
iterations later, by the number of these iterations (Baccelli et al. 1992, Synchronization and Linearity, theorem
3.23: the maximum cycle mean is the eigenvalue of a max-plus matrix). Every cycle crosses from one iteration to the
next, so it is enough to begin with the few tasks that the next iteration waits for.

The length of each way is linear in the factors, so the iteration time is the largest of some linear functions. Factors
are never negative: a way that is no longer than another in any cause is never the longest, and of the others only
the corners of their convex hull are. Few ways are left (9 of 161 for a network like ResNet-50), and these are what each
scenario is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.spatial import ConvexHull, QhullError

from stallpoint.errors import InputError
from stallpoint.models.dag.order import Order
from stallpoint.models.dag.template import Template
from stallpoint.models.statistics import Reals

_TOKENS = 4
"""Tasks carried into each other from iteration to iteration up to which all their cycles are followed."""
_SETTLED = 8
"""Iterations after which a job with more of them, or without a fixed order, is taken to be steady."""
_CHUNK = 1 << 17
"""Ways times scenarios that a thread takes at a time: their lengths stay in its cache."""
_MANY = 256
"""Ways to a task of which the corners are looked for before others are added."""
_TOO_MANY = 4096
"""Corners up to which ways are followed."""
_MOST_CAUSES = 6
"""Causes that tell ways apart, up to which corners are looked for: their number is the dimension of the hull."""
_FAR = 1e6
"""In ranges of the lengths: as good as infinitely far."""


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
    def longest(self) -> Reals | None:
        """The iteration time as the largest of linear functions of the factors, s, [functions, causes].

        None where the order of tasks is not fixed, or where too many ways lead from iteration to iteration.
        """
        order = self.template.order
        ways = None if order is None else _ways(order)
        return None if ways is None else _lengths(ways, self.parts)

    def iteration_seconds(self, factors: npt.ArrayLike) -> Reals:
        """Iteration time in the steady state for `factors` [causes, scenarios], s."""
        values = np.ascontiguousarray(factors, dtype=np.float64)
        if values.ndim != 2 or len(values) != len(self.parts):
            raise InputError(
                f"what-if: factors of shape {values.shape}; {len(self.parts)} causes x scenarios are needed"
            )
        longest = self.longest
        if longest is None:
            _check(values, "factors")
            return self._settled(values)
        out = np.empty(values.shape[1])
        size = max(1, _CHUNK // len(longest))

        def chunk(begin: int) -> None:
            part = values[:, begin : begin + size]
            _check(part, "factors")
            (longest @ part).max(axis=0, out=out[begin : begin + size])

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            list(threads.map(chunk, range(0, len(out), size)))
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
    if not (values.min(initial=0.0) >= 0 and values.max(initial=0.0) < np.inf):
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


# --- lengths of ways ----------------------------------------------------------------------------------


def _lengths(ways: _Ways, parts: Reals) -> Reals | None:
    """Lengths of the ways that are the longest for some factors, by the iterations they span, [ways, causes]."""
    none = np.zeros((1, len(parts)))
    until: dict[_Node, Reals] = {}
    for node, sources in ways.before.items():
        found = _undominated(np.concatenate([until[source] for source in sources])) if sources else none
        if len(found) > _MANY:
            found = _corners(found)
        if len(found) > _TOO_MANY:
            return None
        until[node] = found + parts[:, node[2]]
    closed = [until[node] / span for node, span in ways.closing.items()]
    return _corners(_undominated(np.concatenate([none, *closed])))


def _undominated(lengths: Reals) -> Reals:
    """Those of `lengths` that no other reaches in every cause."""
    if len(lengths) == 1:
        return lengths
    found = np.unique(lengths, axis=0)
    reached = np.ones((len(found), len(found)), dtype=bool)
    for cause in found.T:
        reached &= cause >= cause[:, None]
    return np.asarray(found[reached.sum(axis=1) == 1])


def _corners(lengths: Reals) -> Reals:
    """Those of `lengths` that are corners of their convex hull; all where that cannot be told."""
    apart = lengths[:, np.ptp(lengths, axis=0) > 0]
    if not 1 < apart.shape[1] <= _MOST_CAUSES or len(apart) <= apart.shape[1] + 1:
        return lengths
    # With points far down each axis from among them, what faces a direction that falls in any cause is no corner.
    below = apart.mean(axis=0) - _FAR * np.diag(np.ptp(apart, axis=0))
    try:
        corners = ConvexHull(np.vstack([apart, below])).vertices
    except QhullError:  # they lie in a plane
        return lengths
    return np.asarray(lengths[corners[corners < len(apart)]])
