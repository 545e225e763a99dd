"""Time to a target = samples to the target (mini-batch) x seconds of a sample (workers, mini-batch).

Samples grow with the mini-batch B by the law of critical mini-batches (`stallpoint.models.convergence.steps`), in
proportion to (1 + (B / B_crit)^a)^(1/a). A step on n workers, each with b = B / n samples, takes a part in proportion
to b and a part that does not get shorter with b and grows with the workers: the seconds of a sample are in proportion
to (1 + c (b0 / b) (1 + g)^log2(n / n0)) / n. A part of the whole run (start, evaluation) gets no shorter.

Coefficients have log-normal priors, as those of `laws`, but learned: of runs of MLPerf Training (rounds v0.7, v2.0,
v4.0 and v5.0 as published by MLCommons; `benchmarks/time_to_target.py` learns them again without each round). Two
counts are enough for an answer where they and the priors leave an interval that is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from stallpoint.base.distributions import normal_cdf, normal_quantile
from stallpoint.base.statistics import Reals
from stallpoint.models.convergence.steps import law
from stallpoint.models.scaling.laws import Prior
from stallpoint.models.scaling.sobol import sobol

_DRAWS = 8192


@dataclass(frozen=True)
class Learned:
    """Prior of runs to a target, learned from published runs."""

    overhead: Prior
    """c: what a step takes beside computing in proportion to b, over that computing, at the first count."""
    fixed: Prior
    """Part of the run at the first count that no worker makes shorter."""
    first_batch: Prior
    """Smallest mini-batch over the critical one."""
    bend: Prior
    """a: real curves bend more softly than 1 over wide ranges of B."""
    drift: Prior
    """Standard deviation of a random walk for each doubling of the workers: other settings, another switch."""
    growth: float
    """g: growth of the overhead with each doubling of the workers; half-normal, of this scale."""
    repeats: float
    """Standard deviation of the logarithm of a count's median time of a sample."""
    seeds: float
    """The same of samples to the target, as medians of some repeats."""
    misfit: float
    """Deviation of samples from their law, for each factor e of the mini-batch."""


LEARNED = Learned(
    overhead=Prior("overhead", 0.08, 0.8),
    fixed=Prior("fixed", 0.006, 1.2),
    first_batch=Prior("first_batch", 0.035, 1.25),
    bend=Prior("bend", 0.47, 0.5),
    drift=Prior("drift", 0.08, 1.1),
    growth=0.1,
    repeats=0.015,
    seeds=0.02,
    misfit=0.045,
)


@dataclass(frozen=True)
class RunsToTarget:
    """Runs to one target: an entry for each count and mini-batch, sorted by workers."""

    workers: Reals
    batch: Reals
    """Samples in the mini-batch of all workers; not a number where unknown."""
    samples: Reals
    """To the target, in whatever unit; not a number where unknown."""
    seconds: Reals
    """To the target."""

    def at(self, rows: Reals | slice) -> RunsToTarget:
        """Return some of the entries."""
        return RunsToTarget(self.workers[rows], self.batch[rows], self.samples[rows], self.seconds[rows])

    def usual_batch(self, workers: float) -> float:
        """Return the mini-batch at another count: as it grew with the workers, from the first count to the last."""
        first, last = 0, len(self.workers) - 1
        growth = np.log(self.batch[last] / self.batch[first]) / np.log(self.workers[last] / self.workers[first])
        return float(np.round(self.batch[last] * (workers / self.workers[last]) ** growth))


def seconds_to_target(
    runs: RunsToTarget, workers: float, batch: float = np.nan, learned: Learned = LEARNED, count: int = _DRAWS
) -> Reals:
    """Return `count` draws of the seconds to the target of a further run on `workers`, with `batch` samples in a step.

    Where a mini-batch is not known, how much of it a worker keeps is drawn.
    """
    n = np.append(runs.workers, workers)
    b = np.append(runs.batch, batch) / n
    z, doublings = _normal_points(count), np.log2(n / n[0])
    priors = (learned.overhead, learned.fixed, learned.first_batch, learned.bend, learned.drift)
    overhead, fixed, first, bend, drift = (
        (prior.median * np.exp(prior.spread * z[:, [place]])) for place, prior in enumerate(priors)
    )
    growth = learned.growth * np.abs(z[:, [len(priors)]])
    known = bool(np.isfinite(b).all())
    smaller = b[0] / b if known else np.exp(normal_cdf(z[:, [-1]]) * np.log(n / n[0]))
    step = np.log1p(overhead * smaller * (1 + growth) ** doublings) - doublings * np.log(2)
    batches = b * n / runs.batch[0] if known else np.ones(len(n))
    needed = np.log(law(np.ones_like(first), first * batches, bend))
    log_weight = np.zeros(len(z))
    spread = np.log(batches)
    if known and np.isfinite(runs.samples).all():
        samples = np.log(runs.samples)
        at, variance, log_weight = _continued(
            samples, needed, spread, np.full_like(first, learned.misfit), learned.seeds
        )
        needed = np.column_stack([np.broadcast_to(samples, (len(z), len(samples))), at]) - samples[0]
    else:
        variance = np.full(len(z), 2 * learned.seeds**2 + learned.misfit**2 * abs(spread[-1] - spread[-2]))
    seconds = np.logaddexp(needed - needed[:, :1] + step - step[:, :1], np.log(fixed))
    at, more, other = _continued(np.log(runs.seconds), seconds, doublings, drift, learned.repeats)
    weights = np.exp(log_weight + other - (log_weight + other).max())
    random = np.random.default_rng(0)
    drawn = random.choice(len(z), len(z), p=weights / weights.sum())
    return np.asarray(np.exp(at[drawn] + np.sqrt(variance + more)[drawn] * random.standard_normal(len(z))))


def _continued(measured: Reals, curve: Reals, places: Reals, walk: Reals, noise: float) -> tuple[Reals, Reals, Reals]:
    """Return mean and variance of a further measurement [draws], and the log density of those `measured`.

    Measurements are the sum of `curve` [draws, measured and one more], an unknown level, a random walk along `places`
    of deviation `walk` [draws, 1], and noise.
    """
    reach = np.abs(places - places[0])
    shared = np.minimum.outer(reach, reach)
    covariance = walk[:, :, None] ** 2 * shared[:-1, :-1] + noise**2 * np.eye(len(measured))
    inverse = np.linalg.inv(covariance)
    ones = inverse.sum(-1)
    total = ones.sum(-1)
    residuals = measured - curve[:, :-1]
    level = (residuals * ones).sum(-1) / total
    residuals = residuals - level[:, None]
    pulled = np.einsum("dij,dj->di", inverse, residuals)
    towards = walk**2 * shared[-1, :-1]
    mean = curve[:, -1] + level + (pulled * towards).sum(-1)
    rest = 1 - (ones * towards).sum(-1)
    explained = np.einsum("di,dij,dj->d", towards, inverse, towards)
    variance = walk[:, 0] ** 2 * shared[-1, -1] - explained + rest**2 / total + noise**2
    determinant = np.linalg.slogdet(covariance)[1] + np.log(total)
    return mean, np.maximum(variance, 0.0), -((residuals * pulled).sum(-1) + determinant) / 2


@cache
def _normal_points(count: int) -> Reals:
    """Return standard normal draws: of five coefficients, the growth, and the share of an unknown mini-batch."""
    return normal_quantile(sobol(7, count, seed=1))
