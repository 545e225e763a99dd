"""Bytes sent by a trace's collectives, and a fit of the link that carried them: latency of a round, time of a byte.

Waiting is never negative: α + β·m is the highest line below all collectives (a deterministic frontier; Aigner & Chu
1968), and the time above the line is waiting. From similar sizes α is hardly identifiable: it lies between 0 and the
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
"""Bound on the logarithm of a drawn error: Student's t has rare extreme draws."""


def error_factors(by: Scatter, *key: object) -> Ensemble:
    """Return random factors whose logarithms are Student's t times `by.deviation`; the first factor is 1."""
    draws = generator(0, *key).standard_t(by.freedom, REPLICATES)
    return np.append(1.0, np.exp(np.clip(by.deviation * draws, -MAX_ERROR, MAX_ERROR)))


@dataclass(frozen=True)
class IterationCollectives:
    """Collectives of one iteration or of a complete trace, by start; each column is [collectives]."""

    rounds: Reals
    """Rounds relative to a reduce-scatter: 2 for an all-reduce; 0 if predictions keep the traced duration."""
    bytes: Reals
    """Bytes of the complete buffer: each rank's input, or its output in an all-gather."""
    seconds: Reals
    """Traced duration, s."""
    least: Reals
    """Duration on the last-arriving rank, s; inf if only one rank was traced."""
    all_reduces: npt.NDArray[np.bool_]
    """Whether the collective is an all-reduce among all workers."""
    exchanges: npt.NDArray[np.bool_]
    """Whether the collective is an all-to-all among all workers."""

    @classmethod
    def of(cls, rank: Rank, least: Reals | None = None) -> IterationCollectives:
        """Return the collectives of a rank's trace, in its order; `least` as in `other_worker_counts.learn`."""
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
        """Return the collectives at the given indices."""
        return IterationCollectives(*(getattr(self, of.name)[places] for of in fields(self)))

    def kept_seconds(self, workers: int, traced: int) -> Reals:
        """Return durations of collectives without a reduction law (0 for others), s, [collectives, 1]; exchanges'
        durations are scaled by the part of the data that leaves a worker, (n-1)/n."""
        grown = (1 - 1 / workers) / (1 - 1 / traced)
        return np.where(self.rounds > 0, 0.0, self.seconds * np.where(self.exchanges, grown, 1.0))[:, None]

    def transfers(self, workers: int) -> Transfers:
        """Return the collectives with a reduction law, as transfers among `workers` replicas."""
        varying = self.at(np.flatnonzero(self.rounds))
        taken, told = np.minimum(varying.seconds, varying.least), np.isfinite(varying.least)
        return Transfers(np.full(len(taken), float(workers)), varying.rounds, varying.bytes, taken, told)


@dataclass(frozen=True)
class FittedLink:
    """Latency of a round [s] and time of a byte [s/B], as ensembles."""

    alpha: Ensemble
    beta: Ensemble
    source: str = ""
    """Data of the fit: `LOG`, `COUNTS`, `RANKS` or `ONE_RANK`."""
    trees: bool | None = None
    """Whether the scheme is trees rather than a ring; None if not identifiable from one worker count."""

    def with_uncertainty(self, share: float, count: int) -> FittedLink:
        """Return the link with the uncertainty due to `count` iterations and a traced fraction `share` of the ranks.

        Only the last-arriving rank does not wait. If it was traced (probability `share`), the shortest duration
        contains no waiting; otherwise the transfer may take any fraction of that duration. The scatter of transfers has
        a prior for few iterations.
        """
        random = generator(0, "link", count, share)
        last = random.random(REPLICATES) < max(share, _MIN_LAST)
        transfer = np.append(1.0, np.where(last, 1.0, random.random(REPLICATES)))
        few = Scatter(TRANSFER_SCATTER.deviation / np.sqrt(count), TRANSFER_SCATTER.freedom + count - 1)
        alpha, beta = (of * transfer * error_factors(few, "link", name)
                       for name, of in (("alpha", self.alpha), ("beta", self.beta)))  # fmt: skip
        return replace(self, alpha=alpha, beta=beta)


LOG, COUNTS, RANKS, ONE_RANK = "log", "worker counts", "ranks", "one rank"
TRANSFER_SCATTER = Scatter(0.05, 4.0)
"""Prior of the scatter, between iterations, of transfers of one size."""
_MIN_LAST = 0.1
"""Minimum probability that a traced rank arrived last: it keeps the frontier within the interval."""


@dataclass(frozen=True)
class Transfers:
    """Transfers between replicas of one training; each column is [collectives]."""

    workers: Reals
    """Number of replicas that took part."""
    rounds: Reals
    """As in `IterationCollectives`."""
    bytes: Reals
    """As in `IterationCollectives`."""
    seconds: Reals
    """Duration on the rank that waited least, s."""
    without_waiting: npt.NDArray[np.bool_]
    """Whether the last-arriving rank is known; otherwise `seconds` may include waiting."""

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
    """Return whether each collective is an exchange among all workers, whose group grows with their number."""
    found = np.zeros(len(rank.collectives), np.bool_)
    for group in rank.groups.groups:
        if group.parallelism in (EXCHANGE, EXPERT) and group.size == rank.workers == rank.groups.replicas:
            found[group.places] = True
    return found


_ALPHAS = 1024  # number of values of α that are tried
_MIN_KNOWN = 0.5  # minimum fraction of transfers with a known last-arriving rank; profilers may lose events
_SCATTER = 0.01  # scatter of a transfer without waiting, as a fraction of its duration


def max_latency(collectives: Collectives, workers: int) -> float:
    """Return an upper bound of a round's latency, s: the shortest time per round of any collective."""
    groups = np.where(collectives.group_size > 1, collectives.group_size, workers)
    rounds = np.array([ROUNDS.get(kind, 0) for kind in collectives.kind]) * (groups - 1)
    timed = (rounds > 0) & (collectives.seconds > 0)
    return float((collectives.seconds[timed] / rounds[timed]).min())


def fitted_link(of: Transfers, laws: Sequence[ReductionLaw], latency: float, random: np.random.Generator) -> FittedLink:
    """Return α and β of the law that fits the transfers best; α of a frontier is at most `latency`, s."""
    if of.without_waiting.mean() < _MIN_KNOWN:
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
    """Return α and β of the highest ring law that lies below all transfers.

    Waiting is assumed to be exponentially distributed: replicates draw α by the likelihood of its residual waiting.
    """
    (rounds, moved), seconds = _design(of, RING).T, of.seconds
    tried = np.linspace(0, max_latency, _ALPHAS)
    # Only the shortest of several equal transfers can touch the frontier.
    distinct, index = np.unique(np.stack([rounds, moved]), axis=1, return_inverse=True)
    shortest = np.full(distinct.shape[1], np.inf)
    np.minimum.at(shortest, index.ravel(), seconds)
    slopes = np.array([max(0.0, float(((shortest - distinct[0] * alpha) / distinct[1]).min())) for alpha in tried])
    waiting = np.maximum(seconds.mean() - rounds.mean() * tried - moved.mean() * slopes, 0.0)
    usual = waiting.min() + _SCATTER * seconds.mean()
    likely = np.exp((waiting.min() - waiting) * len(seconds) / usual)
    drawn = np.append(waiting.argmin(), random.choice(_ALPHAS, REPLICATES, p=likely / likely.sum()))
    return FittedLink(tried[drawn], slopes[drawn])


def link_from_log(rows: Sequence[AllReduce], workers: int) -> FittedLink:
    """Return α and β of a ring, fitted to another program's log of all-reduces."""
    sizes, seconds = (np.array([getattr(row, name) for row in rows], float) for name in ("message_bytes", "seconds"))
    count = len(rows)
    collectives = Transfers(
        np.full(count, float(workers)), np.full(count, 2.0), sizes, seconds, np.ones(count, np.bool_)
    )
    return replace(_fitted(collectives, RING, generator(0, "log", count)), source=LOG)


def _design(of: Transfers, law: ReductionLaw) -> Reals:
    """Return the design matrix, the factors of α and β, [collectives, 2]."""
    latency, bandwidth = law.latency(of.workers), law.bandwidth(of.workers)
    return np.stack([of.rounds * latency / 2, of.rounds * bandwidth / 2 * of.bytes], -1)


def _fitted(of: Transfers, law: ReductionLaw, random: np.random.Generator) -> FittedLink:
    """Return α and β of a law by non-negative least squares, for the transfers and bootstrap resamples of them."""
    count, design = len(of.seconds), _design(of, law)
    drawn = np.concatenate([[np.arange(count)], random.integers(count, size=(REPLICATES, count))])
    alpha, beta = np.moveaxis(non_negative_fit(design[drawn], of.seconds[drawn]), -1, 0)
    return FittedLink(alpha, beta)
