"""How long a visit to each cell is expected to take, with a 90 % interval, before anything is submitted.

Where the study has visited the cell before, as long as it took then. Else the time that `work` gives for what the cell
asks, times how much longer (or shorter) than that the most similar cells took that were visited: of the same network on
as many nodes, of the same network, of the same kind, of the same hardware. Else what `work` gives.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stallpoint.schedule.typical import seconds, size_of
from stallpoint.schedule.visit_durations import Took
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.work import FACTOR, FACTOR_UNKNOWN, Size

QUANTILE = 1.645
"""Of the normal distribution: 90 % lie within so many standard deviations."""
SPREADS = {"cell": 0.15, "nodes": 0.25, "network": 0.3, "kind": 0.4, "hardware": 0.5}
"""By what visits were to: standard deviation of the logarithm that is assumed beside the one seen, since the machine is
not always in the same state, and cells differ in more than what `work` knows of."""
DEFAULTS = "defaults"
BASES = (*SPREADS, DEFAULTS)
"""What an expectation can rest on, the best first."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A typical value, and the interval that holds nine of ten."""

    low: float = 0.0
    typical: float = 0.0
    high: float = 0.0

    def __add__(self, other: Interval) -> Interval:
        """Ends are added: what is wrong with one expectation is wrong with the others, as they share what it is."""
        return Interval(self.low + other.low, self.typical + other.typical, self.high + other.high)

    def times(self, factor: float) -> Interval:
        """So many times it."""
        return Interval(factor * self.low, factor * self.typical, factor * self.high)

    def at_most(self, most: float) -> Interval:
        """No more than that."""
        return Interval(min(self.low, most), min(self.typical, most), min(self.high, most))

    def values(self) -> list[float]:
        """Low, typical and high."""
        return [self.low, self.typical, self.high]


def around(typical: float, factor: float) -> Interval:
    """Right to within a factor."""
    return Interval(typical / factor, typical, typical * factor)


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of one cell."""

    visit: Interval
    """Duration of a visit, s."""
    basis: str
    """What it rests on: one of `BASES`."""
    noise: float | None
    """Standard deviation of the logarithm of its visits' median iteration times; None where nothing is known of it."""


@dataclass
class _Ratios:
    """How much longer than `work` has it the cells of one group took: logarithms."""

    logs: list[float]
    noises: list[float]


class Expectations:
    """What is expected of any cell, after what is known of some."""

    def __init__(
        self,
        known: Iterable[Took],
        descriptions: Path,
        cores: int | None = None,
        samples: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`descriptions`: folder with descriptions of the study's own networks; `cores`, `samples`: `work.seconds`."""
        self._descriptions, self._cores, self._samples = descriptions, cores, samples
        self._sizes: dict[str, Size] = {}
        self._groups: dict[tuple[object, ...], _Ratios] = {}
        self._spread: dict[tuple[object, ...], tuple[float, float, float | None]] = {}
        for took in known:
            if took.durations:
                self._learn(took)

    def of(self, cell: Cell) -> Expected:
        """What is expected of a visit to this cell."""
        size, typical = self._work(cell)
        for basis, key in _groups(cell):
            if key in self._groups:
                ratio, spread, noise = self._group(basis, key)
                return Expected(around(typical * ratio, math.exp(QUANTILE * spread)), basis, noise)
        factor = FACTOR if size is None or size.known else FACTOR_UNKNOWN
        return Expected(around(typical, factor), DEFAULTS, None)

    def _learn(self, took: Took) -> None:
        _, typical = self._work(took.cell)
        ratio = math.log(max(statistics.mean(took.durations), 1e-3) / typical)
        each = [math.log(max(duration, 1e-3) / typical) for duration in took.durations]
        noise = [statistics.stdev(took.medians)] if len(took.medians) > 1 else []
        for basis, key in _groups(took.cell):
            group = self._groups.setdefault(key, _Ratios([], []))
            group.noises += noise
            if basis == "cell":  # how far its own visits differ; but as many visits take as many times their mean
                group.logs += [ratio + one - statistics.mean(each) for one in each]
            else:
                group.logs.append(ratio)

    def _group(self, basis: str, key: tuple[object, ...]) -> tuple[float, float, float | None]:
        if key not in self._spread:
            group = self._groups[key]
            seen = statistics.stdev(group.logs) if len(group.logs) > 1 else 0.0
            # The next visits to a cell are averaged, as these were; another cell is as far off as these cells are.
            share = math.sqrt(2 / len(group.logs)) if basis == "cell" else math.sqrt(1 + 1 / len(group.logs))
            noise = statistics.median(group.noises) if group.noises else None
            self._spread[key] = (
                math.exp(statistics.mean(group.logs)),
                math.hypot(SPREADS[basis], seen * share),
                noise,
            )
        return self._spread[key]

    def _work(self, cell: Cell) -> tuple[Size | None, float]:
        size = None
        if isinstance(cell, TrainCell | SgemmCell | ConvergenceCell) and not isinstance(cell, CommandCell):
            if cell.network not in self._sizes:
                self._sizes[cell.network] = size_of(cell.network, cell.own_network, self._descriptions)
            size = self._sizes[cell.network]
        return size, seconds(cell, size, self._cores, self._samples)


def _groups(cell: Cell) -> list[tuple[str, tuple[object, ...]]]:
    """The groups that a cell belongs to, the most similar cells first."""
    what = cell.like
    kind, hardware = cell.kind, cell.hardware
    return [
        ("cell", (cell.path,)),
        ("nodes", (kind, hardware, *what, "nodes", *cell.placement)),
        ("network", (kind, hardware, *what)),
        ("kind", (kind, hardware, "kind")),
        ("hardware", ("hardware", hardware)),
    ]
