"""Computing times at falling b: how often noise makes them impossible, and too many nodes look worthwhile.

A worker of n has b = 32/n samples, and t(b) = 0.1 + b/32: with free communication, 8 nodes are the most on which a
sample costs at most twice as much as on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from paired import Figure
from planted import NOISES, Noise, share, steps

from stallpoint.models.measured import measured
from stallpoint.models.possible import corrections
from stallpoint.models.stalling import worthwhile_nodes

TRIALS = 40
NODES = (1, 2, 4, 8, 16, 32)
BATCHES = [32 // nodes for nodes in reversed(NODES)]
WORTHWHILE, EFFICIENCY = 8, 0.5
BEYOND_ROUNDING = 1e-6


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
    figures = [figure for noise in NOISES for figure in _found(noise)]
    return figures, ["truth: computing times that cannot be", *(figure.line() for figure in figures)]


def _found(noise: Noise) -> Iterator[Figure]:
    impossible: dict[str, list[bool]] = {"as measured": [], "corrected": []}
    beyond: dict[str, list[bool]] = {"as measured": [], "corrected": []}
    for trial in range(TRIALS):
        points = measured(steps({"": lambda n: 0.1 + 1 / n}, NODES, noise, np.random.default_rng([4, trial])), trial)
        by_nodes = {one.point.nodes: one.times["iteration_time"] for one in points}
        times = np.stack([by_nodes[32 // b] for b in BATCHES], axis=-1)
        for name, seconds in (("as measured", times), ("corrected", times * corrections(BATCHES, times))):
            cost = seconds[0] / BATCHES
            impossible[name].append(bool((np.diff(np.log(cost)) > BEYOND_ROUNDING).any()))
            efficiency = (cost[-1] / cost)[::-1]
            beyond[name].append(float(worthwhile_nodes(NODES, efficiency, EFFICIENCY)) > WORTHWHILE)
    for name in impossible:
        wanted = ("0", "<= 0.1") if name == "corrected" else ("", "")
        yield share("truth", noise, f"superlinear t(b), {name}", impossible[name], wanted[0], TRIALS)
        yield share("truth", noise, f"too many nodes worthwhile, {name}", beyond[name], wanted[1], TRIALS)
