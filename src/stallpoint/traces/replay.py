"""An iteration replayed with other durations of its collectives: the cycle time of its dependency graph.

A training repeats its iteration, and the host may run ahead of the device: the iteration takes as long as the slowest
of all cycles through the host and the lanes. Earliest starts are maxima of sums, so an iteration is a matrix over
(max, +), and its time the matrix's eigenvalue, the largest mean of a cycle (Baccelli, Cohen, Olsder & Quadrat,
*Synchronization and Linearity*, 1992, sections 2.5 and 3.2). Collectives are kept apart, all else is summed up once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallpoint.models.base.statistics import Reals
from stallpoint.traces.graph import HOST, Graph, Node
from stallpoint.traces.started import Started


@dataclass(frozen=True)
class Replay:
    """One iteration. Sources are the host, each lane, and then the ends of the collectives in the order of starting."""

    sources: int
    """The host and the lanes."""
    places: npt.NDArray[np.int64]
    """Which of `Started` the collectives are, [collectives]."""
    seconds: Reals
    """What they took in the trace, [collectives]."""
    starts: Reals
    """Seconds from each source to the start of each collective, [collectives, sources + collectives]; -∞: no path."""
    ends: Reals
    """Seconds from each source to the end of the iteration on the host and on each lane, [sources, ... as above]."""

    def moved(self, by: int) -> Replay:
        """The same, of a `Started` that has so many more before."""
        return replace(self, places=self.places + by)

    def iteration(self, seconds: Reals) -> Reals:
        """How long an iteration takes when its collectives take `seconds` [collectives, ...], [...]."""
        reached = self._collective_ends(np.asarray(seconds, np.float64))
        return _cycle_time(self._through(self.ends, reached))

    def _collective_ends(self, seconds: Reals) -> Reals:
        """From the host and each lane to the end of each collective, [collectives, sources, ...]."""
        shape = (len(self.places), self.sources, *seconds.shape[1:])
        reached = np.full(shape, -np.inf)
        for place in range(len(self.places)):
            reached[place] = self._through(self.starts[place : place + 1], reached[:place])[0] + seconds[place]
        return reached

    def _through(self, paths: Reals, reached: Reals) -> Reals:
        """From the host and each lane to the ends of `paths` [ends, ...], through collectives [collectives, ...]."""
        more = (1,) * (reached.ndim - 2)
        direct = paths[:, : self.sources].reshape(len(paths), self.sources, *more)
        found = np.broadcast_to(direct, (len(paths), *reached.shape[1:])).copy()
        for place in range(len(reached)):
            known = paths[:, self.sources + place]
            for end in np.flatnonzero(known > -np.inf):
                np.maximum(found[end], known[end] + reached[place], out=found[end])
        return found


def replay(graph: Graph, started: Started) -> Replay:
    """Sum up all of an iteration's graph but its collectives."""
    sources = 1 + graph.lanes
    own = [node.place for node in graph.nodes if node.place >= 0 and started.communicates[node.place]]
    starts = np.full((len(own), sources + len(own)), -np.inf)
    last = {lane: -2 - lane for lane in range(graph.lanes)} | {HOST: -1}
    rows = _Rows(graph.nodes, sources + len(own))
    count = 0
    for at, node in enumerate(graph.nodes):
        row = rows.start(node)
        if node.place >= 0 and started.communicates[node.place]:
            starts[count] = row
            row = np.full(len(row), -np.inf)
            row[sources + count] = 0.0
            count += 1
        else:
            row += node.seconds
        rows.keep(at, row)
        if node.lane != HOST:
            last[node.lane] = at
    last[HOST] = len(graph.nodes) - 1
    ends = np.stack([rows.of(last[HOST]), *(rows.of(last[lane]) for lane in range(graph.lanes))])
    return Replay(sources, np.array(own, np.int64), started.events.seconds[own], starts, ends)


class _Rows:
    """Longest paths from every source to the ends of nodes, kept while a later node needs them."""

    def __init__(self, nodes: Sequence[Node], sources: int) -> None:
        self._sources, self._known = sources, dict[int, Reals]()
        self._last_use = {before: at for at, node in enumerate(nodes) for before, _ in node.after}
        self._lanes_last = {node.lane: at for at, node in enumerate(nodes)}
        self._done: dict[int, list[int]] = {}
        for before, at in self._last_use.items():
            self._done.setdefault(at, []).append(before)

    def of(self, place: int) -> Reals:
        if place >= 0:
            return self._known[place]
        row = np.full(self._sources, -np.inf)
        row[-1 - place] = 0.0
        return row

    def start(self, node: Node) -> Reals:
        row = np.full(self._sources, -np.inf)
        for before, seconds in node.after:
            if before >= 0:
                np.maximum(row, self._known[before] + seconds, out=row)
            else:
                row[-1 - before] = max(row[-1 - before], seconds)
        return row

    def keep(self, at: int, row: Reals) -> None:
        self._known[at] = row
        for before in self._done.get(at, ()):
            if before >= 0 and before not in self._lanes_last.values():
                del self._known[before]


def _cycle_time(matrix: Reals) -> Reals:
    """The largest mean of a cycle of a (max, +) matrix [n, n, ...], [...]: that of its powers' diagonals."""
    best, power = np.full(matrix.shape[2:], -np.inf), matrix
    for length in range(1, len(matrix) + 1):
        for at in range(len(matrix)):
            best = np.maximum(best, power[at, at] / length)
        power = np.stack([(power[:, :] + matrix[:, end][None]).max(1) for end in range(len(matrix))], 1)
    return best
