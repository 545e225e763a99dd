"""A traced iteration at other worker counts: all-reduces follow the law of their scheme, all else is as traced.

Each worker keeps its mini-batch (weak scaling). An all-reduce takes α·f(p) + β·g(p)·m (`models.terms.reductions`), an
all-gather or a reduce-scatter half of that; the iteration's graph is replayed with these times (`Cycle`). Waiting for
other ranks is not identifiable from one rank's trace; of several ranks, the last-arriving one did not wait
(`traced_link`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.base.stall import Stall
from stallpoint.base.statistics import REPLICATES, Ensemble, Reals, Scatter, columns, generator
from stallpoint.text import number
from stallpoint_traces.formats.events import UNKNOWN
from stallpoint_traces.layout.groups import EXCHANGE, EXPERT
from stallpoint_traces.rank.cycle_time import Cycle
from stallpoint_traces.rank.iterations import median_index
from stallpoint_traces.rank.rank import Rank
from stallpoint_traces.rank.trace_collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, ROUNDS, Collectives
from stallpoint_traces.traced_link import (
    COUNTS,
    ONE_RANK,
    RANKS,
    RING,
    TREE,
    FittedLink,
    IterationCollectives,
    Transfers,
    error_factors,
    fitted_link,
    max_latency,
)

MAX_RATIO = 8
"""Maximum ratio of a predicted worker count to the traced one: links beyond were not traced."""


ITERATION_SCATTER = Scatter(0.01, 4.0)
"""Prior of the scatter of iteration times within one training."""
EXTRAPOLATION_ERROR = Scatter(0.043, 6.0)
"""Error of predictions at other worker counts, from six predictions in the benchmark `own-traces` (docs/traces.md)."""


NODE = 8
"""Workers of a node if neither the trace nor the user gives them."""


class NotIdentifiable(LookupError):
    """Error that a trace lacks data for a prediction; `reasons` name them."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = list(reasons)


MIN_ITERATIONS = 2
"""Minimum number of iterations, to estimate their scatter; Chakra's graph of a single iteration is exempt."""
MIN_COMPUTING = 0.01
"""Minimum computing fraction of an iteration: below it, computing was not traced."""
_DATA_PARALLEL = (ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER)
MAX_REPLAY_ERROR = 0.05
"""Maximum error of a replay, as a fraction of an iteration, for predictions to be made."""


def lacking(rank: Rank) -> Iterator[str]:
    """Yield, in words, each requirement of predictions that the trace of `rank` does not meet."""
    count = len(rank.iterations.seconds)
    if count < MIN_ITERATIONS and not rank.trace.graph:
        yield f"it has {count} iteration, and at least {MIN_ITERATIONS} are needed"
    computing = float(np.median(rank.causes["compute"] / rank.iterations.seconds))
    if not computing >= MIN_COMPUTING:
        yield (
            f"computing is {number(100 * computing, 2)} % of an iteration: neither a device's kernels nor the host's "
            "operators were traced"
        )
    off = replay_error(rank)
    if abs(off) > MAX_REPLAY_ERROR:
        yield (
            f"its replay is {number(100 * abs(off), 2)} % {'longer' if off > 0 else 'shorter'} than what was traced, "
            f"and at most {number(100 * MAX_REPLAY_ERROR)} % is believed"
        )
    collectives, among_all = rank.collectives, rank.groups.data
    if rank.workers < 2:
        yield "it says of no second worker (--workers, where the file does not say how many there were)"
    if rank.groups.replicas < 2 or not any(collectives.kind[at] in _DATA_PARALLEL for at in np.flatnonzero(among_all)):
        yield "no all-reduce among replicas of the model was traced"
    reduced = np.array([kind in ROUNDS for kind in collectives.kind], np.bool_) & among_all
    if (collectives.bytes[reduced] < 0).any():
        yield (
            "it does not say how large its all-reduces are: torch.profiler does with record_shapes=True, for NCCL also "
            "PyTorch 2.2 or newer"
        )
    if any(group.parallelism in (EXCHANGE, EXPERT) and group.size == UNKNOWN for group in rank.groups.groups):
        yield (
            "all workers exchange with all, and it does not say among how many; a trace of PyTorch 2.2 or newer does"
        )
    counts = np.bincount(collectives.iteration[reduced], minlength=count)[list(rank.replays)]
    if reduced.any() and not np.bincount(counts).argmax():
        yield "most iterations send nothing"
    if reduced.any() and not collectives.seconds[reduced].any():
        yield "its all-reduces take no time"


def replay_error(rank: Rank) -> float:
    """Return the median relative error of the iterations' replays, positive if too long; 0 without replays."""
    return float(np.median(rank.replayed / rank.traced)) - 1 if rank.replays else 0.0


@dataclass(frozen=True)
class HypotheticalChange:
    """A hypothetical change; see `CHANGES`."""

    bytes: float = 1.0
    """Factor of the communicated bytes."""
    bandwidth: float = 1.0
    """Factor of the link's bandwidth."""
    pairs: bool = False
    """Whether two neighbouring all-reduces are fused into one, which starts when the second is ready."""
    sharded: bool = False
    """Whether weights are fully sharded (FSDP): see `_gather_seconds`."""


@dataclass(frozen=True)
class TracedInputs:
    """Data that predictions at any worker count take from a trace."""

    workers: int
    """Replicas of the model in the trace, each on `each` ranks."""
    each: int
    shards: int
    """Ranks of a replica that have mini-batches of their own."""
    sharded: bool
    """Whether parameters are gathered in the trace (FSDP)."""
    shares_link: bool
    """Whether collectives overlap on the link, as those of Gloo's two threads do."""
    seconds: Reals
    """Traced duration of each iteration, s; [iterations]."""
    forward: Reals
    """Duration of each forward pass, s; nan if unknown; [iterations]."""
    replays: Sequence[Sequence[Cycle]]
    """Replays of each iteration for each possible speed of the host, [hosts][iterations]."""
    iteration_collectives: Sequence[IterationCollectives]
    link: FittedLink
    drawn: npt.NDArray[np.int64]
    """Indices of the host and the iteration of each replicate, [2, 1 + REPLICATES]."""
    trees: npt.NDArray[np.bool_]
    """Whether a replicate uses trees rather than rings at other worker counts, [1 + REPLICATES]."""

    def iteration(self, workers: int, change: HypotheticalChange | None = None) -> Ensemble:
        """Return the duration of an iteration on `workers` replicas, s."""
        return np.asarray(self.iterations([(workers, change or HypotheticalChange())])[0])

    def iterations(self, cases: Sequence[tuple[int, HypotheticalChange]]) -> Reals:
        """Return durations for several counts and changes at once, s; [cases, 1 + REPLICATES]."""
        found = np.empty((len(cases), 1 + REPLICATES))
        for host, index in np.unique(self.drawn, axis=1).T.tolist():
            own = (self.drawn == [[host], [index]]).all(0)
            collectives, replayed = self.iteration_collectives[index], self.replays[host][index]
            usual = self._cost(collectives, self.workers, own, HypotheticalChange())
            with np.errstate(divide="ignore", invalid="ignore"):
                # Without waiting: the time on the last-arriving rank, or else at most the link's.
                took = np.where(np.isfinite(collectives.least), collectives.least, collectives.seconds)[:, None] / usual
                factor = np.where(np.isfinite(collectives.least)[:, None], took, np.minimum(took, 1.0))
                factor = np.where(usual > 0, factor, 1.0)
            waited = np.where(
                collectives.rounds[:, None] > 0, np.maximum(collectives.seconds[:, None] - factor * usual, 0.0), 0.0
            )
            stays = collectives.kept_seconds(self.workers, self.workers)
            before = self.seconds[index] - replayed.iteration(stays + factor * usual + waited)
            at_once = max(1, _MAX_BATCHED // max(1, usual.size))
            for first in range(0, len(cases), at_once):
                some = cases[first : first + at_once]
                there = [factor * self._cost(_with_fusion(collectives, change), p, own, change) for p, change in some]
                waits = [waited * (~_fused(collectives, change)[:, None] & (p > 1)) for p, change in some]
                stay = [collectives.kept_seconds(p, self.workers) for p, _ in some]
                after = replayed.iteration(np.stack(stay, 1) + np.stack(there, 1) + np.stack(waits, 1))
                for row, (p, change) in enumerate(some):
                    if change.sharded and p > 1:
                        # All-gather and reduce-scatter of the backward pass replace the all-reduce.
                        gathers = there[row][collectives.all_reduces][::-1] / 2
                        after[row] += _gather_seconds(
                            gathers, collectives.bytes[collectives.all_reduces][::-1], self.forward[index]
                        )
                found[first : first + at_once, own] = before + after
        return np.asarray(found * np.stack([self._error(p) for p, _ in cases]))

    def _error(self, workers: int) -> Ensemble:
        """Return the error factor of predictions at a worker count, the same for every change.

        It covers few iterations and, at other counts than the traced one, also `EXTRAPOLATION_ERROR`.
        """
        few = self.few_iterations("workers", workers)
        return few if workers == self.workers else few * error_factors(EXTRAPOLATION_ERROR, "error", workers)

    def few_iterations(self, *key: object) -> Ensemble:
        """Return the error factor of a median over few iterations, drawn anew for each key."""
        count = len(self.seconds)
        own = float(np.square(np.log(self.seconds / np.median(self.seconds))).sum())
        freedom = ITERATION_SCATTER.freedom + count - 1
        deviation = np.sqrt((ITERATION_SCATTER.freedom * ITERATION_SCATTER.deviation**2 + own) / freedom / count)
        return error_factors(Scatter(float(deviation), freedom), "few", count, *key)

    def _cost(
        self,
        collectives: IterationCollectives,
        workers: int,
        replicates: npt.NDArray[np.bool_],
        change: HypotheticalChange,
    ) -> Reals:
        """Return the duration of transfers, s; [collectives, replicates]."""
        if workers < 2:
            return np.zeros((len(collectives.bytes), int(replicates.sum())))
        p = np.array(float(workers))
        trees = self.trees[replicates] & (workers != self.workers or bool(self.link.trees))
        latency, bandwidth = (
            np.where(trees, of_tree(p), of_ring(p)) / 2
            for of_tree, of_ring in ((TREE.latency, RING.latency), (TREE.bandwidth, RING.bandwidth))
        )
        moved = change.bytes / change.bandwidth * collectives.bytes[:, None]
        round_trip = self.link.alpha[replicates] * latency + self.link.beta[replicates] * bandwidth * moved
        return np.asarray(collectives.rounds[:, None] * round_trip)


_MAX_BATCHED = 4_000_000
"""Maximum number of collectives' durations that are replayed at once, which bounds memory."""


def _fused(collectives: IterationCollectives, change: HypotheticalChange) -> npt.NDArray[np.bool_]:
    """Return which all-reduces are fused with the next one."""
    merged = np.zeros(len(collectives.bytes), np.bool_)
    own = np.flatnonzero(collectives.all_reduces)
    if change.pairs:
        merged[own[0 : len(own) - 1 : 2]] = True
    return merged


def _with_fusion(collectives: IterationCollectives, change: HypotheticalChange) -> IterationCollectives:
    """Return the collectives, with pairs of all-reduces fused if the change says so."""
    merged = np.flatnonzero(_fused(collectives, change))
    if not len(merged):
        return collectives
    own = np.flatnonzero(collectives.all_reduces)
    sizes, rounds = collectives.bytes.copy(), collectives.rounds.copy()
    for first, second in zip(merged, own[1::2], strict=True):
        sizes[second] += sizes[first]
        rounds[first] = 0.0
    return replace(collectives, bytes=sizes, rounds=rounds)


def _gather_seconds(seconds: Reals, sizes: Reals, forward: float) -> Reals:
    """Return the time that all-gathers, prefetched one block ahead, add to a forward pass, s; [...].

    `seconds` [blocks, ...] is the duration of each block's all-gather, in forward order. A trace does not map buckets
    to layers of the forward pass: each block's computing time is taken as proportional to its bytes.
    """
    computing = forward * sizes / sizes.sum()
    gathered, computed = seconds[0], seconds[0]
    for block in range(len(seconds)):
        begin = np.maximum(computed, gathered)
        computed = begin + computing[block]
        if block + 1 < len(seconds):
            gathered = np.maximum(gathered, begin) + seconds[block + 1]
    return np.asarray(computed - forward)


def learn(
    rank: Rank,
    link: FittedLink | None = None,
    least: Reals | None = None,
    traced: int | None = None,
    elsewhere: Sequence[Transfers] = (),
) -> TracedInputs:
    """Return the inputs of predictions from a data-parallel training; `NotIdentifiable` if the trace lacks any.

    `link` comes from another program's log. `least` [collectives] is the duration on the last-arriving rank of `traced`
    ones (None: all ranks if `least` is given, else one). `elsewhere` are the same training's transfers at other worker
    counts.
    """
    if lacks := list(lacking(rank)):
        raise NotIdentifiable(lacks)
    collectives, workers, every = rank.collectives, rank.groups.replicas, IterationCollectives.of(rank, least)
    communicated = every.rounds > 0
    counts = np.bincount(collectives.iteration[communicated], minlength=len(rank.iterations.seconds))
    usual = int(np.bincount(counts[list(rank.replays)]).argmax())
    chosen = [index for index in rank.replays if counts[index] == usual]
    order = np.argsort(collectives.index)
    places = [order[np.searchsorted(collectives.index, rank.replays[index].keys, sorter=order)] for index in chosen]
    own = every.at(np.concatenate(places)).transfers(workers)
    random = generator(0, "trace", len(own.seconds), float(own.seconds.sum()))
    rings = all(name == "RING" for name, of_it in zip(collectives.algorithm, communicated, strict=True) if of_it)
    if link is None:
        latency = max_latency(collectives.where(rank.groups.data), workers)
        others = [other for other in elsewhere if len(other.without_waiting)]
        several = sum(others, own)
        laws = (RING,) if rings or not rank.on_device or not others else (RING, TREE)
        link = fitted_link(several.where(several.seconds > 0), laws, latency, random)
        share = 1 if link.source == ONE_RANK else traced or rank.workers
        link = link.with_uncertainty(share / rank.workers, len(chosen))
        identified = link.source == RANKS and others  # one worker count does not distinguish rings from trees
        link = replace(link, source=COUNTS) if identified else replace(link, trees=None)
    trees = np.concatenate([[not rings], random.random(REPLICATES) < (0.5 if rings else 0.9)])
    if link.trees is not None:
        trees[:] = link.trees
    if not rank.on_device:
        trees[:] = False  # Gloo uses rings
    took = rank.iterations.seconds[chosen]
    picked = np.concatenate([[median_index(took)], random.integers(len(chosen), size=REPLICATES)])
    # The traced host; if the device is never idle, the host's speed is unknown, and each replicate draws one.
    hosts = (*rank.other_hosts, rank.replays)
    host = np.append(0, random.integers(len(hosts), size=REPLICATES) if len(hosts) > 1 else np.zeros(REPLICATES, int))
    return TracedInputs(
        workers=workers,
        each=rank.workers // workers,
        shards=rank.groups.shards,
        sharded=rank.groups.sharded,
        shares_link=_overlap(collectives, communicated),
        seconds=took,
        forward=rank.phases.forward[chosen],
        replays=[[of[index] for index in chosen] for of in hosts],
        iteration_collectives=[every.at(own_places) for own_places in places],
        link=link,
        drawn=np.stack([host, picked]),
        trees=trees,
    )


def worker_counts(workers: int) -> list[int]:
    """Return the predicted counts: 1 and the traced one, and their doublings up to `MAX_RATIO` times the traced one."""
    doublings = (start * 2**power for start in (1, workers) for power in range((MAX_RATIO * workers).bit_length()))
    return sorted({count for count in doublings if count <= MAX_RATIO * workers})


def reachable(known: TracedInputs, per_node: float) -> list[int]:
    """Return the predictable `worker_counts`; exchanges among all workers must cross the node boundary as traced."""
    counts = worker_counts(known.workers)
    if not any(one.exchanges.any() for one in known.iteration_collectives):
        return counts
    return [count for count in counts if count == 1 or (count <= per_node) == (known.workers <= per_node)]


def predictions(known: TracedInputs, batch: int | None, threshold: float, per_node: float = NODE) -> dict[str, Any]:
    """Return the throughput at each of `worker_counts`, the stalling point, and the gain of each change.

    Throughput is in samples/s if the mini-batch is given, else in iterations/s, summed over mini-batches. Speedups are
    over one replica.
    """
    counts = reachable(known, per_node)
    changes = {name: change for name, change in CHANGES.items() if _identifiable(known, change)}
    cases = [(p, HypotheticalChange()) for p in counts] + [(counts[-1], change) for change in changes.values()]
    found = known.iterations(cases)
    seconds = dict(zip(counts, found, strict=False))
    rates = {p: (batch or 1) * known.shards * p / of for p, of in seconds.items()}
    line = [p for p in rates if known.workers % p == 0 or p % known.workers == 0]
    stall = Stall.of({p: np.log(rates[p][1:]) for p in line}, threshold)
    verdict, workers = stall.verdict
    largest = max(seconds)
    return {
        "unit": "samples/s" if batch else "worker iterations/s",
        "workers": [
            {
                "workers": p * known.each, **columns("iteration_seconds", seconds[p]), **columns("throughput", rate),
                **columns("speedup", rate / rates[1]),
            }
            for p, rate in rates.items()
        ],
        "stalling": {
            "verdict": verdict, "workers": workers * known.each,
            "probabilities": {p * known.each: of for p, of in stall.probabilities.items()},
        },
        "what_if": [
            {"change": name, **columns("throughput_factor", known.few_iterations(name) * seconds[largest] / changed)}
            for name, changed in zip(changes, found[len(counts) :], strict=True)
        ],
        "link": {
            **columns("alpha_seconds", known.link.alpha), **columns("beta_seconds_per_byte", known.link.beta),
            "source": known.link.source,
        },
        "what_if_workers": largest * known.each, "replica_workers": known.each,
        "batch_workers": known.each // known.shards,
    }  # fmt: skip


def _overlap(collectives: Collectives, chosen: npt.NDArray[np.bool_]) -> bool:
    """Return whether chosen collectives overlap in time."""
    start, end = collectives.start[chosen], collectives.start[chosen] + collectives.seconds[chosen]
    return bool((start[1:] < np.maximum.accumulate(end)[:-1] - _ROUNDING).any())


_ROUNDING = 1e-6
"""Apparent overlap of consecutive collectives that is ignored, s."""


def _identifiable(known: TracedInputs, change: HypotheticalChange) -> bool:
    """Return whether the effect of a change is identifiable; with overlapping collectives, other buckets are not."""
    if known.shares_link and (change.sharded or change.pairs):
        return False
    all_reduces = min(int(collectives.all_reduces.sum()) for collectives in known.iteration_collectives)
    if change.sharded:
        return all_reduces > 0 and not known.sharded and bool(np.isfinite(known.forward).all())
    return not change.pairs or (all_reduces > 1 and not known.sharded)


CHANGES: Mapping[str, HypotheticalChange] = {
    "half the bytes": HypotheticalChange(bytes=0.5),
    "twice the bandwidth": HypotheticalChange(bandwidth=2.0),
    "buckets twice as large": HypotheticalChange(pairs=True),
    "FSDP in place of DDP": HypotheticalChange(sharded=True),
}
"""Changes that are predicted for every trace."""
