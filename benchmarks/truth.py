"""Conclusions whose answers were planted: how often intervals hold the truth, and how often a verdict is wrong.

Made-up measurements, with a scatter between jobs, between visits and between iterations, go through the same functions
as real ones. Coverage is that of 90 % intervals; a wrong verdict is one that is decisive and not true. What is carried
to more nodes has its own: `truth_laws` for all-reduces, `truth_scaling` for rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import truth_laws
import truth_scaling
from paired import Figure
from planted import COVERAGE, holds, shares

from stallpoint.models.controls import table as controls
from stallpoint.models.measured import TIMES, Measured, measured
from stallpoint.models.prediction import Predicted, ScalingCurve
from stallpoint.models.stalling import table as stalling

TRIALS = 100
NODES = (1, 2, 4, 8, 16, 32)
THRESHOLD = 0.1
WANTED = {
    "iteration times": COVERAGE,
    "speedups": COVERAGE,
    "verdict wrong: stalls at 8": "<= 0.1",
    "verdict wrong: scales to 32": "<= 0.1",
    "A/A controls disagree": "<= 0.05",
}


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and how often was measured."""

    name: str
    jobs: float = 0.0
    visits: float = 0.0
    iterations: float = 0.02
    repeats: int = 1
    of_job: int = 4
    """Visits of each job."""
    of_visit: int = 3
    """Iterations of each visit."""
    unequal: bool = False
    """Every cell has its own scatter between visits, from a fifth of `visits` to all of it."""
    spells: float = 0.0
    """Part of the visits that fall into a slow spell, which makes them 15 % longer."""


NOISES = (
    Noise("quiet: visits 0.5 %", visits=0.005, iterations=0.01),
    Noise("visits 3 %", visits=0.03),
    Noise("visits 10 %", visits=0.1, iterations=0.05),
    Noise("visits 2 to 10 %, each cell its own", visits=0.1, unequal=True),
    Noise("slow spells in a fifth of the visits", visits=0.02, spells=0.2),
    Noise("two visits of 3 %", visits=0.03, of_job=2),
    Noise("one visit of five iterations, jobs 10 %", jobs=0.1, iterations=0.05, of_job=1, of_visit=5),
    Noise("four jobs 10 % apart", jobs=0.1, visits=0.02, repeats=4, of_job=2),
)


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
    figures: list[Figure] = []
    lines = ["truth: answers that were planted"]
    for study in (*map(_study, NOISES), truth_laws.figures(), truth_scaling.figures()):
        found = list(study)
        figures += found
        lines += [figure.line() for figure in found]
    return figures, lines


def _study(noise: Noise) -> Iterator[Figure]:
    """Of `TRIALS` studies of three curves: one that stalls at 8, one that scales throughout, and two presets alike."""
    truths = {"stalls at 8": amdahl(stall=8), "scales": amdahl(stall=1000), "scales, too": amdahl(stall=1000)}
    counts: dict[str, list[bool]] = {}
    for trial in range(TRIALS):
        random = np.random.default_rng([2016, trial])
        points = measured(_steps(truths, noise, random), seed=trial)
        curves = list(_curves(points))
        for name, curve in zip(truths, curves, strict=True):
            truth = truths[name]
            for nodes, one in curve.measured.items():
                _count(counts, "iteration times", holds(one.times["iteration_time"], truth(nodes)))
                if nodes > 1:
                    _count(counts, "speedups", holds(curve.speedup(nodes, "measured"), truth(1) / truth(nodes)))
        rows = dict(zip(truths, stalling(curves, THRESHOLD, 0.5), strict=True))
        _count(counts, "verdict wrong: stalls at 8", _wrong(rows["stalls at 8"], 8))
        _count(counts, "verdict given: stalls at 8", rows["stalls at 8"]["verdict"] == "stalls")
        _count(counts, "verdict wrong: scales to 32", rows["scales"]["verdict"] == "stalls")
        _count(counts, "verdict given: scales to 32", rows["scales"]["verdict"] == "scales")
        alike = [row["agrees"] for row in controls(points)]
        _count(counts, "A/A controls disagree", not all(alike))
    yield from shares(noise.name, counts, WANTED, TRIALS)


def amdahl(stall: int) -> Callable[[int], float]:
    """Iteration time by nodes, of which doubling gains `THRESHOLD` exactly between `stall`/2 and `stall`, nearly."""
    # (s + p/n) / (s + p/2n) = 1.1 at n = stall/sqrt(2), with s + p = 1
    nodes = stall / np.sqrt(2)
    serial = (1 - (1 + THRESHOLD) / 2) / nodes / (THRESHOLD + (1 - (1 + THRESHOLD) / 2) / nodes)
    return lambda n: float(serial + (1 - serial) / n)


def _steps(truths: Mapping[str, Callable[[int], float]], noise: Noise, random: np.random.Generator) -> pd.DataFrame:
    """Rows as `measured.over_ranks` gives them."""
    frames = []
    for place, truth in enumerate(truths.values()):
        for nodes in NODES:
            seconds = truth(nodes) * _noisy(noise, random)
            repeat, visit, iteration = np.indices(seconds.shape).reshape(3, -1)
            frame = pd.DataFrame({"repeat": repeat + 1, "visit": visit + 1, "iteration": iteration})
            point = {
                "network": "made-up", "hardware": "cpu", "storage": "local", "scaling": "strong",
                "sync": f"preset {place}", "prefetch": 0, "batch": 32, "nodes": nodes, "ranks": nodes,
                "global_batch": 32, "worker_batch": 32 // nodes,
            }  # fmt: skip
            # Curves on one worker of which one scales do the same: only the second and the third are alike.
            point["network"] = "other" if place == 0 else "made-up"
            times = dict.fromkeys((*TIMES, "matrix", "fully-connected"), 0.0)
            frame = frame.assign(**point, **times, cell=f"{place}/{nodes}")
            frames.append(frame.assign(forward=seconds.ravel(), iteration_time=seconds.ravel()))
    return pd.concat(frames, ignore_index=True)


def _noisy(noise: Noise, random: np.random.Generator) -> np.ndarray:
    """Factors by repeat, visit and iteration, whose logarithms are 0 in the mean (slow spells aside)."""
    shape = (noise.repeats, noise.of_job, noise.of_visit)
    visits = noise.visits * (np.exp(random.uniform(np.log(0.2), 0)) if noise.unequal else 1.0)
    logs = noise.jobs * random.standard_normal((shape[0], 1, 1)) + visits * random.standard_normal((*shape[:2], 1))
    logs = logs + noise.iterations * random.standard_normal(shape)
    slow = random.random((*shape[:2], 1)) < noise.spells
    # In the mean the machine is as fast as its truth: spells are part of it.
    return np.asarray(np.exp(logs) * np.where(slow, 1.15, 1.0) / (1 + 0.15 * noise.spells))


def _curves(points: Sequence[Measured]) -> Iterator[ScalingCurve]:
    for sync in sorted({one.point.sync for one in points}):
        here = {one.point.nodes: one for one in points if one.point.sync == sync}
        none = {
            nodes: Predicted(one.point, "eq. 2", "measured at b", {**one.times, **_unknown(one)}, None, frozenset())
            for nodes, one in here.items()
        }
        yield ScalingCurve(here, none)


def _unknown(one: Measured) -> dict[str, np.ndarray]:
    zero = 0 * one.times["iteration_time"]
    return {"latency_share": zero, "data": zero, "straggling": zero}


def _count(counts: dict[str, list[bool]], quantity: str, held: object) -> None:
    counts.setdefault(quantity, []).append(bool(held))


def _wrong(row: Mapping[str, object], stall: int) -> bool:
    """Whether a decisive verdict is not the planted one."""
    said, nodes = row["verdict"], int(str(row["verdict_nodes"]))
    return (said == "stalls" and nodes != stall) or (said == "scales" and nodes > stall)
