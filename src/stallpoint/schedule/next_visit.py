"""Choice of the next cell to visit, and the decision when visits end.

First every cell gets its own number of visits (`Cell.visits`), in rounds of random order, so that a temporary slowdown
of the machine affects all cells equally. Visits then end, unless a precision is wanted. If it is, doubtful cells get as
many visits once more: cells with an impossible speedup, and A/A controls that differ. Then the least certain speedup
gets visits: of its two cells, the one whose visit narrows the interval most for each node-second. The rest of a budget
goes to gains of which it is uncertain whether they reach the threshold of a stall.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from statistics import NormalDist
from typing import Self, TypeGuard

from stallpoint.schedule.agenda import Limits
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.intervention_kind import InterventionCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.workers import curves_of

INTERVAL = 0.90
MIN_VISITS = 2
"""Smallest number of visits from which the spread between visits can be estimated."""
MAX_FACTOR = 4
"""Maximum number of visits to a cell, as a multiple of its own number."""
SUPERLINEAR_RATIO = 1.1
"""Ratio of a speedup to the ideal one above which caches cannot explain it, and both cells are visited again."""
SERIES = ("network", "storage", "scaling", "sync", "prefetch", "batch", "repeat")
"""Axes that are equal along a scaling curve, on which only nodes and workers per node differ (`curves_of`)."""
CONTROL_AXES = ("network", "hardware", "storage", "prefetch", "worker_batch")
"""Axes that are equal in cells on one worker that do the same, and are A/A controls of each other."""


@dataclass
class VisitedCell:
    """Results of the visits to one cell."""

    cell: Cell
    medians: list[float] = field(default_factory=list)
    """Logarithm of the median iteration time of each valid visit; empty for cells without iterations."""
    durations: list[float] = field(default_factory=list)
    """Duration of every visit, s."""
    disturbed: int = 0
    """Number of visits excluded as disturbed."""
    fixed: bool = False
    """Whether the number of visits is fixed, as no precision is wanted."""
    ended: bool = False
    """Whether the cell gets no more visits, as it failed or has its record."""
    shared: float = 0.0
    """This cell's share of the time that concurrent visits saved, less the time of trials, s."""

    @property
    def visits(self) -> int:
        return len(self.durations)

    @property
    def seconds(self) -> float:
        """Wall time of the visits, s; if several cells were visited at once, only this cell's share of it."""
        return sum(self.durations) - self.shared

    @property
    def wanted(self) -> int:
        """Number of wanted visits: the cell's own number plus its disturbed visits, at most twice the own number."""
        return self.cell.visits + (0 if self.fixed else min(self.disturbed, self.cell.visits))

    @property
    def repeats_disturbed(self) -> bool:
        """Whether the cell gets another visit in place of its last disturbed one."""
        return not self.fixed and self.disturbed <= self.cell.visits

    @property
    def cost(self) -> float:
        """Cost of another visit, node-seconds: the median duration times the nodes."""
        return statistics.median(self.durations) * self.cell.nodes if self.durations else 0.0


@dataclass(frozen=True)
class Speedup:
    """Speedup of the cell `other` over the cell `base`, and its uncertainty."""

    base: VisitedCell
    other: VisitedCell
    half_width: float
    """Half the length of the relative 90 % interval; infinite if a cell has too few visits."""

    @classmethod
    def of(cls, base: VisitedCell, other: VisitedCell) -> Self:
        """Return the speedup of `other` over `base`; its half-width follows from the visits to both cells."""
        return cls(base, other, _half_width_of_ratio(base.medians, other.medians))

    @property
    def steady_half_width(self) -> float:
        """Largest of three half-widths: from all visits, without the last to `base`, and without the last to `other`.

        Visits go on until the interval has been narrow twice in a row: once may be chance.
        """
        base, other = self.base.medians, self.other.medians
        return max(self.half_width, _half_width_of_ratio(base[:-1], other), _half_width_of_ratio(base, other[:-1]))

    @property
    def value(self) -> float:
        """Ratio of the throughput of `other` to that of `base`, from the means over their visits."""
        base, other = self.base.cell, self.other.cell
        assert isinstance(base, TrainCell)
        assert isinstance(other, TrainCell)
        time_ratio = math.exp(statistics.fmean(self.base.medians) - statistics.fmean(self.other.medians))
        return time_ratio * other.global_batch / base.global_batch

    @property
    def doubtful(self) -> bool:
        """Whether the speedup's 90 % interval lies entirely above `SUPERLINEAR_RATIO` times the ideal speedup."""
        if not math.isfinite(self.half_width):
            return False
        return self.value / (1 + self.half_width) > SUPERLINEAR_RATIO * self.other.cell.ranks / self.base.cell.ranks

    def is_open(self, threshold: float) -> bool:
        """Return whether the speedup's interval contains a gain of `threshold` for each doubling of the workers."""
        if not math.isfinite(self.half_width):
            return False
        doublings = math.log2(self.other.cell.ranks / self.base.cell.ranks)
        distance = math.log(self.value) - doublings * math.log1p(threshold)
        return abs(distance) < math.log1p(self.steady_half_width)


def _half_width_of_ratio(base: Sequence[float], other: Sequence[float]) -> float:
    """Return half the length of the 90 % interval of the ratio between two cells' times, relative to the ratio."""
    return math.expm1(math.hypot(half_width(base), half_width(other)))


def half_width(medians: Sequence[float]) -> float:
    """Return half the length of the 90 % interval (Student's t) of the mean of `medians`, visits' log times."""
    count = len(medians)
    if count < MIN_VISITS:
        return math.inf
    return _quantile(count - 1) * statistics.stdev(medians) / math.sqrt(count)


@cache
def _quantile(freedom: int) -> float:
    """Return the 0.95 quantile of Student's t with `freedom` degrees of freedom."""
    from stallpoint.base.distributions import student_quantile  # imported late: plans start faster without scipy

    return float(student_quantile((1 + INTERVAL) / 2, freedom))


def is_training(cell: Cell) -> TypeGuard[TrainCell]:
    """Return whether a cell is a training cell without an intervention."""
    return isinstance(cell, TrainCell) and not isinstance(cell, InterventionCell)


def series_of(cell: Cell) -> tuple[object, ...]:
    """Return a key that is equal for cells of one scaling curve; empty for a cell that has no speedup to narrow."""
    if not is_training(cell) or cell.scaling == "compute" or cell.visits_fixed:
        return ()
    return tuple([getattr(cell, axis) for axis in SERIES])


def speedups(visited: Iterable[VisitedCell]) -> list[Speedup]:
    """Return the speedup of each worker count of a curve over the smallest count of the curve."""
    return _distinct((base, other) for base, *others in _curves(visited) for other in others)


def gains(visited: Iterable[VisitedCell]) -> list[Speedup]:
    """Return the speedup of each worker count of a curve over the next smaller count of the curve."""
    return _distinct(pair for curve in _curves(visited) for pair in pairwise(curve))


def _curves(visited: Iterable[VisitedCell]) -> Iterator[list[VisitedCell]]:
    """Yield the cells of each scaling curve, by rising worker count; the cells differ only in their placement."""
    series: dict[tuple[object, ...], list[VisitedCell]] = {}
    for one in visited:
        if (key := series_of(one.cell)) and not one.ended:
            series.setdefault(key, []).append(one)
    for members in series.values():
        for placements in curves_of(one.cell.placement for one in members).values():
            yield sorted((one for one in members if one.cell.placement in placements), key=lambda one: one.cell.ranks)


def _distinct(pairs: Iterable[tuple[VisitedCell, VisitedCell]]) -> list[Speedup]:
    """Return the speedup of each pair of cells; a pair that occurs several times counts once."""
    return list({(id(base), id(other)): Speedup.of(base, other) for base, other in pairs}.values())


@dataclass(frozen=True)
class NextVisit:
    """The cell to visit next, or the reason why visits end."""

    index: int | None
    reason: str
    """Reason for the end: ``visits``, ``precision``, ``budget`` or ``max visits``; empty before it."""


def choose(visited: Sequence[VisitedCell], limits: Limits, seed: int) -> NextVisit:
    """Return the cell to visit next, or the reason why visits end. The choice depends only on the arguments."""
    due_indices = due_cells(visited, seed)
    known_speedups = [] if due_indices or not limits.precision else speedups(visited)
    imprecise_speedups = [one for one in known_speedups if one.steady_half_width > limits.precision]
    is_first_visit = due_indices and not visited[due_indices[0]].visits
    if not is_first_visit and _is_budget_used_up(visited, limits):
        return NextVisit(None, "precision" if known_speedups and not imprecise_speedups else "budget")
    if due_indices:
        return NextVisit(due_indices[0], "")
    if not limits.precision:
        return NextVisit(None, "visits")
    steps = gains(visited)
    again = [one for one in _doubtful(visited, [*known_speedups, *steps]) if one.visits < 2 * one.wanted]
    if again:
        return _visit(min(again, key=lambda one: one.visits), visited)  # cells take turns: a slowdown affects each one
    judges_gains = limits.has_budget and limits.threshold and not imprecise_speedups
    candidates = [one for one in steps if one.is_open(limits.threshold)] if judges_gains else imprecise_speedups
    for speedup in sorted(candidates, key=lambda one: -one.steady_half_width):
        cells = [one for one in (speedup.base, speedup.other) if one.visits < MAX_FACTOR * one.cell.visits]
        if cells:
            return _visit(max(cells, key=_interval_narrowing), visited)
    return NextVisit(None, "max visits" if imprecise_speedups else "precision")


def _visit(chosen: VisitedCell, visited: Sequence[VisitedCell]) -> NextVisit:
    return NextVisit(next(index for index, one in enumerate(visited) if one is chosen), "")


def _doubtful(visited: Sequence[VisitedCell], known_speedups: Sequence[Speedup]) -> Iterator[VisitedCell]:
    """Yield cells with doubtful results: cells with a speedup that no machine has, and A/A controls that differ."""
    for speedup in known_speedups:
        if speedup.doubtful:
            yield from (speedup.base, speedup.other)
    controls: dict[tuple[object, ...], list[VisitedCell]] = {}
    for one in visited:
        if is_training(one.cell) and one.cell.ranks == 1 and len(one.medians) >= MIN_VISITS and not one.ended:
            controls.setdefault(tuple(getattr(one.cell, axis) for axis in CONTROL_AXES), []).append(one)
    for first_control, *other_controls in controls.values():
        for control in other_controls:
            difference = abs(statistics.fmean(first_control.medians) - statistics.fmean(control.medians))
            if difference > math.hypot(half_width(first_control.medians), half_width(control.medians)):
                yield from (first_control, control)


def due_cells(visited: Sequence[VisitedCell], seed: int) -> list[int]:
    """Return the indices of cells that the current round has yet to visit, in the random order of the round."""
    unfinished_indices = [index for index, one in enumerate(visited) if not one.ended and one.visits < one.wanted]
    fewest_visits = min((visited[index].visits for index in unfinished_indices), default=0)
    order = list(range(len(visited)))
    random.Random(f"{seed} {fewest_visits}").shuffle(order)
    return [index for index in order if index in unfinished_indices and visited[index].visits == fewest_visits]


def _interval_narrowing(one: VisitedCell) -> float:
    """Return by how much another visit is expected to reduce the square of the cell's `half_width`, per node-second."""
    count = len(one.medians)
    if count < MIN_VISITS:
        return math.inf
    return half_width(one.medians) ** 2 / (count + 1) / max(one.cost, 1e-9)


def _is_budget_used_up(visited: Sequence[VisitedCell], limits: Limits) -> bool:
    """Return whether the budget is used up: another visit of typical duration would exceed it."""
    seconds = sum(one.seconds for one in visited)
    typical = statistics.median([one.durations[-1] for one in visited if one.durations] or [0.0])
    if limits.minutes is not None and seconds + typical > 60 * limits.minutes:
        return True
    nodes = max(one.cell.nodes for one in visited)
    return limits.node_hours is not None and (seconds + typical) * nodes > 3600 * limits.node_hours


VISIT_NOISE = {"own nodes": (0.03, 0.08), "shared": (0.08, 0.2)}
"""Assumed standard deviation of the logarithm of visits' median iteration times, typical and high: on nodes that one
job has to itself, and where workers share one machine."""


def expected_visits(noise: float | None, minimum: int, precision: float, *, shared: bool = False) -> tuple[int, int]:
    """Return a typical and a high number of visits that a speedup's two cells need each: at least `minimum`."""
    typical, high = VISIT_NOISE["shared" if shared else "own nodes"] if noise is None else (noise, 1.5 * noise)
    return visits_needed(typical, minimum, precision), visits_needed(high, minimum, precision)


def visits_needed(noise: float, minimum: int, precision: float) -> int:
    """Return the number of visits to each of two cells after which their speedup has the wanted `precision`.

    The interval also has to be narrow enough without the last visit to one of the cells (`Speedup.steady_half_width`).
    The number is at least `minimum`, and at most `MAX_FACTOR` times `minimum`.
    """
    max_visits = MAX_FACTOR * minimum
    for count in range(max(MIN_VISITS + 1, minimum), max_visits):
        half_widths = (_student_quantile(visits - 1) * noise / math.sqrt(visits) for visits in (count, count - 1))
        if math.expm1(math.hypot(*half_widths)) <= precision:
            return count
    return max_visits


def _student_quantile(freedom: int) -> float:
    """Return an approximate 0.95 quantile of Student's t, by the Cornish-Fisher expansion.

    Its error is at most 0.3 % from 3 degrees of freedom on. To import scipy would take longer than to make a plan.
    """
    z = NormalDist().inv_cdf(0.95)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def compared_cells(cells: Iterable[Cell]) -> set[str]:
    """Return the paths of cells on curves with at least two cells; other cells have no speedup."""
    curves: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if key := series_of(cell):
            curves.setdefault(key, []).append(cell)
    return {cell.path for curve in curves.values() if len(curve) > 1 for cell in curve}
