"""Made-up measurements of scaling curves whose truth is known, with noises as machines have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from noises import Noise

from stallpoint.models.base.measured import TIMES, Measured
from stallpoint.models.iteration.curve import Predicted, ScalingCurve

THRESHOLD = 0.1

Truth: TypeAlias = Callable[[int], float]
"""Iteration time by nodes."""


def amdahl(stall: int) -> Truth:
    """Iteration time by nodes, of which doubling gains `THRESHOLD` exactly between `stall`/2 and `stall`, nearly."""
    # (s + p/n) / (s + p/2n) = 1.1 at n = stall/sqrt(2), with s + p = 1
    nodes = stall / np.sqrt(2)
    serial = (1 - (1 + THRESHOLD) / 2) / nodes / (THRESHOLD + (1 - (1 + THRESHOLD) / 2) / nodes)
    return lambda n: float(serial + (1 - serial) / n)


def steps(
    truths: Mapping[str, Truth], counts: Sequence[int], noise: Noise, random: np.random.Generator
) -> pd.DataFrame:
    """Rows as `measured.over_ranks` gives them; curves scale strongly over `counts`."""
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


def curves(points: Sequence[Measured]) -> Iterator[ScalingCurve]:
    """The curve of each truth, in their order; nothing is predicted."""
    for sync in sorted({one.point.sync for one in points}):
        here = {one.point.nodes: one for one in points if one.point.sync == sync}
        none = {
            nodes: Predicted(one.point, "eq. 2", "measured at b", one.parts, latency_share=0 * one.parts.iteration_time)
            for nodes, one in here.items()
        }
        yield ScalingCurve(here, none)
