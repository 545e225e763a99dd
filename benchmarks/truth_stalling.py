"""Stalling points that were planted: how often the interval holds them, and how often a verdict is given, and wrong.

Each truth is measured `TRIALS` times with each noise. A verdict is wrong if it is decisive and not true. Two truths
follow Amdahl's law; the others do what no law, or only one, describes, so that a fit of laws could be sure and wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from judging import Study, shares
from paired import Figure
from planted import NOISES, THRESHOLD, Noise, Truth, amdahl, curves, steps

from stallpoint.base.measured import measured
from stallpoint.models.answers.controls import trusted
from stallpoint.models.answers.stalling import tables

TRIALS = 40
"""A fit of a curve takes 0.1 s."""
SIX, NINE = tuple(2**power for power in range(6)), tuple(2**power for power in range(9))


@dataclass(frozen=True)
class Planted:
    """A truth, and where it was measured."""

    name: str
    truth: Truth
    nodes: Sequence[int] = SIX
    coverage: str = ""
    """What is wanted of the interval."""

    @property
    def stall(self) -> int:
        """Where it stalls; the largest node count where it does not."""
        stalls = (n for n in self.nodes[:-1] if self.truth(n) < (1 + THRESHOLD) * self.truth(2 * n))
        return next(stalls, self.nodes[-1])


TRUTHS = (
    Planted("Amdahl, stalls at 8", amdahl(stall=8), coverage=">= 0.85"),
    Planted("Amdahl, stalls at 128", amdahl(stall=128), NINE, coverage=">= 0.85"),
    Planted("Amdahl, scales to 32", amdahl(stall=1000), coverage=">= 0.85"),
    Planted("ring with latency", lambda n: 1 / n + 0.06 * 2 * (n - 1) / n + 0.003 * 2 * (n - 1)),
    Planted("storage feeds 11 nodes", lambda n: max(1 / n, 1 / 11) + 0.002),
    Planted("slow link beyond 4 nodes", lambda n: 1 / n + 0.01 + 0.12 * (n > 4)),
    Planted("2 nodes gain nothing, 4 do", lambda n: {1: 1.0, 2: 0.97, 4: 0.5, 8: 0.28, 16: 0.16, 32: 0.1}[n]),
)


def studies() -> Iterator[Study]:
    """How often each stalling point is held, given and missed, and the median estimate, for each noise."""
    for noise in NOISES:
        for planted in TRUTHS:
            yield partial(_found, planted, noise)


def _found(planted: Planted, noise: Noise) -> Iterator[Figure]:
    verdicts, held, medians = [], [], []
    for trial in range(TRIALS):
        points = measured(steps({"": planted.truth}, planted.nodes, noise, np.random.default_rng([128, trial])), trial)
        (row,), _ = tables(map(trusted, curves(points)), THRESHOLD, 0.5)
        verdicts.append((row["verdict"], row["verdict_ranks"]))
        held.append(float(str(row["stall_ranks_low"])) <= planted.stall <= float(str(row["stall_ranks_high"])))
        medians.append(float(str(row["stall_ranks"])))
    true = ("scales" if planted.stall == planted.nodes[-1] else "stalls", planted.stall)
    wrong = [verdict != true and verdict[0] in ("stalls", "scales") for verdict in verdicts]
    found = {"held": held, "given": [verdict == true for verdict in verdicts], "wrong": wrong}
    wanted = {"held": planted.coverage, "wrong": "<= 0.1"}
    yield from shares(
        noise.name,
        {f"{planted.name}: {what}": answers for what, answers in found.items()},
        {f"{planted.name}: {what}": limit for what, limit in wanted.items()},
        TRIALS,
    )
    low, median, high = np.quantile(medians, (0.05, 0.5, 0.95), method="inverted_cdf")
    yield Figure("truth", noise.name, f"{planted.name}: median", median, low, high, str(planted.stall))
