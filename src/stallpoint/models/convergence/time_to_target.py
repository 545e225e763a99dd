"""Time to a target: samples to the target, by mini-batch, times seconds of a sample, by workers and mini-batch.

Samples grow with the mini-batch B in proportion to (1 + (B / B_crit)^a)^(1/a), the law of critical mini-batches with
the bend a (`stallpoint.models.convergence.steps`). A step on n workers, each with b = B / n samples, has a part in
proportion to b. Its other part, an overhead, does not shrink with b and grows with the workers. So the seconds of a
sample are in proportion to (1 + c (b0 / b) (1 + g)^log2(n / n0)) / n. Here c is the overhead at the first count, n0
workers with b0 samples each, and g its growth per doubling. A fixed part of the run (start, evaluation) never shrinks.

Coefficients have log-normal priors as in `laws`, estimated from runs of MLPerf Training (rounds v0.7, v2.0, v4.0 and
v5.0 as published by MLCommons). `benchmarks/time_to_target.py` estimates them again without each round. Each benchmark
of MLPerf has its own priors of c (in samples) and of the critical mini-batch, as both differ little between systems.
Two counts give an answer if the interval is narrow enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stallpoint.base.distributions import normal_cdf
from stallpoint.base.statistics import Reals
from stallpoint.models.convergence.steps import law
from stallpoint.models.scaling.laws import Prior
from stallpoint.models.scaling.sobol import normal_points

_DRAWS = 8192
MAX_MINUTES_RATIO = 2.5
"""Ratio of an interval's ends above which minutes are no answer: a doubling of the workers gains less."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of MLPerf: properties that all systems' runs to the same target share."""

    overhead: float
    """Overhead of a step, in samples of a worker that computes one sample a second."""
    critical_batch: float


@dataclass(frozen=True)
class RunPrior:
    """Prior of runs to a target, estimated from published runs."""

    overhead: Prior
    """c: overhead of a step over its computing in proportion to b, at the first count."""
    fixed: Prior
    """Fixed part of the run at the first count."""
    first_batch: Prior
    """Smallest mini-batch over the critical mini-batch."""
    bend: Prior
    """a: real curves bend more softly than 1 over wide ranges of B."""
    drift: Prior
    """Standard deviation of a random walk for each doubling of the workers: other settings, another switch."""
    growth: float
    """g: growth of the overhead with each doubling of the workers; half-normal, of this scale."""
    repeats: float
    """Standard deviation of the logarithm of a count's median time of a sample."""
    seeds: float
    """Standard deviation of the logarithm of a count's median samples to the target."""
    misfit: float
    """Deviation of samples from their law, for each factor e of the mini-batch."""
    task_spread: float
    """Spread of a task's overhead between systems."""
    batch_spread: float
    """Spread of a task's critical mini-batch."""
    rate_power: float
    """Exponent by which an overhead in samples grows with a worker's samples per second."""
    tasks: Mapping[str, Benchmark] = field(default_factory=dict)

    def priors(self, runs: RunsToTarget) -> tuple[Prior, Prior, Prior, Prior, Prior]:
        """Return the priors of the five coefficients for `runs`."""
        overhead, first = self.overhead, self.first_batch
        if (task := self.tasks.get(runs.task)) and np.isfinite([*runs.batch, *runs.samples]).all():
            local_batch = runs.batch[0] / runs.workers[0]
            overhead = Prior("overhead", task.overhead * runs.rate**self.rate_power / local_batch, self.task_spread)
            first = Prior("first_batch", runs.batch[0] / task.critical_batch, self.batch_spread)
        return overhead, self.fixed, first, self.bend, self.drift


RUN_PRIOR = RunPrior(
    overhead=Prior("overhead", 0.088, 0.98),
    fixed=Prior("fixed", 0.0063, 1.09),
    first_batch=Prior("first_batch", 0.041, 1.19),
    bend=Prior("bend", 0.47, 0.5),
    drift=Prior("drift", 0.08, 1.0),
    growth=0.095,
    repeats=0.015,
    seeds=0.02,
    misfit=0.045,
    task_spread=0.53,
    batch_spread=0.7,
    rate_power=0.35,
    tasks={
        "bert": Benchmark(1.11, 16_800),
        "dlrm": Benchmark(6.82, 335_000),
        "dlrm_dcnv2": Benchmark(10.2, 1_090_000),
        "gnmt": Benchmark(2.39, 20_300),
        "gnn": Benchmark(10.9, 151_000),
        "llama2_70b_lora": Benchmark(0.0649, 95.1),
        "llama31_405b": Benchmark(0.0961, 14_400),
        "maskrcnn": Benchmark(0.352, 4000),
        "resnet": Benchmark(1.19, 91_100),
        "retinanet": Benchmark(0.322, 6610),
        "rgat": Benchmark(10.9, 151_000),
        "rnnt": Benchmark(2.16, 7720),
        "ssd": Benchmark(0.322, 6610),
        "stable_diffusion": Benchmark(0.328, 2020),
        "unet3d": Benchmark(0.0957, 170),
    },
)


@dataclass(frozen=True)
class RunsToTarget:
    """Runs to one target: an entry for each count and mini-batch, sorted by workers."""

    workers: Reals
    batch: Reals
    """Samples in the mini-batch of all workers; not a number where unknown."""
    samples: Reals
    """Samples to the target, in any unit; NaN if unknown."""
    seconds: Reals
    """Seconds to the target."""
    task: str = ""
    """Benchmark of MLPerf Training, as it names it; empty for other targets."""

    @property
    def rate(self) -> float:
        """Return the samples per second of each worker at the first count."""
        return float(self.samples[0] / self.seconds[0] / self.workers[0])

    def at(self, rows: Reals | slice) -> RunsToTarget:
        """Return the runs of the entries `rows`."""
        return RunsToTarget(self.workers[rows], self.batch[rows], self.samples[rows], self.seconds[rows], self.task)

    def extrapolated_batch(self, workers: float) -> float:
        """Return the mini-batch at another count, extrapolated from its growth between the first and the last count."""
        first, last = 0, len(self.workers) - 1
        growth = np.log(self.batch[last] / self.batch[first]) / np.log(self.workers[last] / self.workers[first])
        return float(np.round(self.batch[last] * (workers / self.workers[last]) ** growth))


def seconds_to_target(
    runs: RunsToTarget, workers: float, batch: float = np.nan, run_prior: RunPrior = RUN_PRIOR, count: int = _DRAWS
) -> Reals:
    """Return `count` draws of the seconds to the target of a further run on `workers`, with `batch` samples in a step.

    If the mini-batch is unknown, a worker's share of it is drawn: any between weak and strong scaling.
    """
    fitted = _Draws.of(runs, workers, batch, run_prior, count)
    weights = np.exp(fitted.log_weight - fitted.log_weight.max())
    random = np.random.default_rng(0)
    drawn = random.choice(count, count, p=weights / weights.sum())
    return np.asarray(np.exp(fitted.mean[drawn] + np.sqrt(fitted.variance)[drawn] * random.standard_normal(count)))


def fitted_task(runs: RunsToTarget, run_prior: RunPrior = RUN_PRIOR) -> Reals:
    """Return the logs of `Benchmark.overhead` and `critical_batch` fitted to `runs`, and their standard deviations."""
    fitted = _Draws.of(runs, runs.workers[-1], runs.batch[-1], run_prior, _DRAWS)
    weights = np.exp(fitted.log_weight - fitted.log_weight.max())
    scale = runs.batch[0] * np.array([1 / runs.workers[0] / runs.rate**run_prior.rate_power, 1])
    logs = np.log(np.column_stack([fitted.overhead, 1 / fitted.first_batch]) * scale)
    means = np.average(logs, axis=0, weights=weights)
    return np.array([means, np.sqrt(np.average((logs - means) ** 2, axis=0, weights=weights))])


@dataclass(frozen=True)
class _Draws:
    """Draws of the coefficients, each with its weight given the runs, and its prediction of a further run."""

    overhead: Reals
    first_batch: Reals
    log_weight: Reals
    mean: Reals
    """Mean of the logarithm of the further run's seconds."""
    variance: Reals

    @classmethod
    def of(cls, runs: RunsToTarget, workers: float, batch: float, run_prior: RunPrior, count: int) -> _Draws:
        """Return `count` draws, weighted by `runs`, for a further run on `workers` with a mini-batch of `batch`."""
        n = np.append(runs.workers, workers)
        b = np.append(runs.batch, batch) / n
        # Standard normal draws for the coefficients, the overhead's growth, and a worker's mini-batch if it is unknown.
        priors = run_prior.priors(runs)
        z, doublings = normal_points(len(priors) + 2, count, seed=1), np.log2(n / n[0])
        overhead, fixed, first, bend, drift = (
            (prior.median * np.exp(prior.spread * z[:, [place]])) for place, prior in enumerate(priors)
        )
        growth = run_prior.growth * np.abs(z[:, [len(priors)]])
        known = bool(np.isfinite(b).all())
        size_ratio = b[0] / b if known else np.exp(normal_cdf(z[:, [-1]]) * np.log(n / n[0]))
        step = np.log1p(overhead * size_ratio * (1 + growth) ** doublings) - doublings * np.log(2)
        batches = b * n / runs.batch[0] if known else np.ones(len(n))
        needed = np.log(law(np.ones_like(first), first * batches, bend))
        log_weight = np.zeros(len(z))
        spread = np.log(batches)
        if known and np.isfinite(runs.samples).all():
            samples = np.log(runs.samples)
            at, variance, log_weight = _next_value(
                samples, needed, spread, np.full_like(first, run_prior.misfit), run_prior.seeds
            )
            needed = np.column_stack([np.broadcast_to(samples, (len(z), len(samples))), at]) - samples[0]
        else:
            variance = np.full(len(z), 2 * run_prior.seeds**2 + run_prior.misfit**2 * abs(spread[-1] - spread[-2]))
        seconds = np.logaddexp(needed - needed[:, :1] + step - step[:, :1], np.log(fixed))
        at, more, other = _next_value(np.log(runs.seconds), seconds, doublings, drift, run_prior.repeats)
        return cls(overhead[:, 0], first[:, 0], log_weight + other, at, variance + more)


def _next_value(measured: Reals, curve: Reals, places: Reals, walk: Reals, noise: float) -> tuple[Reals, Reals, Reals]:
    """Return mean and variance of the next measurement, [draws], and the log density of those already `measured`.

    Measurements are the sum of `curve` [draws, measured and the next], an unknown level, a random walk along `places`
    with the standard deviation `walk` [draws, 1], and noise.
    """
    distances = np.abs(places - places[0])
    shared = np.minimum.outer(distances, distances)
    covariance = walk[:, :, None] ** 2 * shared[:-1, :-1] + noise**2 * np.eye(len(measured))
    inverse = np.linalg.inv(covariance)
    weights = inverse.sum(-1)
    total = weights.sum(-1)
    residuals = measured - curve[:, :-1]
    level = (residuals * weights).sum(-1) / total
    residuals = residuals - level[:, None]
    scaled_residuals = np.einsum("dij,dj->di", inverse, residuals)
    covariances_with_next = walk**2 * shared[-1, :-1]
    mean = curve[:, -1] + level + (scaled_residuals * covariances_with_next).sum(-1)
    rest = 1 - (weights * covariances_with_next).sum(-1)
    explained = np.einsum("di,dij,dj->d", covariances_with_next, inverse, covariances_with_next)
    variance = walk[:, 0] ** 2 * shared[-1, -1] - explained + rest**2 / total + noise**2
    determinant = np.linalg.slogdet(covariance)[1] + np.log(total)
    return mean, np.maximum(variance, 0.0), -((residuals * scaled_residuals).sum(-1) + determinant) / 2
