"""Training data: how fast the storages are read, how long iterations wait, and t_io for the prediction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.models.base.checks import refuse
from stallpoint.models.base.measured import POINT, Measured, trained
from stallpoint.models.base.statistics import (
    Ensemble,
    bootstrap,
    columns,
    generator,
    groups,
    scatter,
    visits_of,
)
from stallpoint.models.terms.batch_law import BatchCurve, Kernel, choose_kernel
from stallpoint.models.terms.link import Traffic, together
from stallpoint.study.workers import Placement

_CURVE = ("storage", "hardware", "readers", "order", "cache")
_ORDERS = ("shuffled", "random", "sequential")
"""Orders of reading, that of training first."""
SLOWING = (Kernel(), Kernel(sharpness=4.0))
"""How reading slows with the readers: each adds something, or none does until the storage can give no more."""


class TrainingData:
    """t_io(b, place): what single-rank cells spent on a sample, with reading as slow as the storage becomes.

    The records of a storage say how the time to read a sample grows with the workers of a node that read at once, as
    they share its disk (Shi et al., 2018, eq. 6), and with the nodes; single-rank training cells say how long reading
    and decoding take inside training. Storages in `shared_links`, by name or by hardware and name, are reached over the
    link that carries the gradients. `steps` are those of `measured.over_ranks`. Raises `InputError` for a time below 0.
    """

    def __init__(
        self,
        runs: pd.DataFrame,
        steps: pd.DataFrame,
        storage_reads: pd.DataFrame,
        seed: int,
        shared_links: Collection[str | tuple[str, str]] = (),
    ) -> None:
        refuse(storage_reads, "storage_reads", ["seconds", "bytes"])
        self._seed = seed
        self._shared = frozenset(shared_links)
        self._sample_bytes = storage_reads.groupby(["hardware", "storage"])["bytes"].mean().to_dict()
        self._readers = {path: cell.readers for path, cell in trained(runs).items()}
        self._alone = steps[steps["ranks"] == 1]
        reading = self._alone.assign(ready=self._alone["read"] + self._alone["decode"])
        self._usual = {at: scatter(rows, POINT, "ready") for at, rows in groups(reading, "hardware")}
        self._samples: dict[tuple[str, ...], Ensemble] = {}
        self._chosen: dict[tuple[str, str, bool, frozenset[str]], pd.DataFrame] = {}
        passes: dict[tuple[str, str, int], list[tuple[tuple[str, ...], pd.DataFrame]]] = {}
        for key, rows in groups(storage_reads, _CURVE):
            storage, hardware, readers, *_ = key
            if rows["ranks"].nunique() > 1:
                passes.setdefault((hardware, storage, readers), []).append((key, rows))
        self._passes = {at: [_read(rows, key, seed) for key, rows in _likest(of)] for at, of in passes.items()}

    def seconds(
        self,
        measured: Measured,
        place: Placement,
        batch: int,
        *,
        without: Collection[str] = (),
        readers: int | None = None,
    ) -> Ensemble:
        """t_io of the series of `measured` at b = `batch` and `place`, [1 + REPLICATES]; not a number if unknown.

        With prefetching the reader threads share the work: as many as there are, unless `readers` says otherwise.
        `without` names cells that may not be used.
        """
        point = measured.point
        rows = self._rows(point.hardware, point.storage, point.prefetch, without)
        if rows.empty:
            return np.array(np.nan)
        sample = self._sample(rows)
        read, decode = sample[:, 0], sample[:, 1]
        readers = (readers or self._readers[measured.cells[0]]) if point.prefetch else 1
        slowdown = self._slowdown(point.hardware, point.storage, readers, float(read[0]), place)
        return batch * (read * slowdown + decode) / readers

    def together(self) -> Iterator[ReadTogether]:
        """Every storage that two numbers of workers read at once, in the order nearest to that of training."""
        for (hardware, storage, readers), passes in self._passes.items():
            yield ReadTogether(hardware, storage, readers, passes[0].visits, passes[0].slowdown)

    def beside_gradients(
        self, measured: Measured, alone: Ensemble, ranks_per_node: int, batch: int, traffic: Traffic | None
    ) -> tuple[Ensemble, Ensemble | float]:
        """t_io beside the gradients' `traffic`, from t_io `alone`; and the factor by which they slow down.

        Only data that is read ahead, from a storage over the same link, meets the gradients there.
        """
        point = measured.point
        place = (point.hardware, point.storage)
        shared = place in self._shared or point.storage in self._shared
        if traffic is None or not np.any(traffic.gradient_bytes) or not point.prefetch or not shared:
            return alone, 1.0
        if place not in self._sample_bytes:
            return np.full_like(alone, np.nan), np.nan
        read_bytes = ranks_per_node * batch * self._sample_bytes[place]
        data, gradients = together(alone, read_bytes, traffic)
        return data, gradients * traffic.bandwidth / traffic.gradient_bytes

    def _rows(self, hardware: str, storage: str, prefetch: int, without: Collection[str]) -> pd.DataFrame:
        """Iterations on one rank with this storage; those that read ahead likewise, when there are any."""
        key = hardware, storage, prefetch > 0, frozenset(without)
        if key not in self._chosen:
            rows = self._alone
            chosen = (rows["hardware"] == hardware) & (rows["storage"] == storage) & ~rows["cell"].isin(list(without))
            alike = chosen & ((rows["prefetch"] > 0) == (prefetch > 0))
            self._chosen[key] = rows[alike] if alike.any() else rows[chosen]
        return self._chosen[key]

    def _sample(self, rows: pd.DataFrame) -> Ensemble:
        """Seconds to read and to decode one sample, [1 + REPLICATES, 2]."""
        key = tuple(sorted(rows["cell"].unique()))
        if key not in self._samples:
            values = rows[["read", "decode"]].div(rows["worker_batch"], axis="index")
            random, usual = generator(self._seed, "data", *key), self._usual[rows["hardware"].iloc[0]]
            self._samples[key] = bootstrap(values, visits_of(rows), random, np.mean, usual)
        return self._samples[key]

    def _slowdown(self, hardware: str, storage: str, readers: int, read: float, place: Placement) -> Ensemble:
        """Time to read a sample where workers at `place` read at once over that of one alone.

        Passes with as many `readers` come first, else those of one reader. Of them (order, page cache), shuffled ones
        come first, as training reads, and among these the one whose times are nearest to `read`. Without records for
        two different numbers of workers the storage is taken to keep pace.
        """
        passes = self._passes.get((hardware, storage, readers)) or self._passes.get((hardware, storage, 1), [])
        if not passes or place == (1, 1):
            return np.array(1.0)
        return min(passes, key=lambda one: _distance(one.alone, read)).slowdown(place)


@dataclass(frozen=True)
class ReadTogether:
    """A storage that several workers read at once."""

    hardware: str
    storage: str
    readers: int
    """Threads of each worker."""
    visits: Mapping[Placement, int]
    """Where that was measured, and how often."""
    slowdown: Callable[[Placement], Ensemble]
    """Time of a read with workers at a place over that of one alone."""


@dataclass(frozen=True)
class _Pass:
    """How the time to read a sample grows; [1 + REPLICATES] at each count."""

    visits: Mapping[Placement, int]
    """Where it was measured, and how often."""
    inside: BatchCurve | None
    """With the workers of one node; None where no two numbers of them were measured."""
    over_nodes: Mapping[int, BatchCurve]
    """With the nodes, by the workers that read on each."""

    @property
    def alone(self) -> float:
        """Seconds of one worker alone, as far as that is known."""
        curve = self.inside or self.over_nodes[min(self.over_nodes)]
        return float(curve(1)[0, 0])

    def slowdown(self, place: Placement) -> Ensemble:
        """Over one worker alone. Where one number of workers was measured, they slow each other down as nodes do."""
        nodes, workers = place
        if self.inside is None:
            return _growth(self.over_nodes[min(self.over_nodes)], nodes * workers)
        of_node = _growth(self.inside, workers)
        if not self.over_nodes or nodes == 1:
            return of_node
        likest = min(self.over_nodes, key=lambda known: abs(np.log(known / workers)))
        return of_node * _growth(self.over_nodes[likest], nodes)


def _growth(curve: BatchCurve, count: int) -> Ensemble:
    """Seconds at `count` over those at 1."""
    one = curve(1)[:, 0]
    return np.divide(curve(count)[:, 0], one, out=np.ones_like(one), where=one > 0)


def _likest(passes: Sequence[tuple[tuple[str, ...], pd.DataFrame]]) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """Those of `passes`, by `_CURVE`, whose order is nearest to that of training."""
    orders = [_ORDERS.index(key[_CURVE.index("order")]) for key, _ in passes]
    return [one for one, order in zip(passes, orders, strict=True) if order == min(orders)]


def _read(rows: pd.DataFrame, key: tuple[str, ...], seed: int) -> _Pass:
    """The passes of one order and state of the cache."""
    per_node = rows.assign(per_node=rows["ranks"] // rows["nodes"])
    inside = rows[rows["nodes"] == 1]
    of_node = _read_curve(inside, "ranks", (*key, "inside"), seed) if inside["ranks"].nunique() > 1 else None
    several = {workers: of for workers, of in groups(per_node, "per_node") if of["nodes"].nunique() > 1}
    # With one number of workers on every node nobody knows what they do to each other there.
    counted = "nodes" if of_node else "ranks"
    over_nodes = {workers: _read_curve(of, counted, key, seed) for workers, of in several.items()}
    visits = {place: visits_of(of).nunique() for place, of in groups(per_node, ("nodes", "per_node"))}
    return _Pass(visits, of_node, over_nodes)


def _distance(seconds: float, other: float) -> float:
    """How far apart two times are, as \\|log\\| of their ratio; infinite where one of them is 0."""
    return float(abs(np.log(seconds / other))) if seconds > 0 and other > 0 else np.inf


def _read_curve(rows: pd.DataFrame, counted: str, key: tuple[str, ...], seed: int) -> BatchCurve:
    """Mean time to read a sample against the ranks, or the nodes, that read at once."""
    at_once = dict(groups(rows, counted))
    usual = scatter(rows, [counted], "seconds")
    means = [
        bootstrap(reads[["seconds"]], visits_of(reads), generator(seed, "reads", *key, count), np.mean, usual)
        for count, reads in at_once.items()
    ]
    counts, seconds = [int(count) for count in at_once], np.stack(means, axis=1)
    return BatchCurve(counts, seconds, choose_kernel([(counts, seconds)], SLOWING))


def data_share(points: Iterable[Measured]) -> list[dict[str, object]]:
    """Rows of the data_share table: wait for data over iteration time, for every measured point."""
    return list(_shares(points))


def _shares(points: Iterable[Measured]) -> Iterator[dict[str, object]]:
    for measured in points:
        wait = measured.parts.data_wait
        share = wait / measured.parts.iteration_time
        yield {**measured.point.labels("worker_batch"), **columns("data_wait", wait), **columns("share", share)}
