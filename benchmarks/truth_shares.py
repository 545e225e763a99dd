"""Shares of an iteration whose parts were planted: each part differs from visit to visit by itself, too.

Six cells of a study; communication and waiting for data grow with the nodes, computing falls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from judging import COVERAGE, Study, holds, shares
from paired import Figure

from stallpoint.base.measured import TIMES, Measured, measured

TRIALS = 40
NODES = (1, 2, 4, 8, 16, 32)
ITERATIONS = 5


@dataclass(frozen=True)
class Apart:
    """Standard deviations of logarithms between visits, and between the iterations of a visit."""

    name: str
    common: float
    """Of all parts alike."""
    each: float
    """Of each part by itself."""
    iterations: float


APART = (
    Apart("parts 3 % apart", 0.01, 0.03, 0.02),
    Apart("parts 10 % apart", 0.0, 0.1, 0.05),
    Apart("parts 5 %, all of them 10 %", 0.1, 0.05, 0.05),
)


def seconds(nodes: int) -> dict[str, float]:
    """The truth of each part."""
    return {
        "data_wait": 0.01 + 0.002 * nodes,
        "forward": 0.3 / nodes + 0.02,
        "backward": 0.6 / nodes + 0.03,
        "exposed_communication": 0.05 * np.log2(nodes),
        "update": 0.02,
        "straggling": 0.004 * np.log2(nodes),
    }


SHARES = {
    "computing": ("forward", "backward", "update"),
    "communication": ("exposed_communication",),
    "data": ("data_wait",),
    "waiting": ("straggling",),
}


def studies() -> Iterator[Study]:
    """Coverage of each share, of the iteration time and of speedups, at one, two and four visits."""
    for apart in APART:
        for visits in (1, 2, 4):
            yield partial(_study, apart, visits)


def _study(apart: Apart, visits: int) -> Iterator[Figure]:
    found: dict[str, list[bool]] = {}
    for trial in range(TRIALS):
        points = measured(_steps(apart, visits, np.random.default_rng([38, visits, trial])), seed=trial)
        by_nodes = {one.point.nodes: one for one in points}
        for nodes, one in by_nodes.items():
            truth = seconds(nodes)
            for name, parts in SHARES.items():
                true = sum(truth[part] for part in parts)
                if true > 0:
                    share = _sum(one, parts) / one.parts.iteration_time
                    found.setdefault(f"share of {name}", []).append(holds(share, true / sum(truth.values())))
            found.setdefault("iteration time", []).append(holds(one.parts.iteration_time, sum(truth.values())))
            if nodes > 1:
                speedup = by_nodes[1].parts.iteration_time / one.parts.iteration_time
                true = sum(seconds(1).values()) / sum(truth.values())
                found.setdefault("speedup", []).append(holds(speedup, true))
    case = f"{apart.name}, {visits} visit{'s' if visits > 1 else ''}"
    yield from shares(case, found, dict.fromkeys(found, COVERAGE), TRIALS)


def _sum(one: Measured, parts: tuple[str, ...]) -> np.ndarray:
    return np.sum([getattr(one.parts, part) for part in parts], axis=0)


def _steps(apart: Apart, visits: int, random: np.random.Generator) -> pd.DataFrame:
    """Rows as `measured.step_rows` gives them."""
    return pd.concat([_cell(nodes, apart, visits, random) for nodes in NODES], ignore_index=True)


def _cell(nodes: int, apart: Apart, visits: int, random: np.random.Generator) -> pd.DataFrame:
    truth: Mapping[str, float] = seconds(nodes)
    shape = (visits, ITERATIONS)
    common = apart.common * random.standard_normal((visits, 1))
    parts = {
        name: (
            value
            * np.exp(
                common
                + apart.each * random.standard_normal((visits, 1))
                + apart.iterations * random.standard_normal(shape)
            )
        ).ravel()
        for name, value in truth.items()
    }
    visit, iteration = np.indices(shape).reshape(2, -1)
    times = dict.fromkeys((*TIMES, "matrix", "fully_connected"), 0.0) | {
        name: value for name, value in parts.items() if name in TIMES
    }
    times |= {"iteration_time": sum(parts.values()), "communication": 1.2 * parts["exposed_communication"]}
    point = {
        "network": "made-up", "hardware": "cpu", "storage": "local", "scaling": "strong", "sync": "preset",
        "prefetch": 0, "batch": 32, "workers_per_node": 1, "nodes": nodes, "ranks": nodes, "global_batch": 32,
        "worker_batch": 32 // nodes,
    }  # fmt: skip
    frame = pd.DataFrame({"repeat": 1, "visit": visit + 1, "iteration": iteration, **times})
    return frame.assign(**point, cell=f"{nodes}")
