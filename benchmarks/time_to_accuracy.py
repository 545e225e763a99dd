"""Time to a target on worker counts and mini-batches that nobody ran, where the truth was planted.

Made-up studies of up to four nodes: iterations of a known cluster (`synthetic`) whose days differ, and runs to a target
at four B, whose seeds differ and whose true steps lie beside a known law. Both go through `fit`. Asked is for weak
scaling on 8 and 32 nodes, B = 128 and 512: none of them was measured or trained. Nothing is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from judging import COVERAGE
from paired import Figure, figure

from stallpoint.cells import TrainCell
from stallpoint.kinds import cell_from_json
from stallpoint.models.fitting import fit
from stallpoint.records import TABLES

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/unit"))
import synthetic

NAME = "time to accuracy"
TRIALS = 100
TRAINED, UNSEEN = (16, 64, 256, 1024), (8, 32)
WORKER_BATCH = 16
SEEDS, DAYS = 3, 2
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


def benchmark(scratch: Path, count: int) -> tuple[list[Figure], list[str]]:
    """Figures and lines to print; neither argument is used."""
    figures = [one for case in CASES for one in _case(case)]
    return figures, [f"{NAME}: {TRIALS} planted studies each", *(one.line() for one in figures)]


def _case(case: Scatter) -> Iterator[Figure]:
    found = [one for trial in range(TRIALS) for one in _trial(case, trial)]
    errors, held = zip(*found, strict=True)
    yield figure(NAME, case.name, "error of unseen places, absolute", [abs(error) for error in errors], "<= 0.10")
    # Those of one study share its days: as many are independent as there are studies.
    share = float(np.mean(held))
    half = 1.645 * np.sqrt(share * (1 - share) / TRIALS)
    yield Figure(NAME, case.name, "intervals that hold the truth", share, share - half, share + half, COVERAGE)


def _trial(case: Scatter, trial: int) -> Iterator[tuple[float, bool]]:
    """Relative error and whether the interval holds the truth, at each unseen place."""
    random = np.random.default_rng([2025, trial, round(1000 * case.seeds)])
    truth = synthetic.Truth(alpha=10 ** random.uniform(-4, -3), beta=10 ** random.uniform(-9.5, -8.5))
    least, critical = 10 ** random.uniform(1.5, 3), 10 ** random.uniform(1, 3)
    places = {nodes: WORKER_BATCH * nodes for nodes in UNSEEN}
    beside = {batch: np.exp(case.law * random.standard_normal()) for batch in (*TRAINED, *places.values())}
    steps = {batch: least * (1 + critical / batch) * factor for batch, factor in beside.items()}
    tidy = synthetic.study(truth, nodes=(1, 2, 4), storages=("local",), syncs=("wfbp",), prefetches=(2,),
                           repeats=DAYS, seed=trial)  # fmt: skip
    days = dict(enumerate(np.exp(case.days * random.standard_normal(DAYS)), start=1))
    for name in TIMED:
        tidy[name] = _on_days(tidy[name], name, days)
    tidy["convergence_runs"] = pd.DataFrame(
        [
            {
                "cell": f"{batch}/{seed}", "network": "alexnet", "hardware": "cpu", "storage": "local", "sync": "wfbp",
                "recipe": "momentum", "nodes": 2, "workers_per_node": 1, "ranks": 2, "batch": batch, "trial": 1,
                "seed": seed, "target": 0.8, "reached": True, "best_accuracy": 0.8, "ended": "target",
                "steps_to_target": steps[batch] * np.exp(case.seeds * random.standard_normal()),
                "seconds_to_target": 1.0,
            }
            for batch in TRAINED
            for seed in range(SEEDS)
        ],
        columns=list(tidy["convergence_runs"]),
    )  # fmt: skip
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
