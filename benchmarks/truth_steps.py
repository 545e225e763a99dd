"""Steps to a target whose law was planted: how often intervals hold the critical mini-batch, and regimes are right.

Each study has a law of its own that bends as planted, S_min and B_crit drawn anew, so that some are trained on one
side of B_crit alone. Runs at five or eight B, each with three seeds; true steps at a B may lie beside the law.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from judging import COVERAGE, Study, holds, shares
from paired import Figure

from stallpoint.models.convergence.steps import Regime, steps_of
from stallpoint.strategies.presets import PRESETS

TRIALS, SEEDS, THRESHOLD = 30, 3, 0.1
LADDERS = {"five B": 32 * 4 ** np.arange(5), "eight B": 16 * 2 ** np.arange(8)}
BENDS = {"bend 0.6": 0.6, "bend 1": 1.0, "bend 1.6": 1.6, "bend 2.5": 2.5, "bend 4": 4.0}
SCATTERS = {"seeds 3 %": (0.03, 0.0), "seeds 10 %, 3 % beside the law": (0.10, 0.03)}
"""Standard deviations of logarithms: between seeds, and between true steps and the law."""
HELD, BETWEEN, WRONG, GIVEN = "B_crit", "steps between", "regimes wrong", "regimes given"
WANTED = {HELD: COVERAGE, BETWEEN: COVERAGE, WRONG: "<= 0.05"}


def studies() -> Iterator[Study]:
    """Coverage of B_crit and of steps between the trained B, and regimes, for each bend and scatter."""
    for ladder, bend, scatter in product(LADDERS, BENDS, SCATTERS):
        yield partial(_case, ladder, bend, scatter)


def _case(ladder: str, bend: str, scatter: str) -> Iterator[Figure]:
    batches, a, of = LADDERS[ladder], BENDS[bend], SCATTERS[scatter]
    found: dict[str, list[bool]] = {name: [] for name in (HELD, BETWEEN, WRONG, GIVEN)}
    for trial in range(TRIALS):
        _study(found, batches, a, *of, np.random.default_rng([1905, trial, len(batches), round(10 * a)]))
    yield from shares(f"steps: {bend}, {ladder}, {scatter}", found, WANTED, TRIALS)


def _study(
    found: dict[str, list[bool]],
    batches: np.ndarray,
    bend: float,
    seeds: float,
    off: float,
    random: np.random.Generator,
) -> None:
    least, critical = np.exp(random.uniform(np.log(50), np.log(5000))), np.exp(random.uniform(np.log(64), np.log(2048)))

    def law(batch: np.ndarray) -> np.ndarray:
        return np.asarray(least * (1 + (critical / batch) ** bend) ** (1 / bend))

    def regime(batch: float) -> str:
        gain = law(np.array(batch)) / law(np.array(2 * batch))
        if gain >= 2 * (1 - THRESHOLD):
            return Regime.PERFECT
        return Regime.NO_GAIN if gain < 1 + THRESHOLD else Regime.DIMINISHING

    between = np.sqrt(batches[1:] * batches[:-1]).astype(int)
    true, unseen = (law(at) * np.exp(off * random.standard_normal(len(at))) for at in (batches, between))
    taken = true[:, None] * np.exp(seeds * random.standard_normal((len(batches), SEEDS)))
    rows = pd.DataFrame({
        "network": "n", "storage": "s", "sync": "wfbp", "recipe": "r", "target": 0.8, "ranks": 2, "trial": 0,
        "batch": np.repeat(batches, SEEDS), "seed": np.tile(np.arange(SEEDS), len(batches)), "reached": True,
        "best_accuracy": 0.9, "steps_to_target": taken.ravel(),
    })  # fmt: skip
    (steps,) = steps_of(rows, {"wfbp": PRESETS["wfbp"].preset}, seed=0)
    found[HELD].append(holds(steps.critical, critical))
    found[BETWEEN] += [holds(steps.at(int(batch)), value) for batch, value in zip(between, unseen, strict=True)]
    said = [(steps.regime(int(batch), THRESHOLD), regime(float(batch))) for batch in batches]
    found[WRONG] += [here not in (truth, Regime.UNDECIDED) for here, truth in said]
    found[GIVEN] += [here == truth for here, truth in said]
