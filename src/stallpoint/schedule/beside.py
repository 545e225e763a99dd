"""One-node cells side by side, on nodes of their own: only where a trial shows that this disturbs none of them.

Nodes of a job may share what a cell needs: a file system, power and cooling, or the very machine. So a trial comes
first: the same cells are visited side by side and alone, one right after the other, in random order of the two
(`TRIALS` times, as many cells at once as there are nodes). Of each time the ratio counts, the mean over its cells (they
have the moment in common). Side by side is used from then on if the 90 % interval of the mean ratio (Student's t, of
logarithms) lies within ± 3 %; else cells go on one after the other. That is a test of equivalence: what disturbs by 3 %
or more passes in one of twenty trials at most, and where too little is learned, nothing changes. 3 % is what visits of
a quiet machine differ by, and well below the precision that studies ask for (10 %). Visits side by side of the trial
itself go into no record, those alone count; how many trials there are is fixed before, as looking after each would let
more pass by chance.

A trial is made only where it pays: with so many visits ahead that it saves at least twice what it costs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from stallpoint.schedule.next_visit import Visited, due, half_width, trains
from stallpoint.strategies.options import forced
from stallpoint.study.cells import Cell

TRIALS = 6
WITHIN = 0.03


@dataclass
class SideBySide:
    """Whether and which cells are visited side by side, in one job of so many `nodes`."""

    nodes: int
    seed: int
    ratios: list[float] = field(default_factory=list)
    """Logarithm of the time side by side over that alone, of each trial."""
    allowed: bool | None = None
    """What the trial found; None before its end."""
    found: str = ""
    """The same for people, with its numbers."""

    @property
    def trial(self) -> bool:
        """Whether the trial is going on."""
        return self.allowed is None

    def group(self, visited: Sequence[Visited], place: int) -> list[int]:
        """The places in `visited` of the cells to be visited now: `place`, and others of its round beside it."""
        if self.allowed is False or self.nodes < 2 or not _fits(visited[place].cell):
            return [place]
        alike = [other for other in due(visited, self.seed) if _fits(visited[other].cell)]
        if place not in alike or (self.trial and not self._pays(visited)):
            return [place]
        found = [place, *(other for other in alike if other != place)][: self.nodes]
        return [place] if self.trial and len(found) < self.nodes else found

    def on_nodes(self, count: int, number: int) -> list[int]:
        """A node for each of `count` cells: another one each time, so that no cell has always the same."""
        return random.Random(f"{self.seed} nodes {number}").sample(range(self.nodes), count)

    def alone_first(self) -> bool:
        """Whether the next trial visits the cells alone before it visits them side by side."""
        return random.Random(f"{self.seed} alone first {len(self.ratios)}").random() < 1 / 2

    def add(self, beside: Sequence[float | None], alone: Sequence[float | None]) -> None:
        """Note a trial: the logarithm of the time of each of its cells, both ways; None where a visit failed."""
        pairs = [(one, other) for one, other in zip(beside, alone, strict=True) if other is not None]
        ratios = [one - other for one, other in pairs if one is not None]
        if len(ratios) < len(pairs):
            self.failed()
        elif ratios:
            self.ratios.append(statistics.fmean(ratios))
        if len(self.ratios) == TRIALS and self.trial:
            low, high = self._interval()
            self.allowed = low >= -WITHIN and high <= WITHIN
            self.found = self._found(low, high)

    def failed(self) -> None:
        """Note that visits side by side died, which nobody does alone: there are no more of them."""
        self.allowed = False
        self.found = "one-node cells go on one after the other: visits side by side failed"

    def _found(self, low: float, high: float) -> str:
        verdict = "side by side" if self.allowed else "one after the other"
        more = 100 * math.expm1(statistics.fmean(self.ratios))
        ratio = f"{more:+.1f} % (90 % interval {100 * low:+.1f} to {100 * high:+.1f} %)"
        others = f"beside {self.nodes - 1} others a cell takes {ratio}"
        return f"one-node cells go on {verdict}: {others}, allowed are ± {100 * WITHIN:.0f} %"

    def _interval(self) -> tuple[float, float]:
        """Of the mean ratio, less 1."""
        middle, width = statistics.fmean(self.ratios), half_width(self.ratios)
        return math.expm1(middle - width), math.expm1(middle + width)

    def _pays(self, visited: Sequence[Visited]) -> bool:
        """Whether the trial, which makes `TRIALS` further visits, saves at least twice as many."""
        ahead = sum(max(0, one.wanted - one.visits) for one in visited if _fits(one.cell) and not one.ended)
        left = ahead - (TRIALS - len(self.ratios)) * self.nodes
        return bool(self.ratios) or left * (1 - 1 / self.nodes) >= 2 * TRIALS


def _fits(cell: Cell) -> bool:
    """Whether the cell may be among those visited side by side: all of them have the same processes."""
    return trains(cell) and cell.nodes == 1 and not forced(cell.scheme)
