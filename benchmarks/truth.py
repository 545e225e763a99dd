"""Conclusions whose answers were planted: how often intervals hold the truth.

Made-up measurements (`planted`), with a scatter between jobs, between visits and between iterations, go through the
same functions as real ones. Coverage is that of 90 % intervals. Computing times (`truth_computing`) and stalling
points (`truth_stalling`) follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import truth_computing
import truth_stalling
from paired import Figure
from planted import NOISES, Noise, amdahl, curves, share, steps

from stallpoint.models.controls import table as controls
from stallpoint.models.measured import measured
from stallpoint.models.statistics import estimate

TRIALS = 100
NODES = (1, 2, 4, 8, 16, 32)


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
    figures: list[Figure] = []
    lines = ["truth: answers that were planted"]
    for noise in NOISES:
        found = list(_study(noise))
        figures += found
        lines += [figure.line() for figure in found]
    for topic in (truth_computing, truth_stalling):
        more, further = topic.benchmark(scratch, count)
        figures, lines = figures + more, lines + further
    return figures, lines


def _study(noise: Noise) -> Iterator[Figure]:
    """Of `TRIALS` studies of three curves: one that stalls at 8, and two presets alike that scale throughout."""
    truths = {"stalls at 8": amdahl(stall=8), "scales": amdahl(stall=1000), "scales, too": amdahl(stall=1000)}
    counts: dict[str, list[bool]] = {}
    for trial in range(TRIALS):
        points = measured(steps(truths, NODES, noise, np.random.default_rng([2016, trial])), seed=trial)
        for name, curve in zip(truths, curves(points), strict=True):
            truth = truths[name]
            for nodes, one in curve.measured.items():
                _count(counts, "iteration times", _holds(one.times["iteration_time"], truth(nodes)))
                if nodes > 1:
                    _count(counts, "speedups", _holds(curve.speedup(nodes, "measured"), truth(1) / truth(nodes)))
        alike = [row["agrees"] for row in controls(points)]
        _count(counts, "A/A controls disagree", not all(alike))
    for quantity, found in counts.items():
        wanted = "0.85-0.95" if quantity in ("iteration times", "speedups") else "<= 0.05"
        yield share("truth", noise, quantity, found, wanted, TRIALS)


def _count(counts: dict[str, list[bool]], quantity: str, held: object) -> None:
    counts.setdefault(quantity, []).append(bool(held))


def _holds(ensemble: np.ndarray, truth: float) -> bool:
    _, low, high = estimate(ensemble)
    return low <= truth <= high
