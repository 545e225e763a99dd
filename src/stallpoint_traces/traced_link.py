"""What the collectives of a trace sent, and the link that it was sent over: latency of a round and time of a byte.

As waiting is never negative, α + β·m is the highest line below all collectives (a deterministic frontier; Aigner & Chu
1968), and the time above it stays as traced. From similar sizes α is hardly identifiable: it lies between 0 and the
shortest time per round of any collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from stallpoint.base.non_negative_fits import non_negative_fit
from stallpoint.base.statistics import REPLICATES, Ensemble, Reals, Scatter, generator
from stallpoint.inputs.all_reduce_logs import AllReduce
from stallpoint.models.terms.reductions import REDUCTION_LAWS, ReductionLaw
from stallpoint_traces.layout.groups import EXCHANGE, EXPERT
from stallpoint_traces.rank.rank import Rank
from stallpoint_traces.rank.trace_collectives import ALL_GATHER, ALL_REDUCE, ROUNDS, Collectives

RING, TREE = REDUCTION_LAWS["ring"], REDUCTION_LAWS["rabenseifner"]
"""Schemes of NCCL: a ring, or double trees, whose rounds grow with log p and whose bytes do not."""
MAX_ERROR = 1.0
"""Maximum logarithm of an error, as Student's t has rare extreme draws."""


def scattered(by: Scatter, *key: object) -> Ensemble:
    """Return factors whose logarithms are Student's t times a deviation; the first is 1."""
    draws = generator(0, *key).standard_t(by.freedom, REPLICATES)
    return np.append(1.0, np.exp(np.clip(by.deviation * draws, -MAX_ERROR, MAX_ERROR)))


@dataclass(frozen=True)
class IterationCollectives:
    """Collectives of one iteration, or of a trace, in the order of their starts, as in `Cycle`; [collectives] each."""

    rounds: Reals
    """Rounds over those of a reduce-scatter: 2 for an all-reduce; 0 for a collective that stays as traced."""
    bytes: Reals
    """Bytes of the complete buffer: each rank's input, for an all-gather its output."""
    seconds: Reals
    """Traced duration, s."""
    least: Reals
    """Duration on the last-arriving rank, s; inf if only one rank was traced."""
    all_reduces: npt.NDArray[np.bool_]
    """Which of them are all-reduces among all workers."""
    exchanges: npt.NDArray[np.bool_]
    """Which of them are all-to-alls among all workers, each of which sends to all others."""

    @classmethod
    def of(cls, rank: Rank, least: Reals | None = None) -> IterationCollectives:
        """Return the collectives of all iterations of a trace, in the order of the trace; `least` as in `learn`."""
        kinds, among_all = rank.collectives.kind, rank.groups.data
        factors = np.array([rank.groups.replicas if kind == ALL_GATHER else 1.0 for kind in kinds])
        return cls(
            np.array([ROUNDS.get(kind, 0) for kind in kinds], np.float64) * among_all,
            np.asarray(rank.collectives.bytes * factors),
            rank.collectives.seconds,
            np.full(len(kinds), np.inf) if least is None else least,
            np.array([kind == ALL_REDUCE for kind in kinds], np.bool_) & among_all,
            exchanges(rank),
        )

    def at(self, places: npt.NDArray[np.int64]) -> IterationCollectives:
        """Return the collectives at some indices."""
        return IterationCollectives(*(getattr(self, of.name)[places] for of in fields(self)))

    def staying(self, workers: int, traced: int) -> Reals:
        """Return the durations of what no law of `rounds` describes, of exchanges by the part that leaves a worker,
        (n-1)/n, [collectives, 1]."""
        grown = (1 - 1 / workers) / (1 - 1 / traced)
        return np.where(self.rounds > 0, 0.0, self.seconds * np.where(self.exchanges, grown, 1.0))[:, None]

    def transfers(self, workers: int) -> Transfers:
        """Return what so many replicas sent, without what stays as it was traced."""
        varying = self.at(np.flatnonzero(self.rounds))
        taken, told = np.minimum(varying.seconds, varying.least), np.isfinite(varying.least)
        return Transfers(np.full(len(taken), float(workers)), varying.rounds, varying.bytes, taken, told)


@dataclass(frozen=True)
class FittedLink:
    """Latency of a round [s] and time of a byte [s/B], as ensembles."""

    alpha: Ensemble
    beta: Ensemble
    source: str = ""
    """`LOG`, `COUNTS`, `RANKS` or `ONE_RANK`."""
    trees: bool | None = None
    """Whether the scheme is trees rather than a ring; None if one worker count does not identify it."""

    def doubted(self, share: float, count: int) -> FittedLink:
        """Return the link with the uncertainty from `share` traced ranks and `count` iterations.

        Only the last-arriving rank does not wait. With the probability that it was traced, the shortest duration holds
        no waiting; otherwise the transfer may take any fraction of it. The scatter of transfers has a prior for few
        iterations.
        """
        random = generator(0, "link", count, share)
        last = random.random(REPLICATES) < max(share, _LEAST_LAST)
        transfer = np.append(1.0, np.where(last, 1.0, random.random(REPLICATES)))
        few = Scatter(TRANSFERS.deviation / np.sqrt(count), TRANSFERS.freedom + count - 1)
        alpha, beta = (of * transfer * scattered(few, "link", name)
                       for name, of in (("alpha", self.alpha), ("beta", self.beta)))  # fmt: skip
        return replace(self, alpha=alpha, beta=beta)


LOG, COUNTS, RANKS, ONE_RANK = "log", "worker counts", "ranks", "one rank"
TRANSFERS = Scatter(0.05, 4.0)
"""Usual scatter of transfers of one size between iterations, a prior for few of them."""
_LEAST_LAST = 0.1
"""Minimum probability that a traced rank arrived last, which keeps the frontier in the interval."""


@dataclass(frozen=True)
class Transfers:
    """Transfers between replicas of one training; [collectives] each."""

    workers: Reals
    """Number of replicas that took part."""
    rounds: Reals
    """As in `IterationCollectives`."""
    bytes: Reals
    """As in `IterationCollectives`."""
    seconds: Reals
    """Duration on the rank that waited least, s."""
    without_waiting: npt.NDArray[np.bool_]
    """Whether that rank is known; otherwise the duration may include waiting."""

    @classmethod
    def of(cls, rank: Rank, least: Reals | None = None) -> Transfers:
        """Return the transfers of known size in a trace; `least` as in `learn`."""
        found = IterationCollectives.of(rank, least).transfers(rank.groups.replicas)
        return found.where(found.bytes >= 0)

    def __add__(self, other: Transfers) -> Transfers:
        """Return both, concatenated."""
        both = ((getattr(self, of.name), getattr(other, of.name)) for of in fields(self))
        return Transfers(*map(np.concatenate, both))

    def where(self, chosen: npt.NDArray[np.bool_]) -> Transfers:
        """Return the `chosen` transfers."""
        return Transfers(*(getattr(self, of.name)[chosen] for of in fields(self)))


def exchanges(rank: Rank) -> npt.NDArray[np.bool_]:
    """Return which collectives are exchanges among all workers, whose group grows with them."""
    found = np.zeros(len(rank.collectives), np.bool_)
    for group in rank.groups.groups:
        if group.parallelism in (EXCHANGE, EXPERT) and group.size == rank.workers == rank.groups.replicas:
            found[group.places] = True
    return found


_STEPS = 1024  # values of α that are tried
_ENOUGH = 0.5  # fraction of transfers with a known last rank, as others' events may be lost
_SCATTER = 0.01  # part of a transfer's duration, besides its waiting


def max_latency(collectives: Collectives, workers: int) -> float:
    """Return the maximum latency of a round, s, by the shortest collective."""
    groups = np.where(collectives.group_size > 1, collectives.group_size, workers)
    rounds = np.array([ROUNDS.get(kind, 0) for kind in collectives.kind]) * (groups - 1)
    timed = (rounds > 0) & (collectives.seconds > 0)
    return float((collectives.seconds[timed] / rounds[timed]).min())


def fitted_link(of: Transfers, laws: Sequence[ReductionLaw], latency: float, random: np.random.Generator) -> FittedLink:
    """Return α and β of the law nearest to the transfers; a round's latency is at most `latency`, s."""
    if of.without_waiting.mean() < _ENOUGH:
        return replace(_frontier(of, latency, random), source=ONE_RANK)
    known = of.where(of.without_waiting)
    found = [_fitted(known, law, random) for law in laws]
    off = []
    for law, link in zip(laws, found, strict=True):
        seconds = _design(known, law) @ [link.alpha[0], link.beta[0]]
        off.append(float(np.square(seconds / known.seconds - 1).sum()))
    best = int(np.argmin(off))
    return replace(found[best], source=RANKS, trees=laws[best] is TREE)


def _frontier(of: Transfers, max_latency: float, random: np.random.Generator) -> FittedLink:
    """Return α and β of a ring whose law is the highest one below all transfers.

    Waiting is assumed to be exponentially distributed: replicates are drawn by the waiting that each α leaves.
    """
    (rounds, moved), seconds = _design(of, RING).T, of.seconds
    tried = np.linspace(0, max_latency, _STEPS)
    # Of equal transfers only the shortest can touch the frontier.
    distinct, index = np.unique(np.stack([rounds, moved]), axis=1, return_inverse=True)
    shortest = np.full(distinct.shape[1], np.inf)
    np.minimum.at(shortest, index.ravel(), seconds)
    slopes = np.array([max(0.0, float(((shortest - distinct[0] * alpha) / distinct[1]).min())) for alpha in tried])
    waiting = np.maximum(seconds.mean() - rounds.mean() * tried - moved.mean() * slopes, 0.0)
    usual = waiting.min() + _SCATTER * seconds.mean()
    likely = np.exp((waiting.min() - waiting) * len(seconds) / usual)
    drawn = np.append(waiting.argmin(), random.choice(_STEPS, REPLICATES, p=likely / likely.sum()))
    return FittedLink(tried[drawn], slopes[drawn])


def link_of(rows: Sequence[AllReduce], workers: int) -> FittedLink:
    """Return α and β of a ring from another program's log of all-reduces, as `_fitted`."""
    sizes, seconds = (np.array([getattr(row, name) for row in rows], float) for name in ("message_bytes", "seconds"))
    count = len(rows)
    collectives = Transfers(
        np.full(count, float(workers)), np.full(count, 2.0), sizes, seconds, np.ones(count, np.bool_)
    )
    return replace(_fitted(collectives, RING, generator(0, "log", count)), source=LOG)


def _design(of: Transfers, law: ReductionLaw) -> Reals:
    """Return the factors of α and β, [collectives, 2]."""
    latency, bandwidth = law.latency(of.workers), law.bandwidth(of.workers)
    return np.stack([of.rounds * latency / 2, of.rounds * bandwidth / 2 * of.bytes], -1)


def _fitted(of: Transfers, law: ReductionLaw, random: np.random.Generator) -> FittedLink:
    """Return α and β of a law by least squares, for the transfers and for resampled ones."""
    count, design = len(of.seconds), _design(of, law)
    drawn = np.concatenate([[np.arange(count)], random.integers(count, size=(REPLICATES, count))])
    alpha, beta = np.moveaxis(non_negative_fit(design[drawn], of.seconds[drawn]), -1, 0)
    return FittedLink(alpha, beta)
