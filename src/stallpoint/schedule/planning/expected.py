"""Expected duration of a visit to each cell, with a 90 % interval, before anything is submitted.

A cell that the study has visited is expected to take as long as before. For other cells, the estimate of `study.work`
is multiplied by the ratio of measured to estimated times of visited cells. These are cells of the same network on as
many nodes, else of the same network, else of the same kind, else of the same hardware. Without them, the ratio is 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stallpoint.errors import InputError
from stallpoint.networks import NETWORKS
from stallpoint.records import parquet
from stallpoint.records.tables import NETWORK_LAYERS
from stallpoint.schedule.planning.visit_durations import CellTimes
from stallpoint.storage import FORMATS, SampleSet
from stallpoint.storage.idx import IdxImages
from stallpoint.storage.images import EncodedImages
from stallpoint.study import work
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.convergence_kind import ConvergenceCell
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.work import ERROR_FACTOR, UNKNOWN_NETWORK_FACTOR, KnownProperties, Size

QUANTILE = 1.645
"""Number of standard deviations within which 90 % of normally distributed values lie."""
BASIS_SPREADS = {"cell": 0.15, "nodes": 0.25, "network": 0.3, "kind": 0.4, "hardware": 0.5}
"""Assumed standard deviation of a ratio's logarithm by basis, in addition to the observed one: the machine's state
changes, and cells differ in more than `work` takes into account."""
DEFAULTS = "defaults"
BASES = (*BASIS_SPREADS, DEFAULTS)
"""Bases of an expectation, the best basis first."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A typical value and its 90 % interval."""

    low: float = 0.0
    typical: float = 0.0
    high: float = 0.0

    def __add__(self, other: Interval) -> Interval:
        """Return the interval from the sum of low ends to the sum of high ends, as errors have common causes."""
        return Interval(self.low + other.low, self.typical + other.typical, self.high + other.high)

    def times(self, factor: float) -> Interval:
        return Interval(factor * self.low, factor * self.typical, factor * self.high)

    def cap_at(self, limit: float) -> Interval:
        """Return the interval with each of its values reduced to at most `limit`."""
        return Interval(min(self.low, limit), min(self.typical, limit), min(self.high, limit))

    def values(self) -> list[float]:
        """Return the low end, the typical value and the high end."""
        return [self.low, self.typical, self.high]


def around(typical: float, factor: float) -> Interval:
    """Return the interval from `typical / factor` to `typical * factor`."""
    return Interval(typical / factor, typical, typical * factor)


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected duration and noise of the visits to one cell."""

    visit: Interval
    """Duration of a visit, s."""
    basis: str
    """Basis of the expectation, one of `BASES`."""
    noise: float | None
    """Standard deviation of the logarithm of the visits' median iteration times; None if unknown."""


@dataclass
class _TimeRatios:
    """Ratios of measured to estimated durations (logarithms) in a group of cells, and the noise of their visits."""

    logs: list[float]
    noises: list[float]


class Expectations:
    """Expected durations for any cell, from the measured durations of some cells."""

    def __init__(
        self,
        known_times: Iterable[CellTimes],
        descriptions: Path,
        cores: int | None = None,
        samples: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Group `known_times`. The folder `descriptions` has tables of own networks; `seconds` explains the rest."""
        self._descriptions, self._cores, self._samples = descriptions, cores, samples
        self._sizes: dict[str, Size] = {}
        self._groups: dict[tuple[object, ...], _TimeRatios] = {}
        self._spread: dict[tuple[object, ...], tuple[float, float, float | None]] = {}
        for times in known_times:
            if times.durations:
                self._add(times)

    def of(self, cell: Cell) -> Expected:
        size, typical = self._work(cell)
        for basis, key in _groups(cell):
            if key in self._groups:
                ratio, spread, noise = self._group(basis, key)
                return Expected(around(typical * ratio, math.exp(QUANTILE * spread)), basis, noise)
        factor = ERROR_FACTOR if size is None or size.known else UNKNOWN_NETWORK_FACTOR
        return Expected(around(typical, factor), DEFAULTS, None)

    def _add(self, times: CellTimes) -> None:
        _, typical = self._work(times.cell)
        ratio = math.log(max(statistics.mean(times.durations), 1e-3) / typical)
        log_ratios = [math.log(max(duration, 1e-3) / typical) for duration in times.durations]
        noise = [statistics.stdev(times.medians)] if len(times.medians) > 1 else []
        for basis, key in _groups(times.cell):
            group = self._groups.setdefault(key, _TimeRatios([], []))
            group.noises += noise
            if basis == "cell":  # the group is a single cell, whose ratio is known for each visit
                group.logs += [ratio + one - statistics.mean(log_ratios) for one in log_ratios]
            else:
                group.logs.append(ratio)

    def _group(self, basis: str, key: tuple[object, ...]) -> tuple[float, float, float | None]:
        if key not in self._spread:
            group = self._groups[key]
            observed_spread = statistics.stdev(group.logs) if len(group.logs) > 1 else 0.0
            # Variance of the error, relative to that of the n logs: 2 / n for n more visits, 1 + 1 / n for a new cell.
            share = math.sqrt(2 / len(group.logs)) if basis == "cell" else math.sqrt(1 + 1 / len(group.logs))
            noise = statistics.median(group.noises) if group.noises else None
            self._spread[key] = (
                math.exp(statistics.mean(group.logs)),
                math.hypot(BASIS_SPREADS[basis], observed_spread * share),
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
    """Return the groups to which a cell belongs, the most similar group first: for each, its basis and its key."""
    kind, hardware = cell.kind, cell.hardware
    return [
        ("cell", (cell.path,)),
        ("nodes", (kind, hardware, *cell.like, "nodes", *cell.placement)),
        ("network", (kind, hardware, *cell.like)),
        ("kind", (kind, hardware, "kind")),
        ("hardware", ("hardware", hardware)),
    ]


def size_of(network: str, own_entry: Mapping[str, Any] | None, descriptions: Path) -> Size:
    """Return the size of a network: from the registry, or, for the study's own network, as described by an earlier run.

    An own network without a description counts as ResNet-50 at its image size, or as 12 million weights for tokens.
    """
    if own_entry is None and network in NETWORKS:
        return Size(NETWORKS[network].multiply_adds, NETWORKS[network].gradient_bytes)
    file = descriptions / f"{network}.parquet"
    if file.exists():
        rows = parquet.read(NETWORK_LAYERS, file).to_pydict()
        return Size(float(sum(rows["multiply_adds"])), float(sum(rows["gradient_bytes"])))
    entry = own_entry or {}
    if "sequence_length" in entry:
        return Size(12e6 * entry["sequence_length"], 4 * 12e6, known=False)
    resnet = NETWORKS["resnet50"]
    pixel_ratio = (entry.get("image_size", 224) / 224) ** 2
    return Size(pixel_ratio * resnet.multiply_adds, resnet.gradient_bytes, known=False)


def seconds(
    cell: Cell, size: Size | None, cores: int | None = None, samples: Mapping[str, int] = MappingProxyType({})
) -> float:
    """Return the typical duration of one visit to a measured cell, s.

    `size` is the size of the cell's network, `samples` the known number of samples in each storage. If all
    ranks are on one machine, they share `cores` cores. If `cores` is None, and on GPUs, a rank has a core per thread.
    """
    crowd = max(1.0, cell.ranks * cell.threads_per_worker / cores) if cores and cell.device == "cpu" else 1.0
    format_, path = getattr(cell, "storage_format", ""), getattr(cell, "storage_path", "")
    return cell.seconds(
        KnownProperties(
            size, crowd, lambda storage: samples.get(storage) or _epoch_samples(format_, path), _sample_seconds(format_)
        )
    )


@cache
def _epoch_samples(name: str, path: str) -> int:
    """Return the number of samples in a storage without a manifest: counted in IDX files, else assumed."""
    try:
        counted = IdxImages.count(Path(path)) if FORMATS.get(name) is IdxImages else None
    except InputError:  # the job that reads the file will report this error
        counted = None
    return counted or (work.IDX_SAMPLES if FORMATS.get(name) is IdxImages else work.EPOCH_SAMPLES)


def _sample_seconds(name: str) -> float:
    """Return the time that a reader is assumed to need to read and decode a sample of the format `name`, s."""
    format_ = FORMATS.get(name, SampleSet)
    if issubclass(format_, IdxImages):
        return work.SAMPLE_SMALL
    return work.SAMPLE_ENCODED if issubclass(format_, EncodedImages) else work.SAMPLE_DECODED
