"""Time to a target on worker counts and mini-batches that nobody ran, where the truth was planted.

Made-up studies of up to four nodes: iterations of a known cluster (`synthetic`) whose days differ, and runs to a target
at four B, whose seeds differ and whose true steps lie beside a known law. Both go through `fit`. Asked is for weak
scaling on 8 and 32 nodes, B = 128 and 512: none of them was measured or trained. Nothing is timed.

Before that, steps alone: at B that nobody trained between four or eight that were, of laws that are the fitted one, lie
beside it at each B by chance, or bend more sharply or more slowly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from judging import COVERAGE
from paired import Figure, figure

from stallpoint.base.statistics import estimate
from stallpoint.models.convergence.steps import steps_of
from stallpoint.models.fitting import fit
from stallpoint.records.tables import TABLES
from stallpoint.strategies.presets import PRESETS
from stallpoint.study.kinds import cell_from_json
from stallpoint.study.kinds.train_kind import TrainCell

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))
import synthetic

NAME = "time to accuracy"
TRIALS = 100
TRAINING_COLUMNS, UNSEEN = (16, 64, 256, 1024), (8, 32)
WORKER_BATCH = 16
SEEDS, DAYS = 3, 2
LADDERS = {"four B": TRAINING_COLUMNS, "eight B": tuple(8 * 2**power for power in range(8))}
ASKED = (24, 96, 400)
TIMED = ("iterations", "layers", "collectives", "sgemm", "storage_reads")


@dataclass(frozen=True)
class Scatter:
    """Standard deviations of logarithms."""

    name: str
    seeds: float
    """Between the seeds of a run."""
    law: float
    """Between the true steps at a B and the law."""
    days: float
    """Between days, of all times of a day."""


CASES = (
    Scatter("seeds 3 %, law 2 %, days 2 %", 0.03, 0.02, 0.02),
    Scatter("seeds 10 %, law 5 %, days 5 %", 0.10, 0.05, 0.05),
    Scatter("seeds 20 %, law 10 %, days 10 %", 0.20, 0.10, 0.10),
)


@dataclass(frozen=True)
class Law:
    """S(B) = S_min (1 + (B_crit / B)^bend)^(1 / bend), and what lies beside it."""

    name: str
    seeds: float
    off: float = 0.0
    """Between true steps and the law, standard deviation of the logarithm."""
    bend: float = 1.0
    """1: the fitted law. 4 is nearly two straight lines: perfect scaling, and then no gain at all."""


LAWS = (
    Law("the law, seeds 10 %", 0.10),
    Law("2 % beside the law, seeds 3 %", 0.03, 0.02),
    Law("5 % beside the law, seeds 10 %", 0.10, 0.05),
    Law("10 % beside the law, seeds 20 %", 0.20, 0.10),
    Law("10 % beside the law, seeds 3 %", 0.03, 0.10),
    Law("20 % beside the law, seeds 3 %", 0.03, 0.20),
    Law("sharper bend (2), seeds 3 %", 0.03, bend=2.0),
    Law("sharper bend (2), seeds 10 %", 0.10, bend=2.0),
    Law("sharp bend (4), seeds 3 %", 0.03, bend=4.0),
    Law("slower bend (0.6), seeds 3 %", 0.03, bend=0.6),
)


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used."""
    figures = [one for ladder in LADDERS for law in LAWS for one in _of_steps(law, ladder)]
    figures += [one for case in CASES for one in _case(case)]
    return figures, [f"{NAME}: {TRIALS} planted studies each", *(one.line() for one in figures)]


def _of_steps(law: Law, ladder: str) -> Iterator[Figure]:
    found = np.array([_steps(law, LADDERS[ladder], trial) for trial in range(TRIALS)])
    name = f"{ladder}, {law.name}"
    yield figure(NAME, name, "error of steps, absolute", found[..., 0].mean(-1).tolist(), "<= 0.10")
    yield _share(name, "intervals of steps that hold the truth", found[..., 1])
    yield figure(NAME, name, "upper over lower end", found[..., 2].mean(-1).tolist())


def _steps(law: Law, trained: Sequence[int], trial: int) -> list[tuple[float, bool, float]]:
    """Of steps at each B that is asked for: relative error, whether the interval holds the truth, its ends' ratio."""
    random = np.random.default_rng([2024, trial, len(trained)])
    least, critical = 10 ** random.uniform(1.5, 3), 10 ** random.uniform(1, 3)
    true = {
        batch: least
        * (1 + (critical / batch) ** law.bend) ** (1 / law.bend)
        * np.exp(law.off * random.standard_normal())
        for batch in (*trained, *ASKED)
    }
    runs = pd.DataFrame(_runs({batch: true[batch] for batch in trained}, law.seeds, random))
    (steps,) = steps_of(runs, {"wfbp": PRESETS["wfbp"].preset}, seed=trial)
    found = []
    for batch in ASKED:
        value, low, high = estimate(steps.at(batch))
        found.append((abs(value / true[batch] - 1), low <= true[batch] <= high, high / low))
    return found


def _runs(steps: Mapping[int, float], seeds: float, random: np.random.Generator) -> list[dict[str, object]]:
    """Rows of convergence_runs that take so many steps at each B, each seed others."""
    return [
        {
            "cell": f"{batch}/{seed}", "network": "alexnet", "hardware": "cpu", "storage": "local", "sync": "wfbp",
            "recipe": "momentum", "nodes": 2, "workers_per_node": 1, "ranks": 2, "batch": batch, "trial": 1,
            "seed": seed, "target": 0.8, "reached": True, "best_accuracy": 0.8, "ended": "target",
            "steps_to_target": true * np.exp(seeds * random.standard_normal()), "seconds_to_target": 1.0,
        }
        for batch, true in steps.items()
        for seed in range(SEEDS)
    ]  # fmt: skip


def _share(name: str, quantity: str, held: npt.ArrayLike) -> Figure:
    """Share of intervals that hold the truth; those of one study are not independent, so as many count as studies."""
    share = float(np.mean(held))
    half = 1.645 * np.sqrt(share * (1 - share) / TRIALS)
    return Figure(NAME, name, quantity, share, share - half, share + half, COVERAGE)


def _case(case: Scatter) -> Iterator[Figure]:
    found = [one for trial in range(TRIALS) for one in _trial(case, trial)]
    errors, held = zip(*found, strict=True)
    yield figure(NAME, case.name, "error of unseen places, absolute", [abs(error) for error in errors], "<= 0.10")
    yield _share(case.name, "intervals that hold the truth", held)


def _trial(case: Scatter, trial: int) -> Iterator[tuple[float, bool]]:
    """Relative error and whether the interval holds the truth, at each unseen place."""
    random = np.random.default_rng([2025, trial, round(1000 * case.seeds)])
    truth = synthetic.Truth(alpha=10 ** random.uniform(-4, -3), beta=10 ** random.uniform(-9.5, -8.5))
    least, critical = 10 ** random.uniform(1.5, 3), 10 ** random.uniform(1, 3)
    places = {nodes: WORKER_BATCH * nodes for nodes in UNSEEN}
    beside = {batch: np.exp(case.law * random.standard_normal()) for batch in (*TRAINING_COLUMNS, *places.values())}
    steps = {batch: least * (1 + critical / batch) * factor for batch, factor in beside.items()}
    tidy = synthetic.study(truth, nodes=(1, 2, 4), storages=("local",), syncs=("wfbp",), prefetches=(2,),
                           repeats=DAYS, seed=trial)  # fmt: skip
    days = dict(enumerate(np.exp(case.days * random.standard_normal(DAYS)), start=1))
    for name in TIMED:
        tidy[name] = _on_days(tidy[name], name, days)
    tidy["convergence_runs"] = pd.DataFrame(
        _runs({batch: steps[batch] for batch in TRAINING_COLUMNS}, case.seeds, random),
        columns=list(tidy["convergence_runs"]),
    )
    found = fit(tidy, nodes=UNSEEN)["time_to_accuracy"].query("scaling == 'weak'").set_index("nodes")
    trained = (cell for cell in map(cell_from_json, tidy["runs"]["settings"]) if isinstance(cell, TrainCell))
    weak = next(cell for cell in trained if cell.scaling == "weak")
    for nodes, batch in places.items():
        row = found.loc[nodes]
        true = steps[batch] * truth.iteration(replace(weak, nodes=nodes))
        yield row["time"] / true - 1, bool(row["time_low"] <= true <= row["time_high"])


def _on_days(frame: pd.DataFrame, name: str, days: Mapping[int, float]) -> pd.DataFrame:
    """All times of a table, longer or shorter by what each repeat's day makes of them."""
    timed = [column.name for column in TABLES[name].columns if column.unit == "s"]
    return frame.assign(**frame[timed].mul(frame["repeat"].map(days), axis=0))
