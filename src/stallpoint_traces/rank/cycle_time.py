"""Iteration time of a periodic task graph, which is reduced once and then evaluated for complete ensembles.

Traced durations already include the slowdown by concurrent tasks, so that earliest starts are maxima of sums. An
iteration is then a matrix over (max, +), and its time the matrix's eigenvalue, the largest cycle mean (Baccelli, Cohen,
Olsder & Quadrat, *Synchronization and Linearity*, 1992, sections 2.5 and 3.2): the limit of `tasks.schedule` for the
same graph repeated. Only tasks of variable duration stay separate; all others are summed into paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals

Paths: TypeAlias = Mapping[int, float]
"""Longest path to a point from each origin, s: from a stream's end in the previous iteration, or from a step."""
MAX_PATHS = 6
"""Maximum number of paths to a point; beyond it, the predecessors become steps, so that work grows linearly with the
graph, not with its square."""


@dataclass(frozen=True)
class StreamTask:
    """A task of an iteration; tasks of a stream run in order only if edges say so."""

    stream: int
    seconds: float
    after: Sequence[tuple[int, float]]
    """Predecessors: position of a node, and the delay after its end, s. Position -1 - s is the last task of stream s in
    earlier iterations."""
    key: int = -1
    """Key of a variable duration; -1 if the duration is constant."""


@dataclass(frozen=True)
class Cycle:
    """An iteration as longest paths: from streams' ends in the previous one, through steps, to their ends in it."""

    streams: int
    """Streams of the iteration."""
    keys: npt.NDArray[np.int64]
    """Keys of the tasks of variable duration, in order; [variable]."""
    seconds: Reals
    """Durations of these tasks in the graph, s; [variable]."""
    steps: Sequence[tuple[int, Paths]]
    """Intermediate points: index of a variable task, or -1 where only many paths meet; and the paths to the point."""
    ends: Sequence[Paths]
    """Paths to the end of the iteration on each stream."""

    def iteration(self, seconds: Reals) -> Reals:
        """Return the iteration time for `seconds` [variable, ...] of the variable tasks, [...]."""
        given = np.asarray(seconds, np.float64)
        given = given.reshape(len(given), int(np.prod(given.shape[1:])))
        reached = {stream: np.full((self.streams, given.shape[1]), -np.inf) for stream in range(self.streams)}
        for stream, own in reached.items():
            own[stream] = 0.0
        for place, (variable, paths) in enumerate(self.steps, self.streams):
            reached[place] = _through(paths, reached) + (given[variable] if variable >= 0 else 0.0)
            for done in self._last_uses.get(place, ()):
                del reached[done]
        matrix = np.stack([_through(paths, reached) for paths in self.ends])
        return _cycle_time(matrix).reshape(np.shape(seconds)[1:])

    @cached_property
    def _last_uses(self) -> Mapping[int, Sequence[int]]:
        """Return, for each step, the steps whose times are needed last there and can then be dropped."""
        last = {at: place for place, (_, paths) in enumerate(self.steps, self.streams) for at in paths}
        for at in (*range(self.streams), *(at for paths in self.ends for at in paths)):
            last.pop(at, None)
        done: dict[int, list[int]] = {}
        for at, place in last.items():
            done.setdefault(place, []).append(at)
        return done


def cycle(nodes: Sequence[StreamTask]) -> Cycle:
    """Return the reduced iteration; `nodes` are in topological order, and the last one ends the first stream."""
    streams = sorted({node.stream for node in nodes})
    # Only streams that the iteration uses are origins of paths.
    to: dict[int, Paths] = {-1 - stream: {at: 0.0} for at, stream in enumerate(streams)}
    last, steps, variable = {stream: -1 - stream for stream in streams}, list[tuple[int, Paths]](), list[StreamTask]()

    def step(variable: int, paths: Paths) -> Paths:
        steps.append((variable, paths))
        return {len(streams) + len(steps) - 1: 0.0}

    for place, node in enumerate(nodes):
        paths = _longest_paths(node, to)
        if len(paths) > MAX_PATHS:
            # Each predecessor with several paths becomes a step, from which a single path leads: else paths multiply.
            for before, _ in node.after:
                if len(to.get(before, ())) > 1:
                    to[before] = step(-1, to[before])
            paths = _longest_paths(node, to)
        if node.key >= 0:
            to[place] = step(len(variable), paths)
            variable.append(node)
        else:
            to[place] = {at: seconds + node.seconds for at, seconds in paths.items()}
        last[node.stream] = place
    keys, seconds = np.array([node.key for node in variable], np.int64), np.array([node.seconds for node in variable])
    return Cycle(len(streams), keys, seconds, steps, [to[place] for place in last.values()])


def _longest_paths(node: StreamTask, to: Mapping[int, Paths]) -> dict[int, float]:
    found: dict[int, float] = {}
    for before, lag in node.after:
        for at, seconds in to.get(before, {}).items():
            if seconds + lag > found.get(at, -np.inf):
                found[at] = seconds + lag
    return found


def _through(paths: Paths, reached: Mapping[int, Reals]) -> Reals:
    """Return the longest path from each stream to a point, s, [streams, members]; -∞ without a path."""
    found = np.full_like(reached[0], -np.inf)
    for at, seconds in paths.items():
        np.maximum(found, reached[at] + seconds, out=found)
    return found


def _cycle_time(matrix: Reals) -> Reals:
    """Return the largest cycle mean of a (max, +) matrix [n, n, ...], from the diagonals of its powers; [...]."""
    best, power = np.full(matrix.shape[2:], -np.inf), matrix
    for length in range(1, len(matrix) + 1):
        for at in range(len(matrix)):
            best = np.maximum(best, power[at, at] / length)
        power = np.stack([(power[:, :] + matrix[:, end][None]).max(1) for end in range(len(matrix))], 1)
    return best
