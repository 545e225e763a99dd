"""Conclusions whose answers were planted: how often intervals hold the truth.

Made-up measurements (`planted`), with a scatter between jobs, between visits and between iterations, go through the
same functions as real ones. Coverage is that of 90 % intervals. Computing times follow (`truth_computing`), stalling
points (`truth_stalling`), causes (`truth_causes`), claims (`truth_claims`), steps to a target (`truth_steps`), shares
of an iteration (`truth_shares`), what visits tell (`truth_visits`) and what was chosen, or is wrong
(`truth_choices`), then what is carried to more nodes: all-reduces (`truth_laws`) and rates (`truth_scaling`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import truth_causes
import truth_choices
import truth_claims
import truth_computing
import truth_laws
import truth_scaling
import truth_shares
import truth_stalling
import truth_steps
import truth_visits
from judging import COVERAGE, at_once, holds, shares
from paired import Figure
from planted import NOISES, Noise, amdahl, curves, steps
from truth_table import tables

from stallpoint.base.measured import measured
from stallpoint.models.answers.controls import table as controls

NODES = (1, 2, 4, 8, 16, 32)
TRIALS = 100
WANTED = {"iteration times": COVERAGE, "speedups": COVERAGE, "A/A controls disagree": "<= 0.05"}


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
    figures: list[Figure] = []
    lines = ["truth: answers that were planted"]
    topics = (
        truth_computing, truth_stalling, truth_causes, truth_claims, truth_steps, truth_shares, truth_visits,
        truth_choices, truth_laws, truth_scaling,
    )  # fmt: skip
    for found in at_once([*(partial(_study, noise) for noise in NOISES), *chain(*(one.studies() for one in topics))]):
        figures += found
        lines += [figure.line() for figure in found]
    return figures, [*lines, "", *tables(figures)]


def _study(noise: Noise) -> Iterator[Figure]:
    """Of `TRIALS` studies of three curves: one that stalls at 8, and two presets alike that scale throughout."""
    truths = {"stalls at 8": amdahl(stall=8), "scales": amdahl(stall=1000), "scales, too": amdahl(stall=1000)}
    counts: dict[str, list[bool]] = {}
    for trial in range(TRIALS):
        points = measured(steps(truths, NODES, noise, np.random.default_rng([2016, trial])), seed=trial)
        for name, curve in zip(truths, curves(points), strict=True):
            truth = truths[name]
            for nodes, one in curve.measured.items():
                _count(counts, "iteration times", holds(one.parts.iteration_time, truth(nodes)))
                if nodes > 1:
                    _count(counts, "speedups", holds(curve.speedup(nodes, "measured"), truth(1) / truth(nodes)))
        alike = [row["agrees"] for row in controls(points)]
        _count(counts, "A/A controls disagree", not all(alike))
    yield from shares(noise.name, counts, WANTED, TRIALS)


def _count(counts: dict[str, list[bool]], quantity: str, held: object) -> None:
    counts.setdefault(quantity, []).append(bool(held))
