"""Speedups by how their cells were visited: once, in rounds of a machine that drifts, until they are precise enough.

Beside coverage stands the half-width of the intervals: what is known for certain should not be told as if it were not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from judging import COVERAGE, Study, holds, shares
from paired import Figure
from planted import curves

from stallpoint.base.measured import TIMES, measured
from stallpoint.base.statistics import estimate
from stallpoint.schedule.agenda import Limits
from stallpoint.schedule.next_visit import VisitedCell, choose

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from visiting_cells import train

TRIALS = 40
ITERATIONS = 5


@dataclass(frozen=True)
class Visits:
    """How a study was visited; standard deviations of logarithms."""

    name: str
    cells: int
    visits: int
    each: float
    """Between visits to a cell."""
    rounds: float
    """Between rounds, of all cells alike."""
    iterations: float
    half_width: str = ""
    """What is wanted of the half-width of speedups."""


STUDIES = (
    Visits("one visit, 0.5 % apart", 6, 1, 0.005, 0.0, 0.005, "<= 0.1"),
    Visits("one visit, 3 % apart", 6, 1, 0.03, 0.0, 0.02),
    Visits("one visit, 10 % apart", 6, 1, 0.1, 0.0, 0.05),
    Visits("two cells, four visits 0.5 % apart", 2, 4, 0.005, 0.0, 0.005, "<= 0.02"),
    Visits("two cells, four visits 5 % apart", 2, 4, 0.05, 0.0, 0.02),
    Visits("four rounds 10 % apart, visits 1 %", 6, 4, 0.01, 0.1, 0.01, "<= 0.02"),
    Visits("four rounds 3 % apart, visits 3 %", 6, 4, 0.03, 0.03, 0.02),
    Visits("eight rounds 3 % apart, visits 3 %", 6, 8, 0.03, 0.03, 0.02),
)
PRECISIONS = (0.03, 0.05, 0.1)
NODES = (1, 2, 4, 8)
STOPPED = 0.05
"""Standard deviation between visits to a cell that are stopped when they are precise enough."""


def studies() -> Iterator[Study]:
    """Coverage and half-width of speedups, and coverage of times, for each way of visiting."""
    for study in STUDIES:
        yield partial(_study, study)
    for least in (2, 4):
        for precision in PRECISIONS:
            yield partial(_stopped, least, precision)


def _study(study: Visits) -> Iterator[Figure]:
    found: dict[str, list[bool]] = {}
    widths: list[float] = []
    for trial in range(TRIALS):
        random = np.random.default_rng([61, trial])
        logs = study.rounds * random.standard_normal(study.visits) + study.each * random.standard_normal(
            (study.cells, study.visits)
        )
        _judge([list(cell) for cell in logs], study.iterations, random, trial, found, widths)
    yield from _figures(study.name, found, widths, study.half_width)


def _stopped(least: int, precision: float) -> Iterator[Figure]:
    """Visits as `choose` asks for them until all speedups are as precise as wanted, or none may be visited more."""
    found: dict[str, list[bool]] = {}
    widths: list[float] = []
    counts = []
    for trial in range(TRIALS):
        random = np.random.default_rng([62, trial])
        cells = [train(nodes, visits=least) for nodes in NODES]
        visited = [VisitedCell(replace(cell, batch=64, worker_batch=64 // cell.nodes)) for cell in cells]
        while (choice := choose(visited, Limits(precision=precision), trial)).index is not None:
            one = visited[choice.index]
            one.durations.append(1.0)
            one.medians.append(STOPPED * random.standard_normal())
        counts.append(sum(one.visits for one in visited) / len(visited))
        _judge([one.medians for one in visited], 0.02, random, trial, found, widths)
    case = f"stopped at {precision:.0%} of {least} visits and more, 5 % apart"
    yield from _figures(case, found, widths, "")
    low, middle, high = np.quantile(counts, (0.05, 0.5, 0.95))
    yield Figure("truth", case, "visits to a cell", float(middle), float(low), float(high))


def _judge(
    logs: list[list[float]],
    iterations: float,
    random: np.random.Generator,
    trial: int,
    found: dict[str, list[bool]],
    widths: list[float],
) -> None:
    """Add how intervals of cells whose truth is 1 s hold it, for visits longer by these logarithms."""
    (curve,) = curves(measured(_steps(logs, iterations, random), seed=trial))
    for nodes, one in curve.measured.items():
        found.setdefault("iteration times", []).append(holds(one.parts.iteration_time, 1.0))
        if nodes > 1:
            speedup = curve.speedup(nodes, "measured")
            value, low, high = estimate(speedup)
            found.setdefault("speedups", []).append(low <= 1.0 <= high)
            widths.append((high - low) / (2 * value))


def _figures(case: str, found: dict[str, list[bool]], widths: list[float], wanted: str) -> Iterator[Figure]:
    yield from shares(case, found, dict.fromkeys(found, COVERAGE), TRIALS)
    low, middle, high = np.quantile(widths, (0.05, 0.5, 0.95))
    yield Figure("truth", case, "half-width of speedups", float(middle), float(low), float(high), wanted)


def _steps(logs: list[list[float]], iterations: float, random: np.random.Generator) -> pd.DataFrame:
    """Rows as `measured.step_rows` gives them, of cells on 1, 2, 4, ... nodes that take 1 s each."""
    frames = []
    for place, visits in enumerate(logs):
        shape, nodes = (len(visits), ITERATIONS), 2**place
        seconds = np.exp(np.array(visits)[:, None] + iterations * random.standard_normal(shape)).ravel()
        visit, iteration = np.indices(shape).reshape(2, -1)
        point = {
            "network": "made-up", "hardware": "cpu", "storage": "local", "scaling": "strong", "sync": "preset",
            "prefetch": 0, "batch": 256, "workers_per_node": 1, "nodes": nodes, "ranks": nodes, "global_batch": 256,
            "worker_batch": 256 // nodes, "cell": str(nodes), "repeat": 1,
        }  # fmt: skip
        times = dict.fromkeys((*TIMES, "matrix", "fully_connected"), 0.0)
        times |= {"forward": seconds, "iteration_time": seconds}
        frames.append(pd.DataFrame({"visit": visit + 1, "iteration": iteration, **times}).assign(**point))
    return pd.concat(frames, ignore_index=True)
