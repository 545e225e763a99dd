"""Iterations of a trace at other worker counts: its all-reduces by the law of their scheme, all else as traced.

Each worker keeps its mini-batch (weak scaling). An all-reduce takes α·f(p) + β·g(p)·m (`models.terms.reductions`), and
begins when its gradients are ready and the one before it has ended. One rank's trace does not tell how much of it was
waiting for other ranks. Waiting is never negative, so α + β·m lies below all messages, and as near to them as it can (a
deterministic frontier; Aigner & Chu 1968); what is beyond it stays as it was. Sizes that lie close together tell little
of α; it is at most what the shortest collective of any kind took for each of its rounds, and anything down to 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.models.answers.stall_probability import Stall
from stallpoint.models.base.statistics import REPLICATES, Ensemble, Reals, columns, generator
from stallpoint.models.terms.reductions import REDUCTION_LAWS, ReductionLaw
from stallpoint.traces.collectives import ALL_REDUCE, Collectives
from stallpoint.traces.iterations import Iterations

RING, TREE = REDUCTION_LAWS["ring"], REDUCTION_LAWS["rabenseifner"]
"""NCCL goes round a ring, or up and down double trees, whose rounds grow with log p and whose bytes do not."""
FURTHEST = 8
"""Times the traced workers up to which others are predicted: of links that were not traced nothing is known."""


class NotTold(LookupError):
    """The trace does not hold what a prediction needs; the message says what."""


@dataclass(frozen=True)
class Replay:
    """What predictions at any worker count take from a trace."""

    workers: int
    """p of the trace."""
    seconds: Reals
    """Iterations as traced, [iterations]."""
    messages: Sequence[Collectives]
    """All-reduces of each iteration."""
    alpha: Ensemble
    """Latency of a round, s."""
    beta: Ensemble
    """s/B."""
    drawn: npt.NDArray[np.int64]
    """The iteration that each replicate stands for, [1 + REPLICATES]."""
    trees: npt.NDArray[np.bool_]
    """Which replicates take trees rather than rings at other worker counts, [1 + REPLICATES]."""

    def iteration(self, workers: int, *, bytes_factor: float = 1.0, bandwidth_factor: float = 1.0) -> Ensemble:
        """Seconds of an iteration among so many workers, with so many times the bytes and the bandwidth."""
        changed = bytes_factor / bandwidth_factor
        found = np.empty(1 + REPLICATES)
        for replicate, place in enumerate(self.drawn):
            sent = self.messages[place]
            law = TREE if self.trees[replicate] else RING
            costs = self.alpha[replicate], self.beta[replicate]
            usual = _message_seconds(RING, self.workers, sent.bytes, *costs)
            waited = np.maximum(sent.seconds - usual, 0.0)
            there = _message_seconds(law, workers, changed * sent.bytes, *costs)
            before, after = _end(sent, waited + usual), _end(sent, there + waited if workers > 1 else 0 * usual)
            found[replicate] = self.seconds[place] + max(0.0, after) - max(0.0, before)
        return found


def _message_seconds(law: ReductionLaw, workers: int, sizes: npt.ArrayLike, alpha: float, beta: float) -> Reals:
    if workers < 2:
        return np.zeros(np.shape(sizes))
    p = np.array(float(workers))
    return np.asarray(alpha * law.latency(p) + beta * law.bandwidth(p) * np.asarray(sizes, np.float64))


def _end(sent: Collectives, seconds: Reals) -> float:
    """How long after it is needed the last message ends, s; below 0 where it ends before."""
    end = -np.inf
    for ready, of_message in zip(sent.ready, seconds, strict=True):
        end = max(end, float(ready)) + float(of_message)
    return end - float(sent.needed[-1])


def replay(sent: Collectives, found: Iterations, world_size: int, seed: int = 0) -> Replay:
    """Learn from the all-reduces of a data-parallel training; raises `NotTold`."""
    own = sent.where(np.array([kind == ALL_REDUCE for kind in sent.kind], np.bool_))
    own = own.where((own.group_size == world_size) | (own.group_size < 0))
    if world_size < 2 or not len(own):
        raise NotTold("no all-reduce among all workers was traced")
    if (own.bytes < 0).any():
        raise NotTold("the trace does not say how large its all-reduces are (PyTorch 2.2 or newer does)")
    of_iteration = [own.where(own.iteration == place) for place in range(len(found.seconds))]
    usual = int(np.median([len(of) for of in of_iteration]))
    chosen = [place for place, of in enumerate(of_iteration) if len(of) == usual and usual]
    messages = [of_iteration[place] for place in chosen]
    sizes = np.concatenate([of.bytes for of in messages]).astype(np.float64)
    times = np.concatenate([of.seconds for of in messages])
    random = generator(seed, "trace", len(own), float(times.sum()))
    alpha, beta = _frontier(sizes, times, world_size, _most_latency(sent, world_size), random)
    rings = all(name == "RING" for name in own.algorithm)
    trees = np.concatenate([[not rings], random.random(REPLICATES) < (0.5 if rings else 0.9)])
    picked = np.concatenate([[_median(found.seconds[chosen])], random.integers(len(chosen), size=REPLICATES)])
    return Replay(world_size, found.seconds[chosen], messages, alpha, beta, picked, trees)


def _median(seconds: Reals) -> int:
    return int(np.argsort(seconds, kind="stable")[(len(seconds) - 1) // 2])


_ROUNDS = {ALL_REDUCE: 2, "Broadcast": 1, "Reduce": 1, "AllGather": 1, "ReduceScatter": 1}
"""Rounds of a ring for each rank but one."""
_STEPS = 1024  # values of α that are tried
_SCATTER = 0.01  # of a message's time, beside what it waits


def _most_latency(sent: Collectives, workers: int) -> float:
    """The most that a round's latency can be, s: no collective can have ended sooner."""
    groups = np.where(sent.group_size > 1, sent.group_size, workers)
    rounds = np.array([_ROUNDS.get(kind, 0) for kind in sent.kind]) * (groups - 1)
    return float((sent.seconds[rounds > 0] / rounds[rounds > 0]).min())


def _frontier(
    sizes: Reals, seconds: Reals, workers: int, most: float, random: np.random.Generator
) -> tuple[Ensemble, Ensemble]:
    """α and β of a ring that lies below all messages and nearest to them.

    Waiting is taken to be exponentially distributed: replicates are drawn by what each α then leaves to wait for.
    """
    p = np.array(float(workers))
    rounds, moved = float(RING.latency(p)), float(RING.bandwidth(p)) * sizes
    tried = np.linspace(0, most, _STEPS)
    slopes = np.maximum(((seconds - rounds * tried[:, None]) / moved).min(-1), 0.0)
    waiting = np.maximum(seconds - rounds * tried[:, None] - slopes[:, None] * moved, 0.0).mean(-1)
    usual = waiting.min() + _SCATTER * seconds.mean()
    likely = np.exp((waiting.min() - waiting) * len(sizes) / usual)
    drawn = np.append(waiting.argmin(), random.choice(_STEPS, REPLICATES, p=likely / likely.sum()))
    return tried[drawn], slopes[drawn]


def worker_counts(workers: int) -> list[int]:
    """Those that are predicted: one and those traced, and their doublings up to `FURTHEST` times the traced ones."""
    doublings = (start * 2**power for start in (1, workers) for power in range((FURTHEST * workers).bit_length()))
    return sorted({count for count in doublings if count <= FURTHEST * workers})


def predictions(known: Replay, batch: int | None, threshold: float) -> dict[str, Any]:
    """Throughput at every of `worker_counts`, where doubling the workers stops paying, and what changes would gain.

    In samples/s where a worker's mini-batch is given, else in iterations of a worker.
    """
    seconds = {p: known.iteration(p) for p in worker_counts(known.workers)}
    rates = {p: (batch or 1) * p / of for p, of in seconds.items()}
    line = [p for p in rates if known.workers % p == 0 or p % known.workers == 0]
    gains = {p: np.log(rates[2 * p] / rates[p])[1:] for p in line if 2 * p in rates}
    stall = Stall.of(gains, 2 * max(gains), threshold)
    verdict, workers = stall.verdict
    most = max(seconds)
    return {
        "unit": "samples/s" if batch else "worker iterations/s",
        "workers": [
            {"workers": p, **columns("iteration_seconds", seconds[p]), **columns("throughput", rate)}
            for p, rate in rates.items()
        ],
        "stalling": {"verdict": verdict, "workers": workers, "probabilities": dict(stall.probabilities)},
        "what_if": [
            {"change": name, **columns("throughput_factor", seconds[most] / known.iteration(most, **changes))}
            for name, changes in CHANGES.items()
        ],
        "what_if_workers": most,
    }


CHANGES: Mapping[str, Mapping[str, float]] = {
    "half the bytes": {"bytes_factor": 0.5},
    "twice the bandwidth": {"bandwidth_factor": 2.0},
}
