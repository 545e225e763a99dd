"""Training at one point: iterations and messages, reduced over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.frames import Columns
from stallpoint.base.lagging import OWN_PARTS
from stallpoint.base.statistics import VISIT_PRIOR, Ensemble, Reals, Scatter, bootstrap, visits_of
from stallpoint.records.tables import PHASES

PositionArray: TypeAlias = npt.NDArray[np.intp]
_STEP_COLUMNS = ["repeat", "visit", "iteration"]
_TIME_COLUMNS = (*PHASES, "communication", "iteration_time")
ITERATION_COLUMNS = [*_STEP_COLUMNS, "rank", *_TIME_COLUMNS]
"""Columns of iterations that `BucketTimes` reads."""
SENT_COLUMNS = [
    "iteration", "rank", "layer_index", "bucket", "all_reduce_start", "all_reduce_end", "gather_start", "gather_end",
    "gradient_bytes", "bucket_bytes",
]  # fmt: skip
"""Columns of layers that `BucketTimes` reads."""


@dataclass(frozen=True)
class Observed:
    """Times of a point's iterations; medians over them as ensembles, s."""

    forward: Ensemble
    backward: Ensemble
    update: Ensemble
    waiting: Ensemble
    """Wait for a mini-batch."""
    in_flight: Ensemble
    """Part of the backward pass with a message under way."""
    straggling: Ensemble
    """Iteration time beyond its parts."""
    collectives: Ensemble
    """Seconds of each message [1 + REPLICATES, messages], on the rank that waits least."""
    co_running: Ensemble
    """Seconds of each message during the backward pass, on the same rank."""
    gathers: Ensemble
    """All-gathers of each message's weights before the forward pass, on the rank that waits least; none without
    sharding. [1 + REPLICATES, messages]."""
    buckets: list[list[int]]
    """Layers of each message, in the order of sending."""
    bytes: Reals
    """Bytes of each message's gradients, and of what was sent in their place, [2, messages]."""
    leads: Reals
    """Excess of each rank's own part of each iteration over the mean of ranks that do not lag, relative to the mean; if
    some ranks lag, only theirs, weighted by their part of the ranks."""
    ranks: int


@dataclass(frozen=True)
class Sending:
    """Iterations of a cell that have its most frequent message layout, reduced over ranks.

    Layouts may differ between repeats, as jobs merge layers by their own measurements (MG-WFBP), and in imported
    traces, where layers may at times send nothing.
    """

    layer_bucket: tuple[int, ...]
    """Message of each layer; -1 for none."""
    steps: pd.DataFrame
    """A row for each iteration: `_STEP_COLUMNS`, forward, backward, update, waiting, in_flight and straggling."""
    collectives: Reals
    """[iterations, 2 x messages]: seconds of each message, then its seconds during the backward pass."""
    gathers: Reals
    """[iterations, messages], or [iterations, 0] where weights are not sharded: seconds, as in `Observed`."""
    bytes: Reals
    """Bytes of each layer's gradients, and of what was sent in their place, [2, layers]."""
    leads: Reals
    """Excess of each rank, as in `Observed`."""
    ranks: int

    @property
    def buckets(self) -> list[list[int]]:
        """Return the layers of each message, the last layer first."""
        message_numbers = sorted(set(self.layer_bucket) - {-1})
        count = len(self.layer_bucket)
        return [[layer for layer in reversed(range(count)) if self.layer_bucket[layer] == m] for m in message_numbers]


class BucketTimes:
    """Messages of a cell, from its rows of layers. Rows come in parts; no part splits an iteration of a rank.

    Memory grows with iterations x ranks and with iterations x messages, not with the product of all three.
    """

    def __init__(self, iterations: Columns, lags: npt.NDArray[np.bool_], *, averaged: bool = False) -> None:
        """Take the cell's rows without warm-up, and whether each lags (`lagging.is_waited_for`). If `averaged`,
        communication is a mean over workers (`with_mean_communication`)."""
        self._lags, self._averaged = lags, averaged
        self._times = {name: np.asarray(iterations[name], np.float64) for name in _TIME_COLUMNS}
        self._steps, first = np.unique(iterations["iteration"], return_index=True)
        self._labels = {name: np.asarray(iterations[name])[first] for name in _STEP_COLUMNS}
        self._ranks = np.unique(iterations["rank"])
        self._at = self._positions(iterations)
        self._begin = self._sums_by_rank(["data_wait", "host_to_device", "forward"])
        self._until = self._begin + self._sums_by_rank(["backward"])
        self._in_flight = np.full(self._begin.shape, np.nan)
        self._reduced, self._gathered = _LastRankValues(len(self._steps), 2), _LastRankValues(len(self._steps), 1)
        self._layouts: dict[int, tuple[int, ...]] = {}
        self._bytes = np.zeros((2, 0))

    def add(self, layers: Columns) -> None:
        """Add a part of the cell's rows of layers, without warm-up."""
        rows: Columns = {name: layers[name] for name in SENT_COLUMNS}
        rows = _chosen_rows(rows, np.isin(rows["iteration"], self._steps) & np.isin(rows["rank"], self._ranks))
        self._take_layouts(_chosen_rows(rows, rows["rank"] == 0))
        rows = _chosen_rows(rows, rows["bucket"] >= 0)
        step, rank, start, end = self._spans(rows, "all_reduce")
        pass_end = np.minimum(end, self._until[step, rank][:, None])
        co_running = np.maximum(pass_end - np.maximum(start, self._begin[step, rank][:, None]), 0.0)
        has_messages = np.isfinite(end).any(axis=-1)
        self._in_flight[step, rank] = np.where(has_messages, np.nansum(co_running, axis=-1), np.nan)
        self._reduced.add(step, end - start, co_running)
        self._reduced.take_buckets(self._positions(rows)[0], rows["bucket"])
        rows = _chosen_rows(rows, ~np.isnan(rows["gather_end"].astype(np.float64)))
        step, _, start, end = self._spans(rows, "gather")
        self._gathered.add(step, end - start)
        self._gathered.take_buckets(self._positions(rows)[0], rows["bucket"])

    def _take_layouts(self, rows: Columns) -> None:
        """Keep the message of each layer in each iteration, and the last iteration's bytes, from rows of one rank."""
        steps, row = np.unique(rows["iteration"], return_inverse=True)
        places, column = np.unique(rows["layer_index"], return_inverse=True)
        messages = np.full((len(steps), len(places)), -1)
        messages[row, column] = rows["bucket"]
        self._layouts |= dict(zip(steps.tolist(), map(tuple, messages.tolist()), strict=True))
        if len(steps):
            last = np.flatnonzero(row == len(steps) - 1)
            last = last[np.argsort(column[last], kind="stable")]
            self._bytes = np.stack([rows[name][last] for name in ("gradient_bytes", "bucket_bytes")]).astype(np.float64)

    def sending(self) -> Sending | None:
        """Return the reduced iterations; None without communication."""
        layout_counts = Counter(self._layouts[step] for step in sorted(self._layouts))
        commonest_layout = max(layout_counts, key=layout_counts.__getitem__, default=(-1,))
        if max(commonest_layout) < 0:
            return None
        chosen = np.isin(self._steps, [step for step, layout in self._layouts.items() if layout == commonest_layout])
        rows = chosen[self._at[0]]
        lags = rows & self._lags
        typical = ~np.isin(self._ranks, self._ranks[self._at[1][lags]])
        # Communication is that of the last rank to arrive, as in `measured.step_rows`.
        means = {name: _rank_mean(self._sums_by_rank([name])[:, typical]) for name in PHASES}
        means["exposed_communication"] = np.fmin.reduce(self._sums_by_rank(["exposed_communication"]), axis=1)
        values = {
            **{name: means[name] for name in ("forward", "backward", "update")},
            "waiting": means["data_wait"],
            "in_flight": np.nan_to_num(_rank_mean(self._in_flight)),
            "straggling": np.maximum(_rank_mean(self._sums_by_rank(["iteration_time"])) - sum(means.values()), 0.0),
        }
        own = self._sums_by_rank(OWN_PARTS)
        mean = _rank_mean(own[:, typical])[:, None]
        collectives = np.hstack(self._reduced.values(chosen))
        if self._averaged:  # presets that average weights send one message, after the backward pass
            collectives[:, 0] = _rank_mean(self._sums_by_rank(["communication"]))[chosen]
        return Sending(
            layer_bucket=tuple(int(message) for message in commonest_layout),
            steps=pd.DataFrame({name: of[chosen] for name, of in {**self._labels, **values}.items()}),
            collectives=collectives,
            gathers=self._gathered.values(chosen)[0],
            bytes=self._bytes,
            leads=((own - mean) / mean)[self._at][lags if lags.any() else rows],
            ranks=len(np.unique(self._at[1][rows])),
        )

    def _positions(self, rows: Columns) -> tuple[PositionArray, PositionArray]:
        return np.searchsorted(self._steps, rows["iteration"]), np.searchsorted(self._ranks, rows["rank"])

    def _sums_by_rank(self, names: Sequence[str]) -> Reals:
        """Return the sum of the columns `names`, [steps, ranks]; NaN where a rank has no row."""
        found = np.full((len(self._steps), len(self._ranks)), np.nan)
        columns = np.stack([self._times[name] for name in names])
        found[self._at] = np.nansum(columns, axis=0) if len(names) > 1 else columns[0]
        return found

    def _spans(self, rows: Columns, what: str) -> tuple[PositionArray, PositionArray, Reals, Reals]:
        """Return steps and ranks, and the times at which each message begins and ends the operation `what`. Times are
        [steps of ranks, messages], NaN without the operation."""
        step, rank = self._positions(rows)
        known, row = np.unique(step * len(self._ranks) + rank, return_inverse=True)
        at = row, rows["bucket"]
        begin, end = (np.full((len(known), 1 + at[1].max(initial=-1)), np.nan) for _ in range(2))
        np.fmin.at(begin, at, rows[f"{what}_start"].astype(np.float64))
        np.fmax.at(end, at, rows[f"{what}_end"].astype(np.float64))
        return *np.divmod(known, max(1, len(self._ranks))), begin, end


class _LastRankValues:
    """Values of messages on the rank that arrives last in each step: it does not wait, so its messages are shortest."""

    def __init__(self, steps: int, values: int) -> None:
        self._total = np.full(steps, np.inf)
        self._sent = np.zeros((steps, 0), dtype=np.bool_)
        self._values = np.zeros((values, steps, 0))

    def add(self, step: PositionArray, *values: Reals) -> None:
        """Add `values`, each [steps of ranks, messages]; the first array has seconds. Rows are sorted by rank."""
        wider = max(0, values[0].shape[1] - self._sent.shape[1])
        self._sent = np.pad(self._sent, ((0, 0), (0, wider)))
        self._values = np.pad(self._values, ((0, 0), (0, 0), (0, wider)))
        total = np.where(np.isfinite(values[0]).any(axis=-1), np.nansum(values[0], axis=-1), np.inf)
        order = np.lexsort((total, step))
        first = order[np.unique(step[order], return_index=True)[1]]
        last = first[total[first] < self._total[step[first]]]
        self._total[step[last]] = total[last]
        for kept, of in zip(self._values, values, strict=True):
            kept[step[last]] = 0.0
            kept[step[last], : of.shape[1]] = np.nan_to_num(of[last])

    def take_buckets(self, step: PositionArray, bucket: PositionArray) -> None:
        """Mark the messages `bucket` as sent in the steps `step`."""
        self._sent[step, bucket] = True

    def values(self, chosen: npt.NDArray[np.bool_]) -> list[Reals]:
        """Return the values of the `chosen` steps, each [steps, messages]; 0 for a message that was not sent."""
        return [*self._values[:, chosen][:, :, self._sent[chosen].any(axis=0)]]


def _chosen_rows(rows: Columns, which: npt.NDArray[np.bool_]) -> Columns:
    return rows if which.all() else {name: of[which] for name, of in rows.items()}


def _rank_mean(values_by_rank: Reals) -> Reals:
    """Return the mean over the ranks that have a value, [steps]; NaN for a step without values."""
    known = ~np.isnan(values_by_rank)
    total: Reals = np.where(known, values_by_rank, 0.0).sum(axis=1)
    mean: Reals = np.divide(total, known.sum(axis=1), out=np.full_like(total, np.nan), where=known.any(axis=1))
    return mean


def by_bucket_layout(cells: Iterable[Sending]) -> Iterator[list[Sending]]:
    """Yield groups of cells whose messages have the same layers."""
    cells_by_layout: dict[tuple[int, ...], list[Sending]] = {}
    for cell in cells:
        cells_by_layout.setdefault(cell.layer_bucket, []).append(cell)
    yield from cells_by_layout.values()


def observe(cells: Sequence[Sending], random: np.random.Generator, usual: Scatter = VISIT_PRIOR) -> Observed:
    """Return the observed iterations of `cells`, which belong to one point and have identical messages."""
    steps = pd.concat([cell.steps for cell in cells], ignore_index=True)
    values, wide = steps.drop(columns=_STEP_COLUMNS), np.concatenate([cell.collectives for cell in cells])
    gathers = np.concatenate([cell.gathers for cell in cells])
    found = bootstrap(np.hstack([values.to_numpy(), wide, gathers]), visits_of(steps), random, np.mean, usual)
    names, count = list(values.columns), wide.shape[1] // 2
    first = cells[0]
    return Observed(
        **{name: found[:, index] for index, name in enumerate(names)},
        collectives=found[:, len(names) : len(names) + count],
        co_running=found[:, len(names) + count : len(names) + 2 * count],
        gathers=found[:, len(names) + 2 * count :],
        buckets=first.buckets,
        bytes=np.stack([first.bytes[:, members].sum(axis=1) for members in first.buckets], axis=1),
        leads=np.concatenate([cell.leads for cell in cells]),
        ranks=first.ranks,
    )
