"""Decides whether one-node cells are visited side by side, each on a node of its own: only where it disturbs none.

Nodes of a job may share what a cell needs: a file system, power and cooling, or the machine itself. A trial therefore
visits the same cells both side by side and isolated, in random order of the two, `TRIALS` times, as many cells at once
as there are nodes. Each repetition gives one ratio of times, the mean over its cells, as these share the moment. Cells
are visited side by side from then on if the 90 % interval of the mean ratio (Student's t, of logarithms) lies within
± 3 %, else one after the other. This is a test of equivalence: a disturbance of 3 % or more passes in at most one of
twenty trials, and a trial that cannot decide changes nothing. Visits on a quiet machine differ by 3 %, which is well
below the precision that studies ask for (10 %). Only the isolated visits of a trial are recorded. The number of
repetitions is fixed, as a look after each of them would let more pass by chance.

A trial is made only where it pays: where the visits still to come save at least twice what it costs.
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
    """Whether cells are visited side by side, and which ones, in one job of `nodes` nodes."""

    nodes: int
    seed: int
    ratios: list[float] = field(default_factory=list)
    """Logarithm of the time side by side over the isolated time, for each repetition of the trial."""
    allowed: bool | None = None
    """Result of the trial; None before its end."""
    found: str = ""
    """Result of the trial in words, with its numbers."""

    @property
    def trial(self) -> bool:
        return self.allowed is None

    def group(self, visited: Sequence[Visited], index: int) -> list[int]:
        """Return the indices in `visited` of the cells to be visited now: `index`, and others of its round."""
        if self.allowed is False or self.nodes < 2 or not _fits(visited[index].cell):
            return [index]
        fitting = [other for other in due(visited, self.seed) if _fits(visited[other].cell)]
        if index not in fitting or (self.trial and not self._pays(visited)):
            return [index]
        found = [index, *(other for other in fitting if other != index)][: self.nodes]
        return [index] if self.trial and len(found) < self.nodes else found

    def on_nodes(self, count: int, number: int) -> list[int]:
        """Return a node for each of `count` cells, in random order, so that no cell always has the same one."""
        return random.Random(f"{self.seed} nodes {number}").sample(range(self.nodes), count)

    def isolated_first(self) -> bool:
        """Return whether the next repetition of the trial begins with the isolated visits."""
        return random.Random(f"{self.seed} alone first {len(self.ratios)}").random() < 1 / 2

    def add(self, concurrent: Sequence[float | None], isolated: Sequence[float | None]) -> None:
        """Add a repetition of the trial: logarithms of its cells' times, side by side and isolated; None: failed."""
        pairs = [(one, other) for one, other in zip(concurrent, isolated, strict=True) if other is not None]
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
        """Stop visits side by side, as one died that does not die isolated."""
        self.allowed = False
        self.found = "one-node cells go on one after the other: visits side by side failed"

    def _found(self, low: float, high: float) -> str:
        verdict = "side by side" if self.allowed else "one after the other"
        more = 100 * math.expm1(statistics.fmean(self.ratios))
        ratio = f"{more:+.1f} % (90 % interval {100 * low:+.1f} to {100 * high:+.1f} %)"
        others = "1 other" if self.nodes == 2 else f"{self.nodes - 1} others"
        return f"one-node cells go on {verdict}: with {others} a cell takes {ratio}, allowed are ± {100 * WITHIN:.0f} %"

    def _interval(self) -> tuple[float, float]:
        """Return the 90 % interval of the mean ratio, less 1."""
        middle, width = statistics.fmean(self.ratios), half_width(self.ratios)
        return math.expm1(middle - width), math.expm1(middle + width)

    def _pays(self, visited: Sequence[Visited]) -> bool:
        """Return whether the trial saves at least twice as many visits as the `TRIALS` that it adds."""
        ahead = sum(max(0, one.wanted - one.visits) for one in visited if _fits(one.cell) and not one.ended)
        after = ahead - (TRIALS - len(self.ratios)) * self.nodes
        return bool(self.ratios) or after * (1 - 1 / self.nodes) >= 2 * TRIALS


def _fits(cell: Cell) -> bool:
    """Return whether a cell can be visited side by side with others: it needs the same processes."""
    return trains(cell) and cell.nodes == 1 and not forced(cell.scheme)
