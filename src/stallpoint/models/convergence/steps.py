"""Steps S to a target accuracy, by the global mini-batch B.

    S(B) = (S_min^a + (E_min / B)^a)^(1/a) = S_min (1 + (B_crit / B)^a)^(1/a)

Even the largest B needs S_min steps, and even the smallest B needs E_min samples. On logarithmic axes these limits are
straight lines, which meet at B_crit = E_min / S_min. The bend a is the sharpness of the transition. It is 1 by
McCandlish et al. (2018), "An Empirical Model of Large-Batch Training", section 2.2. Real curves bend more sharply or
more softly, and few B identify the bend badly. Shallue et al. (2019), "Measuring the Effects of Data Parallelism on
Neural Network Training", Fig. 1, name three regimes of these curves: perfect scaling, diminishing returns, and maximal
data parallelism, where a larger B gains nothing.

If workers share the mini-batch (`Preset.shares_batches`), their number does not change the steps. If each worker has
its own weights or gradients, steps belong to a number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.base.non_negative_fits import non_negative_least_squares
from stallpoint.base.statistics import (
    INTERVAL,
    MAX_DEVIATION,
    REPLICATES,
    Ensemble,
    Reals,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    scatter,
    unknown_ensemble,
)
from stallpoint.strategies.presets import Preset

TRAINING_COLUMNS = ("network", "storage", "sync", "recipe")
"""Columns that identify a training on any hardware."""
TO_TARGET = (*TRAINING_COLUMNS, "target")
"""Columns that, with the number of workers, identify steps to a target; hardware changes only their time."""
ANY_COUNT = 0
"""Worker count of steps that do not depend on the workers."""
MIN_BATCH_SIZES = 2
"""B needed to identify S_min and E_min."""
MIN_BATCH_SIZES_FOR_CRITICAL = 3
"""B needed to estimate the misfit of the law, and so the uncertainty of B_crit."""
USUAL_MISFIT = 0.05
"""Median prior misfit: standard deviation of log true steps about the law."""
_MISFITS: Reals = np.geomspace(0.002, 1.5, 60)
"""Grid of misfits."""
_BENDS: Reals = np.geomspace(0.4, 6.0, 13)
"""Grid of bends."""
USUAL_BEND = 0.5
"""Median prior |log a|."""
_PRIOR_PRECISION = 0.04
"""Prior precision of log S_min and log E_min: within a factor of about 100."""
_INTERQUARTILE_RANGE = 2 * NormalDist().inv_cdf(0.75)  # from quartile to quartile of a standard normal variable
_REFITS = 8  # repetitions of a fit, each with weights from the fit before


class Regime(StrEnum):
    """Effect of doubling B."""

    PERFECT = "perfect scaling"
    DIMINISHING = "diminishing returns"
    NO_GAIN = "no gain"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class RunsAtBatch:
    """Runs at one B."""

    runs: int
    """All runs, over trials and seeds."""
    reached: int
    """Runs that reached the target."""
    best_accuracy: float
    """The highest accuracy of any run."""
    trial: int | None = None
    """The trial with the fewest steps among those that reached the target with every seed; None if none did."""
    steps: Ensemble | None = None
    """Steps of the chosen trial to the target."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps to one target, by B."""

    training: Mapping[str, Any]
    """Values of `TO_TARGET`."""
    ranks: int
    """Workers; `ANY_COUNT` if steps do not depend on them."""
    batches: Mapping[int, RunsAtBatch]
    """By B, rising."""
    least_steps: Ensemble
    """S_min; NaN if too few B reached the target."""
    least_samples: Ensemble
    """E_min."""
    bend: Ensemble
    """a: sharpness of the transition."""
    misfit: Reals
    """Standard deviation of log true steps about the law: draws, [REPLICATES]."""
    seed: int

    @property
    def critical(self) -> Ensemble:
        """B_crit, samples; infinite if steps fell in proportion to B over the measured range.

        Two values of B determine the law but do not test it: the interval of B_crit is then unknown.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.asarray(self.least_samples / self.least_steps)
        return found if self.sure else np.concatenate([found[:1], unknown_ensemble()[1:]])

    @property
    def sure(self) -> bool:
        """Whether enough B reached the target to estimate the misfit of the law."""
        return len(self.reaching) >= MIN_BATCH_SIZES_FOR_CRITICAL

    @property
    def reaching(self) -> list[int]:
        """Values of B with which training reached the target, rising."""
        return [batch for batch, at in self.batches.items() if at.steps is not None]

    def at(self, batch: int) -> Ensemble:
        """Return the steps at any B, measured or fitted. They are NaN beyond the largest B that reached the target, as
        a larger B may never reach it."""
        here = self.batches.get(batch)
        if here is not None:
            return unknown_ensemble() if here.steps is None else here.steps
        return self.expected(batch) if self.reaching and batch <= self.reaching[-1] else unknown_ensemble()

    def samples(self, batch: int) -> Ensemble:
        """Return the samples to the target at any B; NaN where the steps are unknown."""
        return batch * self.at(batch)

    def fitted(self, batch: float) -> Ensemble:
        """Return S(B) by the law."""
        return law(self.least_steps, self.least_samples / batch, self.bend)

    def expected(self, batch: int) -> Ensemble:
        """Return S(B) at an untrained B, with the misfit of the law."""
        random = generator(self.seed, "misfit", *self.training.values(), self.ranks, batch)
        return self.fitted(batch) * _misfit_factors(self.misfit, random)

    def without(self, batch: int) -> Steps:
        """Return the steps fitted without one B."""
        return _fitted(self.training, self.ranks, {b: at for b, at in self.batches.items() if b != batch}, self.seed)

    def perfect_to(self, threshold: float) -> Ensemble:
        """Return the B up to which doubling B is perfect scaling: steps fall by a factor of 2 · (1 - `threshold`)."""
        return self._batch_of_gain(2 * (1 - threshold))

    def no_gain_from(self, threshold: float) -> Ensemble:
        """Return the B from which doubling gains less than `threshold`."""
        return self._batch_of_gain(1 + threshold)

    def _batch_of_gain(self, gain: float) -> Ensemble:
        """Return the B whose doubling gains `gain`: (1 + x^a) / (1 + (x/2)^a) = gain^a, with bend a, x = B_crit / B."""
        power = gain**self.bend
        return self.critical * ((1 - power / 2**self.bend) / (power - 1)) ** (1 / self.bend)

    def regime(self, batch: int, threshold: float) -> Regime:
        """Return the regime of doubling B by the law, if nine of ten replicates agree.

        Steps fall by a factor of at least 2 · (1 - `threshold`) in perfect scaling, below 1 + `threshold` with no gain.
        """
        if not self.sure:
            return Regime.UNDECIDED
        gain = (self.fitted(batch) / self.fitted(2 * batch))[1:]
        perfect, none = gain >= 2 * (1 - threshold), gain < 1 + threshold
        draws_of_regimes = {
            Regime.PERFECT: perfect,
            Regime.NO_GAIN: none,
            Regime.DIMINISHING: ~perfect & ~none & np.isfinite(gain),
        }
        return next((name for name, draws in draws_of_regimes.items() if draws.mean() >= INTERVAL), Regime.UNDECIDED)


def steps_of(runs: pd.DataFrame, presets: Mapping[str, Preset], seed: int) -> list[Steps]:
    """Return the steps of every training in ``convergence_runs``, for each worker count if they depend on it.

    `presets` contains all presets that the runs name.
    """
    found = []
    workers = runs["ranks"].where(~runs["sync"].map(lambda sync: presets[sync].shares_batches).astype(bool), ANY_COUNT)
    for (*key, ranks), rows in groups(runs.assign(ranks=workers), [*TO_TARGET, "ranks"]):
        rows = rows.assign(repeat=rows["seed"], visit=1)
        done = rows[rows["reached"].astype(bool)]
        usual = scatter(done, ["batch", "trial"], "steps_to_target")
        batches = {int(b): _at(at, usual, generator(seed, "steps", *key, ranks, b)) for b, at in groups(rows, "batch")}
        found.append(_fitted(dict(zip(TO_TARGET, key, strict=True)), int(ranks), batches, seed))
    return found


def _at(rows: pd.DataFrame, usual: Scatter, random: np.random.Generator) -> RunsAtBatch:
    """Return the summary of all runs at one B."""
    at = RunsAtBatch(len(rows), int(rows["reached"].sum()), float(rows["best_accuracy"].max()))
    best = best_trial(rows)
    if best is None:
        return at
    # Seeds take the place of visits: the scatter between seeds gives the intervals.
    steps = bootstrap(best["steps_to_target"], best["seed"], random, np.mean, usual)
    return replace(at, trial=int(best["trial"].iloc[0]), steps=steps)


def best_trial(rows: pd.DataFrame) -> pd.DataFrame | None:
    """Return the runs of the trial that reached the target with every seed in the fewest steps; None if none did."""
    complete = rows.groupby("trial").filter(lambda trial: bool(trial["reached"].all()))
    if complete.empty:
        return None
    return complete[complete["trial"] == complete.groupby("trial")["steps_to_target"].mean().idxmin()]


def _fitted(training: Mapping[str, Any], ranks: int, batches: Mapping[int, RunsAtBatch], seed: int) -> Steps:
    known = {batch: at.steps for batch, at in batches.items() if at.steps is not None}
    random = generator(seed, "law", *training.values(), ranks)
    likely = _posterior(known)
    # The estimate uses the median bend; each replicate draws its own bend and misfit.
    median_bend = _BENDS[int((np.cumsum(likely.sum(axis=1)) >= 0.5).argmax())]
    drawn = random.choice(likely.size, REPLICATES, p=likely.ravel())
    bend, misfit = np.append(median_bend, _BENDS[drawn // len(_MISFITS)]), _MISFITS[drawn % len(_MISFITS)]
    # Each replicate also changes the steps by the law's misfit, so that the intervals of the fit include the misfit.
    disturbed = {batch: steps * _misfit_factors(misfit, random) for batch, steps in known.items()}
    least = _fitted_limits(disturbed, bend)
    return Steps(training, ranks, batches, least[..., 0], least[..., 1], bend, misfit, seed)


def _misfit_factors(misfit: Reals, random: np.random.Generator) -> Ensemble:
    """Return factors by which true steps deviate from the law; 1 for the estimate."""
    off = np.clip(misfit * random.standard_normal(REPLICATES), -MAX_DEVIATION, MAX_DEVIATION)
    return np.concatenate([[1.0], np.exp(off)])


def law(least: Reals, samples: Reals, bend: Reals) -> Reals:
    """Return (least^bend + samples^bend)^(1/bend) without overflow."""
    more = np.maximum(least, samples)
    with np.errstate(invalid="ignore"):
        smaller_over_larger = np.where(more > 0, np.minimum(least, samples) / more, 0.0)
    return np.asarray(more * (1 + smaller_over_larger**bend) ** (1 / bend))


def _fitted_limits(known: Mapping[int, Ensemble], bend: Reals) -> Reals:
    """Fit S_min and E_min for the `bend` of each ensemble member, [..., 2].

    The fit minimises squared relative errors of S^a: the law is linear in S^a, and seeds change S by factors.
    """
    if len(known) < MIN_BATCH_SIZES:
        return np.stack([unknown_ensemble(), unknown_ensemble()], axis=-1)
    steps, batches = np.stack(list(known.values()), axis=-1), np.array(list(known), dtype=np.float64)
    usual, middle = np.exp(np.log(steps).mean()), np.exp(np.log(batches).mean())  # units: numbers become near 1
    observed = (steps / usual) ** bend[..., None]
    design = np.stack([np.ones_like(observed), (middle / batches) ** bend[..., None]], axis=-1)
    weights = observed
    for _ in range(_REFITS):
        found = non_negative_least_squares(design / weights[..., None], observed / weights)
        weights = (design * found[..., None, :]).sum(axis=-1)
    return np.asarray(usual * found ** (1 / bend[..., None]) * [1.0, middle])


def _posterior(known: Mapping[int, Ensemble]) -> Reals:
    """Return the posterior probability of each pair of `_BENDS` and `_MISFITS`, given steps at the `known` B.

    Steps deviate from the law by the scatter between seeds, whose variance is known, and by the misfit. With few B the
    fit absorbs much of these deviations. So the misfit is judged by the restricted likelihood (Patterson & Thompson
    1971), which accounts for fitted parameters. All misfits count, since the most likely one would often be 0.
    Heavy-tailed priors allow a large misfit or an unusual bend. The prior of the misfit τ is p(τ) = s / (s + τ)² with s
    = `USUAL_MISFIT` (DuMouchel 1994), that of log a is a Cauchy distribution.
    """
    # Both priors are densities of logarithms, as the grids are evenly spaced in logarithms.
    bend_prior = 1 / (1 + np.square(np.log(_BENDS) / USUAL_BEND))
    prior = bend_prior[:, None] * _MISFITS / (USUAL_MISFIT + _MISFITS) ** 2
    if len(known) <= MIN_BATCH_SIZES:
        return np.asarray(prior / prior.sum())
    steps, batches = np.stack(list(known.values()), axis=-1), np.array(list(known), dtype=np.float64)
    least = _fitted_limits({batch: np.repeat(of[:1], len(_BENDS)) for batch, of in known.items()}, _BENDS)
    terms = least[:, None, :] / np.stack([np.ones_like(batches), batches], axis=-1)  # axes: bends, values of B, terms
    fitted = law(terms[..., 0], terms[..., 1], _BENDS[:, None])
    slopes = (terms / fitted[..., None]) ** _BENDS[:, None, None]  # derivatives of log S by log S_min and log E_min
    log_residuals = np.log(steps[0] / fitted)
    # The scatter between seeds is taken from quartiles: replicates have wide tails only because seeds are few.
    log_step_quartiles = np.quantile(np.log(steps[1:]), [0.25, 0.75], axis=0)
    seed_deviations = (log_step_quartiles[1] - log_step_quartiles[0]) / _INTERQUARTILE_RANGE
    weights = 1 / (_MISFITS[:, None] ** 2 + seed_deviations**2)  # axes: misfits, values of B
    information_matrix = np.einsum("mb,abi,abj->amij", weights, slopes, slopes) + _PRIOR_PRECISION * np.eye(2)
    projected_residuals = np.einsum("mb,abi,ab->ami", weights, slopes, log_residuals)
    parameter_changes = np.linalg.solve(information_matrix, projected_residuals[..., None])[..., 0]
    squares = np.einsum("mb,ab->am", weights, log_residuals**2) - (projected_residuals * parameter_changes).sum(axis=-1)
    log_likelihood = (np.log(weights).sum(axis=-1) - np.linalg.slogdet(information_matrix)[1] - squares) / 2
    found = prior * np.exp(log_likelihood - log_likelihood.max())
    return np.asarray(found / found.sum())


def table(found: Iterable[Steps], threshold: float) -> Iterator[dict[str, object]]:
    """Yield the rows of the steps_to_target table: every B of every training."""
    for steps in found:
        for batch, at in steps.batches.items():
            measured = unknown_ensemble() if at.steps is None else at.steps
            # Steps at a held-out B are those of a fit to the other B, with the scatter observed between seeds.
            held_out = steps.without(batch).expected(batch) * measured / measured[0]
            yield {
                **steps.training,
                "ranks": steps.ranks,
                "batch": batch,
                "runs": at.runs,
                "runs_reached": at.reached,
                "trial": -1 if at.trial is None else at.trial,
                "best_accuracy": at.best_accuracy,
                **columns("steps", measured),
                **columns("samples", batch * measured),
                **columns("held_out_steps", held_out),
                "error": float(held_out[0] / measured[0] - 1),
                "regime": steps.regime(batch, threshold),
            }
