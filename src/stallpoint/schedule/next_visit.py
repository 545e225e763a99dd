"""Which cell is visited next, and when it is enough.

First every cell gets its own number of visits (`Cell.visits`), one round after the other, each round in another random
order: whatever slows the machine down for a while then hits all cells alike. Cells of a speedup that no machine can
have, and cells that do the same but differ, are visited as often again before anything is concluded from them. Then,
where a precision is wanted, visits go to the answer that is least certain: of the two cells of that speedup, to the one
whose visit narrows it most for the node-seconds it takes.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Self, TypeGuard

from stallpoint.schedule.agenda import Limits
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.intervention_kind import InterventionCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.workers import curves_of

INTERVAL = 0.90
FEWEST = 2
"""Visits without which nothing is known of how much visits differ."""
MOST = 4
"""No cell is visited more often than this times its own number of visits."""
SUPERLINEAR = 1.1
"""Times the ideal speedup that is beyond what larger caches give: such a speedup is visited again before it counts."""
SERIES = ("network", "storage", "scaling", "sync", "prefetch", "batch", "repeat")
"""Axes that stay fixed where only nodes and workers on each differ; its places make scaling curves (`curves_of`)."""
ALIKE = ("network", "hardware", "storage", "prefetch", "worker_batch")
"""Axes in which cells on one worker have to be equal to do the same (A/A controls)."""


@dataclass
class Visited:
    """What the visits to one cell found."""

    cell: Cell
    medians: list[float] = field(default_factory=list)
    """Logarithm of the median iteration time of each visit that counts; empty for what has no iterations."""
    durations: list[float] = field(default_factory=list)
    """Duration of every visit, s."""
    disturbed: int = 0
    """Visits that do not count, as they were disturbed."""
    fixed: bool = False
    """Its number of visits is fixed: no precision is wanted."""
    ended: bool = False
    """It failed: no more visits."""
    shared: float = 0.0
    """Its part of the seconds that visits to several cells at the same time saved, less what trials of that took."""

    @property
    def visits(self) -> int:
        """All of them."""
        return len(self.durations)

    @property
    def seconds(self) -> float:
        """Its part of the wall time of all visits."""
        return sum(self.durations) - self.shared

    @property
    def wanted(self) -> int:
        """Its own number of visits; unless fixed, one more for each that was disturbed, twice as many at most."""
        return self.cell.visits + (0 if self.fixed else min(self.disturbed, self.cell.visits))

    @property
    def cost(self) -> float:
        """Node-seconds that a visit takes."""
        return statistics.median(self.durations) * self.cell.nodes if self.durations else 0.0


@dataclass(frozen=True)
class Speedup:
    """How certain one speedup is."""

    base: Visited
    other: Visited
    half_width: float
    """Half the length of its 90 % interval, relative; infinite where a cell has too few visits."""

    @classmethod
    def of(cls, base: Visited, other: Visited) -> Self:
        """As certain as the visits to both cells make it."""
        return cls(base, other, _of_two(base.medians, other.medians))

    @property
    def steady(self) -> float:
        """The largest half-width with, and without, the last visit to either cell.

        Visits that end once an interval is narrow end where it is too narrow by chance: it has to be so at two looks.
        """
        base, other = self.base.medians, self.other.medians
        return max(self.half_width, _of_two(base[:-1], other), _of_two(base, other[:-1]))

    @property
    def value(self) -> float:
        """Throughput of the one cell over that of the other, by the means of their visits."""
        base, other = self.base.cell, self.other.cell
        assert isinstance(base, TrainCell)
        assert isinstance(other, TrainCell)
        faster = math.exp(statistics.fmean(self.base.medians) - statistics.fmean(self.other.medians))
        return faster * other.global_batch / base.global_batch

    @property
    def doubtful(self) -> bool:
        """Whether all of its interval is more than such workers can have."""
        if not math.isfinite(self.half_width):
            return False
        return self.value / (1 + self.half_width) > SUPERLINEAR * self.other.cell.ranks / self.base.cell.ranks


def _of_two(base: Sequence[float], other: Sequence[float]) -> float:
    """Half the length of the 90 % interval of the ratio of two cells, relative."""
    return math.expm1(math.hypot(half_width(base), half_width(other)))


def half_width(medians: Sequence[float]) -> float:
    """Half the length of the 90 % interval of the mean of a cell's visits: Student's t; of logarithms."""
    count = len(medians)
    if count < FEWEST:
        return math.inf
    return _quantile(count - 1) * statistics.stdev(medians) / math.sqrt(count)


@cache
def _quantile(freedom: int) -> float:
    """The end of the 90 % interval of Student's t, whose other end is below 0."""
    from scipy.stats import t as student_t  # only here: a plan starts faster without it

    return float(student_t.ppf((1 + INTERVAL) / 2, freedom))


def trains(cell: Cell) -> TypeGuard[TrainCell]:
    """Whether it is training with nothing left out."""
    return isinstance(cell, TrainCell) and not isinstance(cell, InterventionCell)


def series_of(cell: Cell) -> tuple[object, ...]:
    """Which series of a hardware entry a cell is of, on however many workers of a node; empty: of none."""
    if not trains(cell) or cell.scaling == "compute":
        return ()
    return tuple([getattr(cell, axis) for axis in SERIES])


def speedups(visited: Iterable[Visited]) -> list[Speedup]:
    """Every speedup that the cells give: each curve's worker counts against its fewest."""
    return _distinct((base, other) for base, *others in _curves(visited) for other in others)


def gains(visited: Iterable[Visited]) -> list[Speedup]:
    """What each worker count of a curve gains over the next smaller one."""
    return _distinct(pair for curve in _curves(visited) for pair in pairwise(curve))


def _curves(visited: Iterable[Visited]) -> Iterator[list[Visited]]:
    """Cells whose worker counts alone differ, rising."""
    series: dict[tuple[object, ...], list[Visited]] = {}
    for one in visited:
        if (key := series_of(one.cell)) and not one.ended:
            series.setdefault(key, []).append(one)
    for members in series.values():
        for places in curves_of(one.cell.placement for one in members).values():
            yield sorted((one for one in members if one.cell.placement in places), key=lambda one: one.cell.ranks)


def _distinct(pairs: Iterable[tuple[Visited, Visited]]) -> list[Speedup]:
    """The speedups of pairs of cells, of which some are on several curves."""
    return list({(id(base), id(other)): Speedup.of(base, other) for base, other in pairs}.values())


@dataclass(frozen=True)
class Choice:
    """The cell to visit next, or why there is none."""

    place: int | None
    reason: str
    """Why it ends: ``visits``, ``precision``, ``budget`` or ``most visits``; empty while it goes on."""


def choose(visited: Sequence[Visited], limits: Limits, seed: int) -> Choice:
    """The place in `visited` of the cell to visit next. The same visits give the same choice."""
    round_ = due(visited, seed)
    unseen = round_ and not visited[round_[0]].visits
    if not unseen and _used_up(visited, limits):
        return Choice(None, "budget")
    if round_:
        return Choice(round_[0], "")
    if not limits.precision:
        return Choice(None, "visits")
    known = speedups(visited)
    again = [one for one in _doubtful(visited, [*known, *gains(visited)]) if one.visits < 2 * one.wanted]
    if again:
        return _visit(min(again, key=lambda one: one.visits), visited)  # in turns: whatever slows one down hits all
    unmet = [one for one in known if one.steady > limits.precision]
    if not unmet:
        return Choice(None, "precision")
    for speedup in sorted(unmet, key=lambda one: -one.steady):
        ends = [one for one in (speedup.base, speedup.other) if one.visits < MOST * one.cell.visits]
        if ends:
            return _visit(max(ends, key=_narrowing), visited)
    return Choice(None, "max visits")


def _visit(chosen: Visited, visited: Sequence[Visited]) -> Choice:
    return Choice(next(place for place, one in enumerate(visited) if one is chosen), "")


def _doubtful(visited: Sequence[Visited], known: Sequence[Speedup]) -> Iterator[Visited]:
    """Cells of what cannot be: a speedup beyond any machine, and cells that do the same but differ."""
    for speedup in known:
        if speedup.doubtful:
            yield from (speedup.base, speedup.other)
    alike: dict[tuple[object, ...], list[Visited]] = {}
    for one in visited:
        if trains(one.cell) and one.cell.ranks == 1 and len(one.medians) >= FEWEST and not one.ended:
            alike.setdefault(tuple(getattr(one.cell, axis) for axis in ALIKE), []).append(one)
    for first, *others in alike.values():
        for other in others:
            apart = abs(statistics.fmean(first.medians) - statistics.fmean(other.medians))
            if apart > math.hypot(half_width(first.medians), half_width(other.medians)):
                yield from (first, other)


def due(visited: Sequence[Visited], seed: int) -> list[int]:
    """The places of the cells that have not had their visit of this round, in the round's order."""
    left = [place for place, one in enumerate(visited) if not one.ended and one.visits < one.wanted]
    fewest = min((visited[place].visits for place in left), default=0)
    order = list(range(len(visited)))
    random.Random(f"{seed} {fewest}").shuffle(order)
    return [place for place in order if place in left and visited[place].visits == fewest]


def _narrowing(one: Visited) -> float:
    """How much of the interval's square a further visit is expected to take away, for each node-second."""
    count = len(one.medians)
    if count < FEWEST:
        return math.inf
    return half_width(one.medians) ** 2 / (count + 1) / max(one.cost, 1e-9)


def _used_up(visited: Sequence[Visited], limits: Limits) -> bool:
    """Whether another visit would exceed the budget."""
    seconds = sum(one.seconds for one in visited)
    typical = statistics.median([one.durations[-1] for one in visited if one.durations] or [0.0])
    if limits.minutes is not None and seconds + typical > 60 * limits.minutes:
        return True
    nodes = max(one.cell.nodes for one in visited)
    return limits.node_hours is not None and (seconds + typical) * nodes > 3600 * limits.node_hours
