"""Steps to a target accuracy against the global mini-batch B.

    S(B) = (S_min^a + (E_min / B)^a)^(1/a) = S_min (1 + (B_crit / B)^a)^(1/a)

However large B is, S_min steps are needed, and however small, E_min samples; B_crit = E_min / S_min, where the two
straight lines meet. The bend a is 1 by McCandlish et al. (2018), "An Empirical Model of Large-Batch Training", section
2.2; real curves bend more sharply or more softly, and few B tell little of it. Shallue et al. (2019), "Measuring the
Effects of Data Parallelism on Neural Network Training", Fig. 1, call the three regimes of such curves perfect scaling,
diminishing returns and maximal data parallelism, where nothing is gained any more.

Where workers share the mini-batch (`Preset.shares_batches`) their number changes no step. Where each has weights or
gradients of its own, it does: steps are then those of as many workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from stallpoint.models.base.statistics import (
    INTERVAL,
    MOST_APART,
    REPLICATES,
    Ensemble,
    Reals,
    Scatter,
    bootstrap,
    columns,
    generator,
    groups,
    non_negative_least_squares,
    scatter,
    unknown_ensemble,
)
from stallpoint.strategies.presets import Preset

TRAINED = ("network", "storage", "sync", "recipe")
"""What tells one training from another, whatever computes it."""
TO_TARGET = (*TRAINED, "target")
"""What steps to a target are of, with the workers; hardware changes their time alone."""
ANY = 0
"""Workers of steps that their number does not change."""
PERFECT, DIMINISHING, NO_GAIN, UNDECIDED = "perfect scaling", "diminishing returns", "no gain", "undecided"
FEWEST_BATCHES = 2
"""B without which S_min and E_min cannot be told apart."""
FEWEST_CRITICAL = 3
"""B without which nothing says how far the law is off, and so nothing how sure B_crit is."""
USUAL_MISFIT = 0.05
"""How far true steps lie from the law, standard deviation of their logarithm: as often more as less."""
_MISFITS: Reals = np.geomspace(0.002, 1.5, 60)
"""What it may be."""
_BENDS: Reals = np.geomspace(0.4, 6.0, 13)
"""What the bend may be."""
USUAL_BEND = 0.5
"""How far the logarithm of a bend lies from that of the law: as often more as less."""
_LITTLE = 0.04
"""Precision of the logarithms of S_min and E_min before anything was trained: anything within some factor of 100."""
_MIDDLE_HALF = 2 * NormalDist().inv_cdf(0.75)  # of a normal quantity, in standard deviations
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


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps to one target, by B."""

    training: Mapping[str, Any]
    """Values of `TO_TARGET`."""
    ranks: int
    """Workers that took them; `ANY` where their number changes none."""
    batches: Mapping[int, AtBatch]
    """By B, rising."""
    least_steps: Ensemble
    """S_min; not a number where too few B reached the target."""
    least_samples: Ensemble
    """E_min."""
    bend: Ensemble
    """a: how sharply the one becomes the other."""
    misfit: Reals
    """How far true steps lie from the law, as `USUAL_MISFIT`: draws, [REPLICATES]."""
    seed: int

    @property
    def critical(self) -> Ensemble:
        """B_crit, samples; infinite where steps fell in proportion to B as far as was measured.

        Two B fix the law without saying whether steps follow it: how sure B_crit is, is then not known.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.asarray(self.least_samples / self.least_steps)
        return found if self.sure else np.concatenate([found[:1], unknown_ensemble()[1:]])

    @property
    def sure(self) -> bool:
        """Whether enough B reached the target to say how far the law is off."""
        return len(self.reaching) >= FEWEST_CRITICAL

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
            return unknown_ensemble() if here.steps is None else here.steps
        return self.expected(batch) if self.reaching and batch <= self.reaching[-1] else unknown_ensemble()

    def samples(self, batch: int) -> Ensemble:
        """Samples to the target at any B, as far as `at` knows its steps."""
        return batch * self.at(batch)

    def fitted(self, batch: float) -> Ensemble:
        """S(B)."""
        return law(self.least_steps, self.least_samples / batch, self.bend)

    def expected(self, batch: int) -> Ensemble:
        """S(B) where nobody trained: with how far the law is off there."""
        random = generator(self.seed, "misfit", *self.training.values(), self.ranks, batch)
        return self.fitted(batch) * _off(self.misfit, random)

    def without(self, batch: int) -> Steps:
        """The same, fitted to all other B."""
        return _fitted(self.training, self.ranks, {b: at for b, at in self.batches.items() if b != batch}, self.seed)

    def perfect_to(self, threshold: float) -> Ensemble:
        """B up to which doubling it saves at least 1 - `threshold` of half the steps (see `regime`)."""
        return self._gaining(2 * (1 - threshold))

    def no_gain_from(self, threshold: float) -> Ensemble:
        """B from which doubling it gains less than `threshold`."""
        return self._gaining(1 + threshold)

    def _gaining(self, gain: float) -> Ensemble:
        """B whose doubling saves so much: (1 + x^a) / (1 + (x/2)^a) = gain^a, with x = B_crit / B."""
        power = gain**self.bend
        return self.critical * ((1 - power / 2**self.bend) / (power - 1)) ** (1 / self.bend)

    def regime(self, batch: int, threshold: float) -> str:
        """What doubling B from here does by the fit, where nine of ten replicates agree.

        Perfect scaling saves at least 1 - `threshold` of half the steps; no gain is less than `threshold` in speed.
        """
        if not self.sure:
            return UNDECIDED
        gain = (self.fitted(batch) / self.fitted(2 * batch))[1:]
        perfect, none = gain >= 2 * (1 - threshold), gain < 1 + threshold
        regimes = {PERFECT: perfect, NO_GAIN: none, DIMINISHING: ~perfect & ~none & np.isfinite(gain)}
        return next((name for name, draws in regimes.items() if draws.mean() >= INTERVAL), UNDECIDED)


def steps_of(runs: pd.DataFrame, presets: Mapping[str, Preset], seed: int) -> list[Steps]:
    """Of every training in ``convergence_runs``, the tidy table of this name; where it matters, of each worker count.

    `presets` are all that the runs name.
    """
    found = []
    workers = runs["ranks"].where(~runs["sync"].map(lambda sync: presets[sync].shares_batches).astype(bool), ANY)
    for (*key, ranks), rows in groups(runs.assign(ranks=workers), [*TO_TARGET, "ranks"]):
        rows = rows.assign(repeat=rows["seed"], visit=1)
        done = rows[rows["reached"].astype(bool)]
        usual = scatter(done, ["batch", "trial"], "steps_to_target")
        batches = {int(b): _at(at, usual, generator(seed, "steps", *key, ranks, b)) for b, at in groups(rows, "batch")}
        found.append(_fitted(dict(zip(TO_TARGET, key, strict=True)), int(ranks), batches, seed))
    return found


def _at(rows: pd.DataFrame, usual: Scatter, random: np.random.Generator) -> AtBatch:
    """Of the runs at one B."""
    at = AtBatch(len(rows), int(rows["reached"].sum()), float(rows["best_accuracy"].max()))
    best = best_trial(rows)
    if best is None:
        return at
    # A seed is to steps what a visit is to times: what differs between them makes the interval.
    steps = bootstrap(best["steps_to_target"], best["seed"], random, np.mean, usual)
    return replace(at, trial=int(best["trial"].iloc[0]), steps=steps)


def best_trial(rows: pd.DataFrame) -> pd.DataFrame | None:
    """The runs of the trial that reached the target with every seed in the fewest steps; None where there is none."""
    whole = rows.groupby("trial").filter(lambda trial: bool(trial["reached"].all()))
    if whole.empty:
        return None
    return whole[whole["trial"] == whole.groupby("trial")["steps_to_target"].mean().idxmin()]


def _fitted(training: Mapping[str, Any], ranks: int, batches: Mapping[int, AtBatch], seed: int) -> Steps:
    known = {batch: at.steps for batch, at in batches.items() if at.steps is not None}
    random = generator(seed, "law", *training.values(), ranks)
    likely = _posterior(known)
    # The value is of the middle bend; each replicate has one of its own, and a misfit that goes with it.
    middle = _BENDS[int((np.cumsum(likely.sum(axis=1)) >= 0.5).argmax())]
    drawn = random.choice(likely.size, REPLICATES, p=likely.ravel())
    bend, misfit = np.append(middle, _BENDS[drawn // len(_MISFITS)]), _MISFITS[drawn % len(_MISFITS)]
    # Were the same B trained once more, seeds would differ; were others, how far the law is off there would, too.
    disturbed = {batch: steps * _off(misfit, random) for batch, steps in known.items()}
    least = _law(disturbed, bend)
    return Steps(training, ranks, batches, least[..., 0], least[..., 1], bend, misfit, seed)


def _off(misfit: Reals, random: np.random.Generator) -> Ensemble:
    """By which factor true steps may lie beside the law; 1 for the value itself."""
    off = np.clip(misfit * random.standard_normal(REPLICATES), -MOST_APART, MOST_APART)
    return np.concatenate([[1.0], np.exp(off)])


def law(least: Reals, samples: Reals, bend: Reals) -> Reals:
    """(least^bend + samples^bend)^(1/bend), of any size."""
    more = np.maximum(least, samples)
    with np.errstate(invalid="ignore"):
        less = np.where(more > 0, np.minimum(least, samples) / more, 0.0)
    return np.asarray(more * (1 + less**bend) ** (1 / bend))


def _law(known: Mapping[int, Ensemble], bend: Reals) -> Reals:
    """S_min and E_min with a `bend` for each of the ensembles' values, [..., 2].

    By least squares of relative errors of S^a, in which the law is linear, as steps of seeds lie apart by factors.
    """
    if len(known) < FEWEST_BATCHES:
        return np.stack([unknown_ensemble(), unknown_ensemble()], axis=-1)
    steps, batches = np.stack(list(known.values()), axis=-1), np.array(list(known), dtype=np.float64)
    usual, middle = np.exp(np.log(steps).mean()), np.exp(np.log(batches).mean())  # powers of which stay near 1
    observed = (steps / usual) ** bend[..., None]
    design = np.stack([np.ones_like(observed), (middle / batches) ** bend[..., None]], axis=-1)
    weights = observed
    for _ in range(_REFITS):
        found = non_negative_least_squares(design / weights[..., None], observed / weights)
        weights = (design * found[..., None, :]).sum(axis=-1)
    return np.asarray(usual * found ** (1 / bend[..., None]) * [1.0, middle])


def _posterior(known: Mapping[int, Ensemble]) -> Reals:
    """How likely each of `_BENDS` with each of `_MISFITS` is, by steps at the B that are `known`.

    Of how far steps at a B lie from the law, seeds explain a part whose variance is known; the rest is misfit. Few B
    leave few distances, and the law went after them: so a misfit is judged by the restricted likelihood (Patterson &
    Thompson 1971), which counts what the law has used up, and is never found to be none for certain, as the best single
    value of it would often be. The priors have heavy tails, so that a law that is far off, or bends otherwise, is
    believed to: p(τ) = s / (s + τ)² with s = `USUAL_MISFIT` (DuMouchel 1994), and Cauchy's of log a.
    """
    # Both of the logarithm, as they are evenly spaced there.
    bends = 1 / (1 + np.square(np.log(_BENDS) / USUAL_BEND))
    prior = bends[:, None] * _MISFITS / (USUAL_MISFIT + _MISFITS) ** 2
    if len(known) <= FEWEST_BATCHES:
        return np.asarray(prior / prior.sum())
    steps, batches = np.stack(list(known.values()), axis=-1), np.array(list(known), dtype=np.float64)
    least = _law({batch: np.repeat(of[:1], len(_BENDS)) for batch, of in known.items()}, _BENDS)
    parts = least[:, None, :] / np.stack([np.ones_like(batches), batches], axis=-1)  # [bends, B, 2]
    fitted = law(parts[..., 0], parts[..., 1], _BENDS[:, None])
    slopes = (parts / fitted[..., None]) ** _BENDS[:, None, None]  # of the logarithm, over those of S_min and E_min
    off = np.log(steps[0] / fitted)
    # By the middle half of the replicates: the tails say that few seeds were run, not that seeds lie far apart.
    quarters = np.quantile(np.log(steps[1:]), [0.25, 0.75], axis=0)
    seeds = (quarters[1] - quarters[0]) / _MIDDLE_HALF
    weights = 1 / (_MISFITS[:, None] ** 2 + seeds**2)  # [misfits, B]
    information = np.einsum("mb,abi,abj->amij", weights, slopes, slopes) + _LITTLE * np.eye(2)
    pulled = np.einsum("mb,abi,ab->ami", weights, slopes, off)
    refitted = np.linalg.solve(information, pulled[..., None])[..., 0]
    squares = np.einsum("mb,ab->am", weights, off**2) - (pulled * refitted).sum(axis=-1)
    likelihood = (np.log(weights).sum(axis=-1) - np.linalg.slogdet(information)[1] - squares) / 2
    found = prior * np.exp(likelihood - likelihood.max())
    return np.asarray(found / found.sum())


def table(found: Iterable[Steps], threshold: float) -> list[dict[str, object]]:
    """Rows of the steps_to_target table: every B of every training."""
    return [row for steps in found for row in _rows(steps, threshold)]


def _rows(steps: Steps, threshold: float) -> Iterator[dict[str, object]]:
    for batch, at in steps.batches.items():
        measured = unknown_ensemble() if at.steps is None else at.steps
        # A fit of the others says what is expected; as many seeds as were run deviate from it as they do here.
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
            **columns("fitted_steps", steps.fitted(batch)),
            **columns("held_out_steps", held_out),
            "error": float(held_out[0] / measured[0] - 1),
            "regime": steps.regime(batch, threshold),
        }
