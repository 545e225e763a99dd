"""Computing times at falling b: how often noise makes them impossible, and too many nodes look worthwhile.

A worker of n has b = 32/n samples, and t(b) = 0.1 + b/32: with free communication, 8 nodes are the most on which a
sample costs at most twice as much as on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from judging import Study, shares
from paired import Figure
from planted import NOISES, Noise, steps

from stallpoint.base.measured import measured
from stallpoint.models.answers.stalling import cost_efficient_ranks
from stallpoint.models.terms.compute import corrections

TRIALS = 40
NODES = (1, 2, 4, 8, 16, 32)
BATCHES = [32 // nodes for nodes in reversed(NODES)]
WORTHWHILE, EFFICIENCY = 8, 0.5
BEYOND_ROUNDING = 1e-6


def studies() -> Iterator[Study]:
    """How often times cannot be, and too many nodes look worthwhile, with and without the correction."""
    for noise in NOISES:
        yield partial(_found, noise)


def _found(noise: Noise) -> Iterator[Figure]:
    impossible: dict[str, list[bool]] = {"as measured": [], "corrected": []}
    beyond: dict[str, list[bool]] = {"as measured": [], "corrected": []}
    for trial in range(TRIALS):
        points = measured(steps({"": lambda n: 0.1 + 1 / n}, NODES, noise, np.random.default_rng([4, trial])), trial)
        by_nodes = {one.point.nodes: one.parts.iteration_time for one in points}
        times = np.stack([by_nodes[32 // b] for b in BATCHES], axis=-1)
        for name, seconds in (("as measured", times), ("corrected", times * corrections(BATCHES, times))):
            cost = seconds[0] / BATCHES
            impossible[name].append(bool((np.diff(np.log(cost)) > BEYOND_ROUNDING).any()))
            efficiency = (cost[-1] / cost)[::-1]
            beyond[name].append(float(cost_efficient_ranks(NODES, efficiency, EFFICIENCY)) > WORTHWHILE)
    wanted = {"superlinear t(b), corrected": "<= 0.05", "too many nodes worthwhile, corrected": "<= 0.1"}
    for what, answers in (("superlinear t(b)", impossible), ("too many nodes worthwhile", beyond)):
        yield from shares(noise.name, {f"{what}, {name}": found for name, found in answers.items()}, wanted, TRIALS)
