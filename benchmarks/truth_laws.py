"""All-reduces of libraries whose algorithms were planted, carried from up to 8 nodes to 64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from judging import holds, shares
from paired import Figure

from stallpoint.models.terms import communication
from stallpoint.models.terms.reductions import BySize

TRIALS = 50
NOISES = (0.02, 0.05)
COUNTS = ((2,), (2, 4), (2, 4, 8))
FURTHEST = 64
WANTED = ">= 0.85"
SIZES = 2.0 ** np.arange(10, 27, 2)
ALPHA, BETA = 20e-6, 1e-9
VISITS, SAMPLES = 4, 3
PLANTED = {
    "ring": BySize(("ring",)),
    "doubling to 16 KiB, Rabenseifner": BySize(("recursive-doubling", "rabenseifner"), (2.0**14 + 1,)),
    "binary tree": BySize(("binary-tree",)),
}


def figures() -> Iterator[Figure]:
    """Coverage and median error at 64 nodes, all sizes together, for each planted law, noise and set of counts."""
    for name, law in PLANTED.items():
        for noise in NOISES:
            for counts in COUNTS:
                yield from _study(name, law, noise, counts)


def seconds(law: BySize, nodes: int) -> np.ndarray:
    """The truth at `SIZES`."""
    latency, bandwidth = law.factors(np.array(float(nodes)), SIZES)
    return np.asarray(ALPHA * latency + BETA * bandwidth * SIZES)


def _study(name: str, law: BySize, noise: float, counts: Sequence[int]) -> Iterator[Figure]:
    truth = seconds(law, FURTHEST)
    held, errors = [], []
    for trial in range(TRIALS):
        random = np.random.default_rng([64, trial])
        rows = measured(lambda nodes: seconds(law, nodes), counts, noise, random)
        ((_, links),) = communication.fit(rows, seed=trial).items()
        found = communication.all_reduce_seconds(links.at(FURTHEST), FURTHEST, SIZES)
        held += [holds(found[:, place], truth[place]) for place in range(len(SIZES))]
        errors.append(np.abs(found[0] / truth - 1))
    case = f"{name}, {', '.join(map(str, counts))} nodes, {noise:.0%}"
    yield from shares(case, {"times at 64": held}, {"times at 64": WANTED}, TRIALS)
    low, median, high = np.quantile(np.median(errors, axis=1), (0.05, 0.5, 0.95))
    wanted = "<= 0.1" if len(counts) == len(COUNTS) else ""
    yield Figure("truth", case, "error at 64", median, low, high, wanted)


def measured(
    truth: Callable[[int], np.ndarray], counts: Sequence[int], noise: float, random: np.random.Generator
) -> pd.DataFrame:
    """Rows of the collectives table. Half the variance between visits is common to all sizes of a visit."""
    frames = []
    for nodes in counts:
        shape = VISITS, SAMPLES, len(SIZES)
        logs = noise * np.sqrt(0.5) * random.standard_normal((VISITS, 1, 1))
        logs = logs + noise * np.sqrt(0.5) * random.standard_normal((VISITS, 1, len(SIZES)))
        times = truth(nodes) * np.exp(logs + noise / 2 * random.standard_normal(shape))
        visit, sample, size = np.indices(shape).reshape(3, -1)
        frames.append(pd.DataFrame({
            "hardware": "cpu", "backend": "mpi", "reduction": "library", "operation": "all-reduce",
            "nodes": nodes, "ranks": nodes, "cell": f"collectives/nodes~{nodes}", "repeat": 1,
            "visit": visit + 1, "rank": 0, "sample": sample,
            "warmup": False, "messages": 1, "message_bytes": SIZES[size].astype(int), "seconds": times.ravel(),
        }))  # fmt: skip
    return pd.concat(frames, ignore_index=True)
