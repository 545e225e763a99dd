"""Two studies whose difference was planted: how often `compare` raises an alarm, and how often it finds a slowdown.

Studies are like the default one: 14 points, 24 layers of one cell, some visits to each. Visits scatter as `noises` has
them; in some cases whole rounds of visits are slow or fast together, which single points cannot tell. An alarm is any
answer that is said to have changed, in whichever family. Of equal pairs at most 1 in 100 may raise one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from judging import shares
from paired import Figure
from planted import Noise, amdahl, steps

from stallpoint.archive.comparison import change
from stallpoint.archive.comparison.change import Change, pair_visits
from stallpoint.archive.comparison.changes import CLEAR_CHANGES, rows_of
from stallpoint.base.measured import POINT

EQUAL, SLOWED = 300, 100
"""Pairs of studies that are equal, and of those that differ in one way."""
SLOWDOWNS = (1.02, 1.05, 1.10)
ONE_LAYER = 1.3
"""Factor on the time of one layer and of nothing else."""
NODES = (1, 2, 4, 8, 16, 32, 64)
TRUTHS = {"one": amdahl(stall=8), "other": amdahl(stall=1000)}
LAYERS = 24
CELL = {
    "network": "made-up", "hardware": "cpu", "storage": "local", "scaling": "compute", "sync": "none", "prefetch": 0,
    "batch": 32, "workers_per_node": 1, "nodes": 1, "ranks": 1, "global_batch": 32, "worker_batch": 32,
}  # fmt: skip
"""Where layers are timed."""


@dataclass(frozen=True)
class Case:
    """How studies were measured."""

    noise: Noise
    rounds: float = 0.0
    """Standard deviation of the logarithm of a round's times: of all first visits, all second visits, ..."""
    wanted: str = ""
    """What is wanted of finding a slowdown of 5 %."""


def _visits(deviation: float, count: int) -> Noise:
    name = f"{count} visits, {100 * deviation:g} %"
    return Noise(name, visits=deviation, iterations=0.01, of_job=count, of_visit=2)


CASES = (
    Case(_visits(0.02, 4), wanted=">= 0.95"),
    Case(_visits(0.03, 4), wanted=">= 0.95"),
    Case(_visits(0.05, 4)),
    Case(_visits(0.05, 8), wanted=">= 0.95"),
    Case(_visits(0.03, 3)),
    Case(_visits(0.03, 2)),
    Case(Noise("4 visits, 1 to 5 %, each cell its own", visits=0.05, unequal=True, of_job=4, of_visit=2)),
    Case(Noise("4 visits, 2 %, a fifth in slow spells", visits=0.02, spells=0.2, of_job=4, of_visit=2)),
    Case(Noise("4 visits, 3 %, rounds 1 %", visits=0.03, of_job=4, of_visit=2), rounds=0.01),
    Case(Noise("8 visits, 3 %, rounds 2 %", visits=0.03, of_job=8, of_visit=2), rounds=0.02),
)


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used, as nothing here is timed."""
    head = [f"found {100 * (slower - 1):.0f} %" for slower in SLOWDOWNS]
    lines = [
        "compare: changes that were planted",
        f"| visits to each cell | false alarms | {' | '.join(head)} | one layer {100 * (ONE_LAYER - 1):.0f} % |",
        "| --- |" + " --- |" * (2 + len(SLOWDOWNS)),
    ]
    figures: list[Figure] = []
    for case in CASES:
        found = list(_figures(case))
        figures += found
        lines.append(f"| {case.noise.name} | " + " | ".join(f"{one.value:.3g}" for one in found) + " |")
    return figures, lines


def _figures(case: Case) -> Iterator[Figure]:
    alarms = [bool(set(_pair(case, (trial,), 1.0, 1.0)["change"]) & set(CLEAR_CHANGES)) for trial in range(EQUAL)]
    yield from shares(case.noise.name, {"false alarms": alarms}, {"false alarms": "<= 0.01"}, EQUAL)
    for place, slower in enumerate(SLOWDOWNS):
        what = f"found {slower}"
        found = [_all_slower(_pair(case, (place, trial), slower, slower)) for trial in range(SLOWED)]
        yield from shares(case.noise.name, {what: found}, {"found 1.05": case.wanted}, SLOWED)
    layer = [_one_slower(_pair(case, (len(SLOWDOWNS), trial), 1.0, ONE_LAYER)) for trial in range(SLOWED)]
    yield from shares(case.noise.name, {"one layer": layer}, {}, SLOWED)


def _pair(case: Case, key: tuple[int, ...], slower: float, layer: float) -> pd.DataFrame:
    """The comparison of a study with another one, in which all points and the first layer take so many times as long.

    Where all points do, all layers do.
    """
    random = np.random.default_rng([2025, *key])
    of_layers = np.array([layer] + [slower] * (LAYERS - 1))
    (old, old_layers), (new, new_layers) = (
        _study(case, factor, layers, random) for factor, layers in ((1.0, np.ones(LAYERS)), (slower, of_layers))
    )
    return rows_of(pair_visits(old, new, keys=POINT), pair_visits(old_layers, new_layers, keys=change.LAYER))


def _study(
    case: Case, slower: float, layers: np.ndarray, random: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Visits to points and to layers."""
    rounds = np.exp(case.rounds * random.standard_normal(case.noise.of_job))
    truth = _truth(case.noise.of_job)
    visited = [case.noise.factors(random)[0].mean(axis=-1) * rounds for _ in range(len(truth) // len(rounds))]
    points = truth.assign(seconds=truth["seconds"] * slower * np.concatenate(visited))
    return points, _layers(case, layers * rounds[:, None], random)


@cache
def _truth(count: int) -> pd.DataFrame:
    """So many visits to every point, without any scatter."""
    quiet = Noise("", iterations=0.0, of_job=count, of_visit=1)
    return change.step_times(steps(TRUTHS, NODES, quiet, np.random.default_rng(0)))


def _layers(case: Case, factors: np.ndarray, random: np.random.Generator) -> pd.DataFrame:
    """Visits to the layers of one cell by `factors` [visits, layers]; layers share visits and add a scatter of 1 %."""
    shared = case.noise.factors(random)[0].mean(axis=-1, keepdims=True)
    own = np.exp(0.01 * random.standard_normal(factors.shape))
    seconds = 1e-3 * (1 + np.arange(LAYERS)) * factors * shared * own
    visit, layer = np.indices(seconds.shape).reshape(2, -1)
    names = [f"layer {place}" for place in layer]
    frame = pd.DataFrame({"visit": visit + 1, "layer": names, "seconds": seconds.ravel()})
    return frame.assign(**CELL, layer_type="convolution")


def _all_slower(rows: pd.DataFrame) -> bool:
    return set(rows["change"]) & set(CLEAR_CHANGES) == {Change.SLOWER}


def _one_slower(rows: pd.DataFrame) -> bool:
    """Whether the layer that is slower, and nothing else, was found."""
    return list(rows.loc[rows["change"].isin(CLEAR_CHANGES), "layer"]) == ["layer 0"]
