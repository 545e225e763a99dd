"""An iteration replayed with other durations of its collectives: the cycle time of its dependency graph.

A training repeats its iteration, and the host may run ahead of the device: the iteration takes as long as the slowest
of all cycles through the host and the lanes. Earliest starts are maxima of sums, so an iteration is a matrix over
(max, +), and its time the matrix's eigenvalue, the largest mean of a cycle (Baccelli, Cohen, Olsder & Quadrat,
*Synchronization and Linearity*, 1992, sections 2.5 and 3.2). Collectives are kept apart, all else is summed up once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stallpoint.explain.graph import HOST, Graph, Node
from stallpoint.explain.started import Started
from stallpoint.models.base.statistics import Reals

Paths: TypeAlias = tuple[tuple[int, float], ...]
"""Where the longest paths to a point come from (a source; behind the sources, the end of a step), and their seconds."""
MAX_PATHS = 6
"""Paths to a point beyond which those before it become steps: a replay's work grows with the graph, not its square."""


@dataclass(frozen=True)
class Step:
    """A point of the graph that others are reached through: a collective, or where many paths meet."""

    collective: int
    """Its place among the collectives; -1 where it is none."""
    paths: Paths
    """To its start."""


@dataclass(frozen=True)
class Replay:
    """One iteration: longest paths from the host and each lane, through steps, to the iteration's end."""

    sources: int
    """The host and the lanes that the iteration uses."""
    places: npt.NDArray[np.int64]
    """Which of `Started` the collectives are, in the order of starting; [collectives]."""
    seconds: Reals
    """What they took in the trace, [collectives]."""
    steps: Sequence[Step]
    """Each after those that it is reached through."""
    ends: Sequence[Paths]
    """To the end of the iteration on each source."""

    def moved(self, by: int) -> Replay:
        """The same, of a `Started` that has so many more before."""
        return replace(self, places=self.places + by)

    def iteration(self, seconds: Reals) -> Reals:
        """How long an iteration takes when its collectives take `seconds` [collectives, ...], [...]."""
        given = np.asarray(seconds, np.float64)
        given = given.reshape(len(given), int(np.prod(given.shape[1:])))
        reached: dict[int, Reals] = {}
        for place, step in enumerate(self.steps):
            reached[place] = self._through(step.paths, reached, given.shape[1])
            if step.collective >= 0:
                reached[place] += given[step.collective]
            for done in self._done.get(place, ()):
                del reached[done]
        matrix = np.stack([self._through(paths, reached, given.shape[1]) for paths in self.ends])
        return _cycle_time(matrix).reshape(np.shape(seconds)[1:])

    @cached_property
    def _done(self) -> dict[int, list[int]]:
        """Steps that no later one is reached through, by the place of the last that is."""
        last = {at - self.sources: place for place, step in enumerate(self.steps) for at, _ in step.paths}
        ends = {at - self.sources for paths in self.ends for at, _ in paths}
        done: dict[int, list[int]] = {}
        for step, place in last.items():
            if step >= 0 and step not in ends:
                done.setdefault(place, []).append(step)
        return done

    def _through(self, paths: Paths, reached: Mapping[int, Reals], count: int) -> Reals:
        """From each source to a point, [sources, count]; -∞ where no path leads."""
        found = np.full((self.sources, count), -np.inf)
        for at, seconds in paths:
            if at < self.sources:
                np.maximum(found[at], seconds, out=found[at])
            else:
                np.maximum(found, reached[at - self.sources] + seconds, out=found)
        return found


def replay(graph: Graph, started: Started) -> Replay:
    """Sum up all of an iteration's graph but its collectives, in time that grows with the graph."""
    own = [node.place for node in graph.nodes if node.place >= 0 and started.communicates[node.place]]
    lanes = sorted({node.lane for node in graph.nodes if node.lane != HOST})
    last = {-1: -1} | {-2 - lane: -2 - lane for lane in lanes}
    found = _Paths({before: at for at, before in enumerate(last)})
    count = 0
    for at, node in enumerate(graph.nodes):
        if node.place >= 0 and started.communicates[node.place]:
            found.add_step(at, node, count)
            count += 1
        else:
            found.add(at, node)
        last[-1 if node.lane == HOST else -2 - node.lane] = at
    last[-1] = len(graph.nodes) - 1
    ends = [tuple(found.to(place).items()) for place in last.values()]
    return Replay(len(last), np.array(own, np.int64), started.events.seconds[own], found.steps, ends)


class _Paths:
    """Longest paths to the ends of nodes, from sources and steps, while nodes are added one after the other."""

    def __init__(self, sources: Mapping[int, int]) -> None:
        self.steps: list[Step] = []
        self._sources = sources
        self._to: dict[int, dict[int, float]] = {place: {at: 0.0} for place, at in sources.items()}

    def to(self, place: int) -> Mapping[int, float]:
        """The paths to the end of a node, or from a source; none from a lane that the iteration does not use."""
        return self._to.get(place, {})

    def add(self, place: int, node: Node) -> None:
        """Add a node of known duration."""
        self._to[place] = {at: seconds + node.seconds for at, seconds in self._start(node).items()}

    def add_step(self, place: int, node: Node, collective: int) -> None:
        """Add a collective."""
        self._to[place] = self._through(Step(collective, tuple(self._start(node).items())))

    def _through(self, step: Step) -> dict[int, float]:
        self.steps.append(step)
        return {len(self._sources) + len(self.steps) - 1: 0.0}

    def _start(self, node: Node) -> dict[int, float]:
        found = self._merged(node)
        if len(found) > MAX_PATHS:
            # Each of the many paths goes through a node before this one: those become steps, once each.
            for before, _ in node.after:
                if len(self.to(before)) > 1:
                    self._to[before] = self._through(Step(-1, tuple(self._to[before].items())))
            found = self._merged(node)
        return found

    def _merged(self, node: Node) -> dict[int, float]:
        found: dict[int, float] = {}
        for before, seconds in node.after:
            for at, passed in self.to(before).items():
                if passed + seconds > found.get(at, -np.inf):
                    found[at] = passed + seconds
        return found


def _cycle_time(matrix: Reals) -> Reals:
    """The largest mean of a cycle of a (max, +) matrix [n, n, ...], [...]: that of its powers' diagonals."""
    best, power = np.full(matrix.shape[2:], -np.inf), matrix
    for length in range(1, len(matrix) + 1):
        for at in range(len(matrix)):
            best = np.maximum(best, power[at, at] / length)
        power = np.stack([(power[:, :] + matrix[:, end][None]).max(1) for end in range(len(matrix))], 1)
    return best
