"""All-reduces whose times were planted, carried from up to 8 nodes to 64, and stalling points that follow from them.

Libraries whose algorithms are in the family of laws, and such as are not: a constant part, a floor, a switch that moves
with a rank's part of the message, links that contend from some count on, jobs that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from judging import Study, holds, shares
from paired import Figure

from stallpoint.base.curve import Curve
from stallpoint.base.statistics import estimate
from stallpoint.models.terms import communication
from stallpoint.models.terms.reductions import LawBySize

TRIALS = 8
NOISES = (0.02, 0.05)
BETWEEN = (0.03,)
"""Noise of laws that are not in the family."""
COUNTS = ((2,), (2, 4), (2, 4, 8))
FURTHEST = 64
WANTED, WRONG = ">= 0.85", "<= 0.05"
SIZES = 2.0 ** np.arange(10, 27, 2)
ALPHA, BETA = 20e-6, 1e-9
VISITS, SAMPLES = 4, 3
PLANTED = {
    "ring": LawBySize(("ring",)),
    "doubling to 16 KiB, Rabenseifner": LawBySize(("recursive-doubling", "rabenseifner"), (2.0**14 + 1,)),
    "binary tree": LawBySize(("binary-tree",)),
}
THRESHOLD = 0.1
SENT = np.where(SIZES < 2**19, 100.0, 4.0)
"""Messages of each size in an iteration: at 64 nodes small ones take about as long as large ones."""
COMPUTING = (2.0, 5.0, 12.0)
"""Of one node in an iteration, s: each stalls elsewhere."""


def of_law(law: LawBySize) -> Callable[[int], np.ndarray]:
    """The truth at `SIZES`, by nodes."""
    return lambda nodes: seconds(law, nodes)


def seconds(law: LawBySize, nodes: int) -> np.ndarray:
    """The truth of a law at `SIZES`."""
    latency, bandwidth = law.factors(np.array(float(nodes)), SIZES)
    return np.asarray(ALPHA * latency + BETA * bandwidth * SIZES)


def ring(nodes: int, contention: float = 1.0) -> np.ndarray:
    """A plain ring, whose links carry so many times less."""
    return 2 * (nodes - 1) * (ALPHA + contention * BETA * SIZES / nodes)


def doubling(nodes: int) -> np.ndarray:
    """Recursive doubling."""
    return np.ceil(np.log2(nodes)) * (ALPHA + BETA * SIZES)


@dataclass(frozen=True)
class Kind:
    """All-reduces that were planted."""

    truth: Callable[[int], np.ndarray]
    """Seconds at `SIZES`, by nodes."""
    jobs: float = 0.0
    """Standard deviation of what each node count's job has of its own."""
    wanted: str = WANTED
    seen: int = 1
    """Node counts without which nothing tells of it."""
    noises: Sequence[float] = BETWEEN


KINDS: Mapping[str, Kind] = {
    **{name: Kind(of_law(law), noises=NOISES) for name, law in PLANTED.items()},
    "constant": Kind(lambda nodes: 150e-6 + ring(nodes)),
    "floor": Kind(lambda nodes: np.maximum(150e-6, ring(nodes))),
    "switch at 8 KiB a rank": Kind(lambda nodes: np.where(SIZES / nodes < 2.0**13 + 1, doubling(nodes), ring(nodes))),
    "contention beyond 4": Kind(lambda nodes: ring(nodes, np.sqrt(max(1.0, nodes / 4))), seen=3),
    "jobs 5 % apart": Kind(ring, jobs=0.05),
}


def studies() -> Iterator[Study]:
    """Coverage, half width and median error at 64 nodes, all sizes together, and wrong verdicts, for each kind."""
    for name, kind in KINDS.items():
        for noise in kind.noises:
            for counts in COUNTS:
                yield partial(_study, name, kind, noise, counts)


def _study(name: str, kind: Kind, noise: float, counts: Sequence[int]) -> Iterator[Figure]:
    truth = kind.truth(FURTHEST)
    held, errors, widths, wrong = [], [], [], []
    for trial in range(TRIALS):
        random = np.random.default_rng([64, trial])
        rows = measured(kind.truth, counts, noise, random, kind.jobs)
        ((_, links),) = communication.fit(rows, seed=trial).items()
        found = communication.all_reduce_seconds(links.at(FURTHEST), FURTHEST, SIZES)
        ends = np.array([estimate(found[:, place])[1:] for place in range(len(SIZES))])
        held += [holds(found[:, place], truth[place]) for place in range(len(SIZES))]
        widths.append(np.log(ends[:, 1] / ends[:, 0]) / 2)
        errors.append(np.abs(found[0] / truth - 1))
        wrong += [_wrong(kind, links, computing) for computing in COMPUTING]
    case = f"{name}, {', '.join(map(str, counts))} nodes, {noise:.0%}"
    tells = len(counts) >= kind.seen
    wanted = {"times at 64": kind.wanted, "wrong verdicts": WRONG} if tells else {}
    yield from shares(case, {"times at 64": held, "wrong verdicts": wrong}, wanted, TRIALS)
    for quantity, values in {"half width at 64": widths, "error at 64": errors}.items():
        low, median, high = np.quantile(np.median(values, axis=1), (0.05, 0.5, 0.95))
        limit = "<= 0.1" if quantity == "error at 64" and name in PLANTED and len(counts) == len(COUNTS) else ""
        yield Figure("truth", case, quantity, median, low, high, limit)


def _wrong(kind: Kind, links: communication.Communication, computing: float) -> bool:
    """Whether a verdict on a network is given, and is not true; it computes and then sends `SENT`."""
    nodes = [2**power for power in range(1, 8)]
    truth = {n: n / (computing + n * float(SENT @ kind.truth(n))) for n in nodes}
    rates = {}
    for n in nodes:
        sent = communication.all_reduce_seconds(links.at(n), n, SIZES) @ SENT
        rates[n] = n / (computing + n * sent)
    stalls = (n for n in nodes[:-1] if truth[2 * n] < (1 + THRESHOLD) * truth[n])
    said, ranks = Curve(rates, threshold=THRESHOLD).stall.verdict
    return said != "undecided" and ranks != next(stalls, nodes[-1])


def measured(
    truth: Callable[[int], np.ndarray],
    counts: Sequence[int],
    noise: float,
    random: np.random.Generator,
    jobs: float = 0.0,
) -> pd.DataFrame:
    """Rows of the collectives table. Half the variance between visits is common to all sizes of a visit."""
    frames = []
    for nodes in counts:
        shape = VISITS, SAMPLES, len(SIZES)
        logs = noise * np.sqrt(0.5) * random.standard_normal((VISITS, 1, 1))
        logs = logs + noise * np.sqrt(0.5) * random.standard_normal((VISITS, 1, len(SIZES)))
        times = truth(nodes) * np.exp(logs + noise / 2 * random.standard_normal(shape))
        if jobs:
            times = times * np.exp(jobs * random.standard_normal())
        visit, sample, size = np.indices(shape).reshape(3, -1)
        frames.append(pd.DataFrame({
            "hardware": "cpu", "backend": "mpi", "reduction": "library", "operation": "all-reduce",
            "nodes": nodes, "ranks": nodes, "cell": f"collectives/nodes~{nodes}", "repeat": 1,
            "visit": visit + 1, "rank": 0, "sample": sample,
            "warmup": False, "calls": 1, "message_bytes": SIZES[size].astype(int), "seconds": times.ravel(),
        }))  # fmt: skip
    return pd.concat(frames, ignore_index=True)
