"""Conclusions whose answers were planted: how often intervals hold the truth, and how often a verdict is wrong.

Made-up measurements, with a scatter between jobs, between visits and between iterations, go through the same functions
as real ones. Coverage is that of 90 % intervals; a wrong verdict is one that is decisive and not true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import truth_causes
from noises import NOISES, TRIALS, Noise
from paired import Figure

from stallpoint.models.controls import table as controls
from stallpoint.models.measured import TIMES, Measured, measured
from stallpoint.models.prediction import Predicted, ScalingCurve
from stallpoint.models.stalling import table as stalling
from stallpoint.models.statistics import estimate

NODES = (1, 2, 4, 8, 16, 32)
THRESHOLD = 0.1


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
    figures: list[Figure] = []
    lines = ["truth: answers that were planted"]
    for noise in NOISES:
        found = [*_study(noise), *truth_causes.study(noise)]
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
                _count(counts, "iteration times", _holds(one.times["iteration_time"], truth(nodes)))
                if nodes > 1:
                    _count(counts, "speedups", _holds(curve.speedup(nodes, "measured"), truth(1) / truth(nodes)))
        rows = dict(zip(truths, stalling(curves, THRESHOLD, 0.5), strict=True))
        _count(counts, "verdict wrong: stalls at 8", _wrong(rows["stalls at 8"], 8))
        _count(counts, "verdict given: stalls at 8", rows["stalls at 8"]["verdict"] == "stalls")
        _count(counts, "verdict wrong: scales to 32", rows["scales"]["verdict"] == "stalls")
        _count(counts, "verdict given: scales to 32", rows["scales"]["verdict"] == "scales")
        alike = [row["agrees"] for row in controls(points)]
        _count(counts, "A/A controls disagree", not all(alike))
    for quantity, found in counts.items():
        wanted = "0.85-0.95" if quantity in ("iteration times", "speedups") else ""
        wanted = "<= 0.1" if "wrong" in quantity else "<= 0.05" if "A/A" in quantity else wanted
        yield noise.share(quantity, found, wanted)


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
            seconds = truth(nodes) * noise.factors(random)
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


def _holds(ensemble: np.ndarray, truth: float) -> bool:
    _, low, high = estimate(ensemble)
    return low <= truth <= high


def _wrong(row: Mapping[str, object], stall: int) -> bool:
    """Whether a decisive verdict is not the planted one."""
    said, nodes = row["verdict"], int(str(row["verdict_nodes"]))
    return (said == "stalls" and nodes != stall) or (said == "scales" and nodes > stall)
