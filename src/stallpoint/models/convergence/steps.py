"""Steps to a target accuracy against the global mini-batch B.

    S(B) = S_min + E_min / B = S_min (1 + B_crit / B)

McCandlish et al. (2018), "An Empirical Model of Large-Batch Training", section 2.2: however large B is, S_min steps are
needed, and however small, E_min samples; B_crit = E_min / S_min. Shallue et al. (2019), "Measuring the Effects of Data
Parallelism on Neural Network Training", Fig. 1, call the three regimes of such curves perfect scaling, diminishing
returns and maximal data parallelism, where nothing is gained any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.models.base.statistics import (
    INTERVAL,
    REPLICATES,
    Ensemble,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    non_negative_least_squares,
    scatter,
)

TO_TARGET = ("network", "storage", "sync", "recipe", "target")
"""What steps to a target are of; hardware and workers change their time alone."""
PERFECT, DIMINISHING, NO_GAIN, UNDECIDED = "perfect scaling", "diminishing returns", "no gain", "undecided"
FEWEST_BATCHES = 2
"""B without which S_min and E_min cannot be told apart."""
_REFITS = 8  # rounds of a fit whose weights are what it finds


@dataclass(frozen=True)
class AtBatch:
    """What was trained at one B."""

    runs: int
    """All runs, of all trials and seeds."""
    reached: int
    """Those of them that reached the target."""
    best_accuracy: float
    """The highest of any run."""
    trial: int | None = None
    """Of trials that reached the target with every seed, the one with the fewest steps; None where there is none."""
    steps: Ensemble | None = None
    """Its steps to the target."""


def _unknown() -> Ensemble:
    return np.full(1 + REPLICATES, np.nan)


@dataclass(frozen=True)
class Steps:
    """Steps to one target, by B."""

    training: Mapping[str, Any]
    """Values of `TO_TARGET`."""
    batches: Mapping[int, AtBatch]
    """By B, rising."""
    least_steps: Ensemble
    """S_min; not a number where too few B reached the target."""
    least_samples: Ensemble
    """E_min."""

    @property
    def critical(self) -> Ensemble:
        """B_crit, samples; infinite where steps fell in proportion to B as far as was measured."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.least_samples / self.least_steps)

    @property
    def reaching(self) -> list[int]:
        """The B at which the target was reached, rising."""
        return [batch for batch, at in self.batches.items() if at.steps is not None]

    def at(self, batch: int) -> Ensemble:
        """Steps at any B, measured or fitted; not known beyond the largest B that reached the target.

        A larger one may never reach it, and no fit of smaller ones says so.
        """
        here = self.batches.get(batch)
        if here is not None:
            return _unknown() if here.steps is None else here.steps
        return self.fitted(batch) if self.reaching and batch <= self.reaching[-1] else _unknown()

    def samples(self, batch: int) -> Ensemble:
        """Samples to the target at any B, as far as `at` knows its steps."""
        return batch * self.at(batch)

    def fitted(self, batch: float) -> Ensemble:
        """S(B)."""
        return self.least_steps + self.least_samples / batch

    def without(self, batch: int) -> Steps:
        """The same, fitted to all other B."""
        return _fitted(self.training, {b: at for b, at in self.batches.items() if b != batch})

    def regime(self, batch: int, threshold: float) -> str:
        """What doubling B from here does by the fit, where nine of ten replicates agree.

        Perfect scaling saves at least 1 - `threshold` of half the steps; no gain is less than `threshold` in speed.
        """
        gain = (self.fitted(batch) / self.fitted(2 * batch))[1:]
        perfect, none = gain >= 2 * (1 - threshold), gain < 1 + threshold
        regimes = {PERFECT: perfect, NO_GAIN: none, DIMINISHING: ~perfect & ~none & np.isfinite(gain)}
        return next((name for name, draws in regimes.items() if draws.mean() >= INTERVAL), UNDECIDED)


def steps_of(runs: pd.DataFrame, seed: int) -> list[Steps]:
    """Of every training in ``convergence_runs``, the tidy table of this name."""
    found = []
    for key, rows in groups(runs, TO_TARGET):
        rows = rows.assign(repeat=rows["seed"], visit=1)
        done = rows[rows["reached"].astype(bool)]
        usual = scatter(done, ["batch", "trial"], "steps_to_target")
        batches = {int(b): _at(at, usual, generator(seed, "steps", *key, b)) for b, at in groups(rows, "batch")}
        found.append(_fitted(dict(zip(TO_TARGET, key, strict=True)), batches))
    return found


def _at(rows: pd.DataFrame, usual: Scatter, random: np.random.Generator) -> AtBatch:
    """Of the runs at one B."""
    whole = rows.groupby("trial").filter(lambda trial: bool(trial["reached"].all()))
    done = int(rows["reached"].sum())
    at = AtBatch(len(rows), done, float(rows["best_accuracy"].max()))
    if whole.empty:
        return at
    fastest = whole.groupby("trial")["steps_to_target"].mean().sort_values(kind="stable")
    best = int(fastest.index[0])
    chosen = whole[whole["trial"] == best]
    # A seed is to steps what a visit is to times: what differs between them makes the interval.
    steps = bootstrap(chosen["steps_to_target"], chosen["seed"], random, np.mean, usual)
    return replace(at, trial=best, steps=steps)


def _fitted(training: Mapping[str, Any], batches: Mapping[int, AtBatch]) -> Steps:
    """Least squares of relative errors, as steps of seeds lie apart by factors."""
    known = {batch: at.steps for batch, at in batches.items() if at.steps is not None}
    if len(known) < FEWEST_BATCHES:
        return Steps(training, batches, _unknown(), _unknown())
    observed = np.stack(list(known.values()), axis=-1)
    design = np.stack([np.ones(len(known)), 1 / np.array(list(known), dtype=np.float64)], axis=-1)
    weights = observed
    for _ in range(_REFITS):
        found = non_negative_least_squares(design / weights[..., None], observed / weights)
        weights = (design * found[..., None, :]).sum(axis=-1)
    return Steps(training, batches, found[..., 0], found[..., 1])


def table(found: Iterable[Steps], threshold: float) -> list[dict[str, object]]:
    """Rows of the steps_to_target table: every B of every training."""
    return [row for steps in found for row in _rows(steps, threshold)]


def _rows(steps: Steps, threshold: float) -> Iterator[dict[str, object]]:
    for batch, at in steps.batches.items():
        measured = _unknown() if at.steps is None else at.steps
        # A fit of the others says what is expected; as many seeds as were run deviate from it as they do here.
        held_out = steps.without(batch).fitted(batch) * measured / measured[0]
        yield {
            **steps.training,
            "batch": batch,
            "runs": at.runs,
            "runs_reached": at.reached,
            "trial": -1 if at.trial is None else at.trial,
            "best_accuracy": at.best_accuracy,
            **columns("steps", measured),
            **columns("samples", batch * measured),
            **columns("fitted_steps", steps.fitted(batch)),
            **columns("held_out_steps", held_out),
            "error": float(held_out[0] / measured[0] - 1),
            "regime": steps.regime(batch, threshold),
        }
