"""Made-up measurements of scaling curves whose truth is known, which scatter between jobs, visits and iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from stallpoint.base.measured import TIMES, Measured
from stallpoint.models.iteration.curve_points import CurvePoints, Predicted

THRESHOLD = 0.1

Truth: TypeAlias = Callable[[int], float]
"""Iteration time by nodes."""


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

    def factors(self, random: np.random.Generator) -> np.ndarray:
        """Factors by repeat, visit and iteration, whose logarithms are 0 in the mean (slow spells aside)."""
        shape = (self.repeats, self.of_job, self.of_visit)
        visits = self.visits * (np.exp(random.uniform(np.log(0.2), 0)) if self.unequal else 1.0)
        logs = self.jobs * random.standard_normal((shape[0], 1, 1)) + visits * random.standard_normal((*shape[:2], 1))
        logs = logs + self.iterations * random.standard_normal(shape)
        slow = random.random((*shape[:2], 1)) < self.spells
        # In the mean the machine is as fast as its truth: spells are part of it.
        return np.asarray(np.exp(logs) * np.where(slow, 1.15, 1.0) / (1 + 0.15 * self.spells))


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


def amdahl(stall: int) -> Truth:
    """Iteration time by nodes, of which doubling gains `THRESHOLD` exactly between `stall`/2 and `stall`, nearly."""
    # (s + p/n) / (s + p/2n) = 1.1 at n = stall/sqrt(2), with s + p = 1
    nodes = stall / np.sqrt(2)
    serial = (1 - (1 + THRESHOLD) / 2) / nodes / (THRESHOLD + (1 - (1 + THRESHOLD) / 2) / nodes)
    return lambda n: float(serial + (1 - serial) / n)


def steps(
    truths: Mapping[str, Truth], counts: Sequence[int], noise: Noise, random: np.random.Generator
) -> pd.DataFrame:
    """Rows as `measured.step_rows` gives them; curves scale strongly over `counts`."""
    frames, whole = [], max(32, *counts)
    for place, truth in enumerate(truths.values()):
        for nodes in counts:
            seconds = truth(nodes) * noise.factors(random)
            repeat, visit, iteration = np.indices(seconds.shape).reshape(3, -1)
            frame = pd.DataFrame({"repeat": repeat + 1, "visit": visit + 1, "iteration": iteration})
            point = {
                "network": "made-up", "hardware": "cpu", "storage": "local", "scaling": "strong",
                "sync": f"preset {place}", "prefetch": 0, "batch": whole,
                "workers_per_node": 1, "nodes": nodes, "ranks": nodes,
                "global_batch": whole, "worker_batch": whole // nodes,
            }  # fmt: skip
            # Curves on one worker of which one scales do the same: only the second and the third are alike.
            point["network"] = "other" if place == 0 else "made-up"
            times = dict.fromkeys((*TIMES, "matrix", "fully_connected"), 0.0)
            frame = frame.assign(**point, **times, cell=f"{place}/{nodes}")
            frames.append(frame.assign(forward=seconds.ravel(), iteration_time=seconds.ravel()))
    return pd.concat(frames, ignore_index=True)


def curves(points: Sequence[Measured]) -> Iterator[CurvePoints]:
    """The curve of each truth, in their order; nothing is predicted."""
    for sync in sorted({one.point.sync for one in points}):
        here = {one.point.nodes: one for one in points if one.point.sync == sync}
        none = {
            nodes: Predicted(one.point, "eq. 2", "measured at b", one.parts, latency_share=0 * one.parts.iteration_time)
            for nodes, one in here.items()
        }
        yield CurvePoints(here, none)
