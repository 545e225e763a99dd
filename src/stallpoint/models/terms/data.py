"""Training data: read rates of the storages, waits of iterations, and t_io, the time to read a mini-batch.

*Rates*: read rates of the storages by origin of the bytes, and rates of memory copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.frames import refuse_wrong_rows
from stallpoint.base.measured import POINT, Measured, trained
from stallpoint.base.statistics import (
    Ensemble,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    scatter,
    visits_of,
)
from stallpoint.models.terms.batch_law import BatchTimes, Kernel, choose_kernel
from stallpoint.records.origins import MIXED, UNKNOWN
from stallpoint.study.workers import Placement

_CURVE_COLUMNS = ("storage", "hardware", "readers", "order", "cache")
_READ_ORDERS = ("shuffled", "random", "sequential")
"""Orders of reading, beginning with that of training."""
SLOWING_LAWS = (Kernel(), Kernel(sharpness=4.0))
"""Laws of a read's time by readers: each adds some time, or none does until the storage saturates."""


class TrainingData:
    """Times to read mini-batches, t_io(b, placement): the time on one rank, multiplied by the storage's slowdown.

    Records of a storage show how the time to read a sample grows with the nodes, and with concurrent readers of a node,
    which share its disk (Shi et al., 2018, eq. 6). Single-rank training cells show how long reading and decoding take
    inside training. Without records of the storage, training cells on several ranks show the growth. Storages in
    `shared_links`, by name or by hardware and name, are reached over the link that carries the gradients. `steps` are
    measured iterations (`measured.step_rows`). Raises `InputError` for a time below 0.
    """

    def __init__(
        self,
        runs: pd.DataFrame,
        steps: pd.DataFrame,
        storage_reads: pd.DataFrame,
        seed: int,
        shared_links: Collection[str | tuple[str, str]] = (),
    ) -> None:
        refuse_wrong_rows(storage_reads, "storage_reads", ["seconds", "bytes"])
        self._seed = seed
        self._shared = frozenset(shared_links)
        self._asked_readers: int | None = None
        self._staged = self._decoded = False
        self._sample_bytes = storage_reads.groupby(["hardware", "storage"])["bytes"].mean().to_dict()
        self._readers = {path: cell.readers for path, cell in trained(runs).items()}
        isolated = steps[steps["ranks"] == 1]
        self._trained = {at: (rows, frozenset(rows["cell"])) for at, rows in groups(steps, ("hardware", "storage"))}
        self._growths: dict[tuple[str, str, str, frozenset[str]], BatchTimes | None] = {}
        reading = isolated.assign(ready=isolated["read"] + isolated["decode"])
        self._usual = {at: scatter(rows, POINT, "ready") for at, rows in groups(reading, "hardware")}
        self._isolated = {at: (rows, frozenset(rows["cell"])) for at, rows in groups(isolated, ("hardware", "storage"))}
        self._samples: dict[tuple[str, str, bool, frozenset[str]], Ensemble | None] = {}
        passes: dict[tuple[str, str, int], list[tuple[tuple[str, ...], pd.DataFrame]]] = {}
        for key, rows in groups(storage_reads, _CURVE_COLUMNS):
            storage, hardware, readers, *_ = key
            if rows["ranks"].nunique() > 1:
                passes.setdefault((hardware, storage, readers), []).append((key, rows))
        self._passes = {at: _read_time_growths(of, seed) for at, of in passes.items()}

    def seconds(
        self, measured: Measured, placement: Placement, batch: int, *, without: Collection[str] = ()
    ) -> Ensemble:
        """Return t_io of the series of `measured` at b = `batch` and `placement`, [1 + REPLICATES]; NaN if unknown.

        With prefetching the reader threads share the work. `without` names cells that may not be used.
        """
        point = measured.point
        ahead = point.prefetch > 0
        sample = self._sample(point.hardware, point.storage, ahead, without)
        if sample is None:
            return np.array(np.nan)
        read, decode = sample[:, 0], 0.0 if self._decoded else sample[:, 1]
        own = self._readers[measured.cells[0]] if ahead else 1
        readers = (self._asked_readers or own) if ahead else 1
        nodes, workers = read_placement = (1, 1) if self._staged else placement
        slowdown = self._slowdown(point.hardware, point.storage, readers, float(read[0]), read_placement)
        if slowdown is not None:
            return batch * (read * slowdown + decode) / readers
        growth = self._growth_in_training(point.hardware, point.storage, ahead, without)
        # More readers of each worker slow a storage down as much as the readers of more workers.
        slower = _growth_ratio(growth, nodes * workers * readers / own) if growth and read_placement != (1, 1) else 1.0
        return batch * (read + decode) * slower / readers

    def changed(self, readers: int | None, staged: bool, decoded: bool = False) -> Self:
        """Return the training data with `readers` threads per worker (None keeps their number). If `staged`, each node
        reads its own copy as fast as a single worker reads the storage. If `decoded`, samples need no decoding."""
        found = copy(self)
        found._asked_readers, found._staged, found._decoded = readers, staged, decoded
        return found

    def concurrent_reads(self) -> Iterator[ConcurrentReads]:
        """Yield each storage that several numbers of workers read; the order of samples is that nearest to training."""
        for (hardware, storage, readers), passes in self._passes.items():
            yield ConcurrentReads(hardware, storage, readers, passes[0].visits, passes[0].slowdown)

    def sharing_link(
        self, measured: Measured, isolated: Ensemble, ranks_per_node: int, batch: int, traffic: Traffic | None
    ) -> tuple[Ensemble, Ensemble | float]:
        """Return t_io while gradients' `traffic` shares the link, and the traffic's slowdown; `isolated` is t_io alone.

        Data shares the link only if it is prefetched, from a storage that is reached over the same link.
        """
        point = measured.point
        storage = (point.hardware, point.storage)
        shared = storage in self._shared or point.storage in self._shared
        if traffic is None or not np.any(traffic.gradient_bytes) or not point.prefetch or not shared or self._staged:
            return isolated, 1.0
        if storage not in self._sample_bytes:
            return np.full_like(isolated, np.nan), np.nan
        read_bytes = ranks_per_node * batch * self._sample_bytes[storage]
        data, gradients = shared_seconds(isolated, read_bytes, traffic)
        return data, gradients * traffic.bandwidth / traffic.gradient_bytes

    def _sample(self, hardware: str, storage: str, ahead: bool, without: Collection[str]) -> Ensemble | None:
        """Return the seconds to read and to decode one sample, [1 + REPLICATES, 2], from cells on one rank with the
        storage. Cells that prefetch are preferred if `ahead`, else cells that do not."""
        if (hardware, storage) not in self._isolated:
            return None
        rows, cells = self._isolated[hardware, storage]
        key = hardware, storage, ahead, cells.intersection(without)
        if key not in self._samples:
            rows = rows[~rows["cell"].isin(list(key[-1]))]
            same_prefetch = (rows["prefetch"] > 0) == ahead
            self._samples[key] = self._sample_seconds(rows[same_prefetch] if same_prefetch.any() else rows)
        return self._samples[key]

    def _sample_seconds(self, rows: pd.DataFrame) -> Ensemble | None:
        if rows.empty:
            return None
        values = rows[["read", "decode"]].div(rows["worker_batch"], axis="index")
        random = generator(self._seed, "data", *sorted(rows["cell"].unique()))
        return bootstrap(values, visits_of(rows), random, np.mean, self._usual[rows["hardware"].iloc[0]])

    def _growth_in_training(
        self, hardware: str, storage: str, ahead: bool, without: Collection[str]
    ) -> BatchTimes | None:
        """Return the time to read and decode a sample by the number of training ranks, from cells that prefetch if
        `ahead`, else from cells that do not. None unless one rank and another number of ranks were measured."""
        rows, cells = self._trained[hardware, storage]
        key = hardware, storage, "ahead" if ahead else "in line", cells.intersection(without)
        if key not in self._growths:
            rows = rows[((rows["prefetch"] > 0) == ahead) & ~rows["cell"].isin(list(key[-1]))]
            sample_reads = rows.assign(seconds=(rows["read"] + rows["decode"]) / rows["worker_batch"])
            sample_reads = sample_reads[sample_reads["seconds"] > 0]
            has_several_counts = {1} < set(sample_reads["ranks"])
            self._growths[key] = _read_curve(sample_reads, "ranks", key[:3], self._seed) if has_several_counts else None
        return self._growths[key]

    def _slowdown(
        self, hardware: str, storage: str, readers: int, read: float, placement: Placement
    ) -> Ensemble | None:
        """Return the ratio of the time to read a sample by all workers of `placement` to that by a single worker.

        Passes with `readers` threads are preferred to passes with one. Of several passes, that is used in which a
        single worker's time is nearest to `read`, s. None without records for two numbers of workers.
        """
        passes = self._passes.get((hardware, storage, readers)) or self._passes.get((hardware, storage, 1), [])
        if placement == (1, 1):
            return np.array(1.0)
        if not passes:
            return None
        return min(passes, key=lambda one: _abs_log_ratio(one.isolated, read)).slowdown(placement)


@dataclass(frozen=True)
class ConcurrentReads:
    """A storage read by several workers."""

    hardware: str
    storage: str
    readers: int
    """Threads of each worker."""
    visits: Mapping[Placement, int]
    """Number of visits by placement."""
    slowdown: Callable[[Placement], Ensemble]
    """Time of a read at a placement over that of a single worker."""


@dataclass(frozen=True)
class _ReadTimeGrowth:
    """Growth of the time to read a sample; [1 + REPLICATES] at each count."""

    visits: Mapping[Placement, int]
    """Number of visits by placement."""
    inside: BatchTimes | None
    """Growth by the workers of one node; None without two numbers of workers."""
    over_nodes: Mapping[int, BatchTimes]
    """Growth by nodes, for each number of workers that read on a node."""

    @property
    def isolated(self) -> float:
        """Return the seconds in which a single worker reads a sample; NaN if unknown."""
        curve = self.inside or self.over_nodes[min(self.over_nodes)]
        return float(curve(1)[0, 0])

    def slowdown(self, placement: Placement) -> Ensemble:
        """Return a read's time at `placement` over that of a single worker. If only one number of workers on a node was
        measured, workers are taken to slow each other down as nodes do."""
        nodes, workers = placement
        if self.inside is None:
            return _growth_ratio(self.over_nodes[min(self.over_nodes)], nodes * workers)
        growth_on_node = _growth_ratio(self.inside, workers)
        if not self.over_nodes or nodes == 1:
            return growth_on_node
        nearest_workers = min(self.over_nodes, key=lambda known: abs(np.log(known / workers)))
        return growth_on_node * _growth_ratio(self.over_nodes[nearest_workers], nodes)


def _growth_ratio(curve: BatchTimes, count: float) -> Ensemble:
    """Return the ratio of the seconds at `count` to those at 1."""
    one = curve(1)[:, 0]
    return np.divide(curve(count)[:, 0], one, out=np.ones_like(one), where=one > 0)


def _read_time_growths(passes: Sequence[tuple[tuple[str, ...], pd.DataFrame]], seed: int) -> list[_ReadTimeGrowth]:
    """Return growths of read times in the `passes` (by `_CURVE_COLUMNS`) that order samples most as training does."""
    order_ranks = [_READ_ORDERS.index(key[_CURVE_COLUMNS.index("order")]) for key, _ in passes]
    nearest = [one for one, order in zip(passes, order_ranks, strict=True) if order == min(order_ranks)]
    return [_read_time_growth(rows, key, seed) for key, rows in nearest]


def _read_time_growth(rows: pd.DataFrame, key: tuple[str, ...], seed: int) -> _ReadTimeGrowth:
    """Return the growth of the time to read a sample; `rows` are passes of one order, with one state of the cache."""
    per_node = rows.assign(per_node=rows["ranks"] // rows["nodes"])
    inside = rows[rows["nodes"] == 1]
    growth_on_node = _read_curve(inside, "ranks", (*key, "inside"), seed) if inside["ranks"].nunique() > 1 else None
    rows_by_workers = {workers: of for workers, of in groups(per_node, "per_node") if of["nodes"].nunique() > 1}
    # If growth inside a node is known, further growth is by nodes; else all growth is by ranks.
    counted = "nodes" if growth_on_node else "ranks"
    over_nodes = {workers: _read_curve(of, counted, key, seed) for workers, of in rows_by_workers.items()}
    visits = {placement: visits_of(of).nunique() for placement, of in groups(per_node, ("nodes", "per_node"))}
    return _ReadTimeGrowth(visits, growth_on_node, over_nodes)


def _abs_log_ratio(seconds: float, other: float) -> float:
    """Return \\|log\\| of the ratio of two times; infinite if one of them is 0."""
    return float(abs(np.log(seconds / other))) if seconds > 0 and other > 0 else np.inf


def _read_curve(rows: pd.DataFrame, counted: str, key: tuple[object, ...], seed: int) -> BatchTimes:
    """Return the mean time to read a sample by the column `counted`: the number of reading ranks, or of nodes."""
    reads_by_count = dict(groups(rows, counted))
    usual = scatter(rows, [counted], "seconds")
    means = [
        bootstrap(reads[["seconds"]], visits_of(reads), generator(seed, "reads", *key, count), np.mean, usual)
        for count, reads in reads_by_count.items()
    ]
    counts, seconds = [int(count) for count in reads_by_count], np.stack(means, axis=1)
    return BatchTimes(counts, seconds, choose_kernel([(counts, seconds)], SLOWING_LAWS))


def data_share(points: Iterable[Measured]) -> Iterator[dict[str, object]]:
    """Yield the rows of the data_share table: wait for data over iteration time, for every measured point."""
    for measured in points:
        wait = measured.parts.data_wait
        share = wait / measured.parts.iteration_time
        yield {**measured.point.labels("worker_batch"), **columns("data_wait", wait), **columns("share", share)}


@dataclass(frozen=True)
class Traffic:
    """Gradient traffic of one iteration on one node's link."""

    bandwidth: Ensemble
    """Bandwidth of the link, B/s, [1 + REPLICATES]."""
    gradient_bytes: Ensemble | float
    """Bytes in one direction, [1 + REPLICATES] where the law of the all-reduce is uncertain."""


def shared_seconds(isolated: Ensemble, read_bytes: npt.ArrayLike, traffic: Traffic) -> tuple[Ensemble, Ensemble]:
    """Return the seconds to read data and to send gradients if both begin at the same time on the same link.

    A storage on the network (NFS, a parallel file system) is reached over the link that carries the gradients. Data and
    gradients get half of the link each. If one needs less than its half, the other gets the rest (max-min fairness, to
    which TCP flows come near; Bertsekas & Gallager, Data Networks, section 6.5.2).

    `isolated` is the time to read `read_bytes` over the free link. Data and gradients are never faster than isolated,
    and the sum of both rates never exceeds the link's bandwidth.
    """
    read_bytes, capacity = np.asarray(read_bytes, dtype=np.float64), traffic.bandwidth
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.minimum(np.where(isolated > 0, read_bytes / isolated, np.inf), capacity)
    share = np.minimum(rate, capacity / 2)
    remaining = capacity - share
    gradients = traffic.gradient_bytes / remaining
    with np.errstate(divide="ignore", invalid="ignore"):
        reading = np.where(share > 0, read_bytes / share, 0.0)
    data_ends_first = reading <= gradients
    gradients_after_data = reading + (traffic.gradient_bytes - remaining * reading) / capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        data_after_gradients = gradients + np.where(rate > 0, (read_bytes - share * gradients) / rate, 0.0)
    data = np.where(data_ends_first, reading, data_after_gradients)
    # Reading takes at least its isolated time, as the link need not be what limits it.
    return np.maximum(data, isolated), np.where(data_ends_first, gradients_after_data, gradients)


# --- read and copy rates --------------------------------------------------------------------------

_PLACEMENT = ("storage", "hardware", "nodes", "workers_per_node", "ranks")
_READ_KEYS = ("order", "cache", "readers")
_PASS_KEYS = ("cell", "visit", *_READ_KEYS)
_ORIGIN_KEYS = ("origin", "server_cache", "uncached")
_LATENCY_QUANTILES = {"latency_p50": 0.50, "latency_p95": 0.95, "latency_p99": 0.99}


def storage_rates(storage_reads: pd.DataFrame, storage_passes: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Return the rows of the storage_rates table.

    Passes whose bytes came from different sources are separate rows.
    """
    reads = storage_reads.merge(_origins(storage_passes), on=list(_PASS_KEYS))
    usual = {at: scatter(rows, [*_PLACEMENT, *_READ_KEYS, "rank"], "seconds") for at, rows in groups(reads, "hardware")}
    passes = groups(reads, [*_PLACEMENT, *_READ_KEYS, *_ORIGIN_KEYS])
    return [_storage_rates(key, rows, usual[rows["hardware"].iloc[0]], seed) for key, rows in passes]


def _origins(passes: pd.DataFrame) -> pd.DataFrame:
    """Return, for each pass of a visit over all workers, the source of its bytes and the expected state of caches."""
    found = passes.groupby(list(_PASS_KEYS)).agg(
        origin=("origin", lambda values: _common_value(values, MIXED)),
        server_cache=("server_cache", lambda values: _common_value(values, UNKNOWN)),
        uncached=("uncached", "all"),
        filesystem=("filesystem", "first"),
        locality=("locality", "first"),
        metadata=("metadata", lambda values: _common_value(values, UNKNOWN)),
        resident=("resident", lambda values: values.astype(float).mean(skipna=False)),
        set_bytes=("set_bytes", "first"),
        memory_bytes=("memory_bytes", "first"),
    )
    return found.reset_index()


def _common_value(values: pd.Series[Any], mixed_value: str) -> object:
    return values.iloc[0] if values.nunique() == 1 else mixed_value


def _storage_rates(key: tuple[Any, ...], rows: pd.DataFrame, usual: Scatter, seed: int) -> dict[str, object]:
    """Return the rates of one pass: all bytes over the time to the end of the last rank.

    Replicates resample the samples of each rank, whose time is the sum of its reads.
    """
    ranks = rows.assign(end=rows["start"] + rows["seconds"]).groupby(["repeat", "visit", "rank"])
    # A rank's time is divided among its reads, so that each read includes the gap before the next one.
    spans = rows.assign(span=ranks["end"].transform("max") * rows["seconds"] / ranks["seconds"].transform("sum"))
    random = generator(seed, "rates", *key)
    seconds_per_sample = [
        bootstrap(of_one["span"], visits_of(of_one), random, np.mean, usual) for _, of_one in groups(spans, "rank")
    ]
    samples = len(seconds_per_sample) / np.max(np.stack(seconds_per_sample), axis=0)
    first = rows.iloc[0]
    return {
        **dict(zip((*_PLACEMENT, *_READ_KEYS, *_ORIGIN_KEYS), key, strict=True)),
        **{name: first[name] for name in ("filesystem", "locality", "metadata")},
        "resident": float(rows["resident"].mean()),
        "set_over_memory": float(first["set_bytes"] / first["memory_bytes"]),
        **columns("samples_per_second", samples),
        **columns("bytes_per_second", samples * float(rows["bytes"].mean())),
        **_latency_quantiles(rows),
    }


def _latency_quantiles(rows: pd.DataFrame) -> dict[str, object]:
    return dict(zip(_LATENCY_QUANTILES, rows["seconds"].quantile([*_LATENCY_QUANTILES.values()]).tolist(), strict=True))


_COPY_COLUMNS = ("hardware", "copy", "threads")


_COPIES_LIKE_ADDING = ("triad", "within the device")
"""Copies in the kind of memory that holds gradients."""


def memory_rates(copies: pd.DataFrame, seed: int) -> dict[str, Ensemble]:
    """Return the rate of memory traffic by hardware, B/s: that of the fastest copy in `_COPIES_LIKE_ADDING`."""
    rows = copies[copies["copy"].isin(_COPIES_LIKE_ADDING)]
    found: dict[str, Ensemble] = {}
    for key, rate in _copy_rates(rows, seed):
        if key[0] not in found or rate[0] > found[key[0]][0]:
            found[key[0]] = rate
    return found


def copy_rates(copies: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Return the rows of the copy_rates table, from the tidy table `copies`."""
    return [
        {**dict(zip(_COPY_COLUMNS, key, strict=True)), **columns("bytes_per_second", rate)}
        for key, rate in _copy_rates(copies, seed)
    ]


def _copy_rates(copies: pd.DataFrame, seed: int) -> Iterator[tuple[tuple[Any, ...], Ensemble]]:
    usual = {hardware: scatter(rows, _COPY_COLUMNS, "seconds") for hardware, rows in groups(copies, "hardware")}
    for key, rows in groups(copies, _COPY_COLUMNS):
        random = generator(seed, "copies", *key)
        yield key, rows["bytes"].mean() / bootstrap(rows["seconds"], visits_of(rows), random, np.mean, usual[key[0]])
