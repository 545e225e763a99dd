"""Posterior of a law's coefficients by adaptive importance sampling, and its predictions.

Coefficients are functions of standard normal z (`laws.Prior`), so the prior is the first proposal. Each further
proposal is a Student t around the posterior found so far; the weights of draws are tempered until enough draws count.
All draws are kept, weighted by the mixture of all proposals (Cornuet et al. 2012, Adaptive multiple importance
sampling). Points are quasi-random with a fixed seed, so equal series give equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from stallpoint.base.statistics import Reals
from stallpoint.models.scaling.laws import Model
from stallpoint.models.scaling.noise import Continuation, Likelihood, log_sum_exp
from stallpoint.models.scaling.series_placement import Placements, Series
from stallpoint.models.scaling.sobol import normal_points

IntArray: TypeAlias = npt.NDArray[np.int64]

PRIOR_DRAWS, MORE_DRAWS = 1024, 512
MAX_ROUNDS = 6
ENOUGH_DRAWS = 250.0
"""Effective number of draws at which no further proposal is made."""
TEMPERED_DRAWS = 60.0
"""Effective number of draws to which a proposal is fitted."""
FREEDOM = 5
"""Degrees of freedom of a proposal: heavy tails, so that no part of the posterior is missed."""
PREDICTIVE_DRAWS = 2000
_ALL_DRAWS = slice(None)


@dataclass(frozen=True)
class Proposal:
    """Student t distribution with a mean and a triangular scale matrix."""

    mean: Reals
    scale: Reals

    def draws(self, seed: int) -> Reals:
        """Return `MORE_DRAWS` draws."""
        normal = normal_points(len(self.mean), MORE_DRAWS, seed)
        tail_factor = np.sqrt(FREEDOM / np.random.default_rng(seed).chisquare(FREEDOM, MORE_DRAWS))
        return np.asarray(self.mean + (normal * tail_factor[:, None]) @ self.scale.T)

    def log_density(self, z: Reals) -> Reals:
        """Return the log density at `z` [draws, coefficients]."""
        size = len(self.mean)
        square = (np.linalg.solve(self.scale, (z - self.mean).T) ** 2).sum(0)
        log_constant = gammaln((FREEDOM + size) / 2) - gammaln(FREEDOM / 2) - size / 2 * np.log(FREEDOM * np.pi)
        log_constant -= np.log(np.diag(self.scale)).sum()
        return np.asarray(log_constant - (FREEDOM + size) / 2 * np.log1p(square / FREEDOM))

    def log_draw_density(self, z: Reals) -> Reals:
        """Return the logarithm of the density times the proposal's number of draws."""
        return np.asarray(self.log_density(z) + np.log(MORE_DRAWS))


@dataclass(frozen=True)
class Posterior:
    """Posterior of a law's coefficients given a series."""

    model: Model
    series: Series
    z: Reals
    """[draws, coefficients]."""
    log_weight: Reals
    """[draws, grid of the noise]; the weights sum to one."""
    log_evidence: float
    """Log probability density of the series under the law."""

    def predict(
        self, placements: Placements, continuation: Continuation, seed: int = 0, which: slice | IntArray = _ALL_DRAWS
    ) -> Reals:
        """Return draws of new measurements, [draws, placements]: the logarithm of a worker's samples per second.

        `continuation` has the distribution of residuals there; `which` selects among `PREDICTIVE_DRAWS` draws.
        """
        draw, grid = (each[which] for each in self._drawn_indices(PREDICTIVE_DRAWS))
        known = self.series.log_rate + self.model.log_time(self.z[draw], self.series.places)
        normal = np.random.default_rng(seed).standard_normal((PREDICTIVE_DRAWS, len(placements)))[which]
        rates = continuation.deviation[grid] * normal - self.model.log_time(self.z[draw], placements)
        for index in np.unique(grid):
            rows = grid == index
            rates[rows] += known[rows] @ continuation.gain[index].T
        return rates + self.series.level

    def _drawn_indices(self, count: int) -> tuple[IntArray, IntArray]:
        """Return `count` samples of the weighted draws: the index of a draw and of a grid point for each."""
        weights = np.exp(self.log_weight).ravel()
        where = (np.arange(count) + 0.5) / count * weights.sum()
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), where), len(weights) - 1)
        draw, grid = np.unravel_index(chosen, self.log_weight.shape)
        return draw, grid


def posterior(model: Model, series: Series, likelihood: Likelihood) -> Posterior:
    """Return the posterior of the coefficients of `model` given `series`."""
    dimensions = len(model.priors)
    z = normal_points(dimensions, PRIOR_DRAWS, 1)
    log_densities = _log_density(model, series, likelihood, z)
    log_marginal = log_sum_exp(log_densities)
    proposals: list[Callable[[Reals], Reals]] = [lambda z: _log_prior(z) + np.log(PRIOR_DRAWS)]
    parts = [origin(z) for origin in proposals]
    while True:
        log_weight = log_marginal + _log_prior(z) - _log_mixture(parts)
        if len(proposals) > MAX_ROUNDS or _effective_draws(log_weight) >= ENOUGH_DRAWS:
            break
        proposal = _proposal(z, log_weight)
        more = proposal.draws(len(proposals))
        # Densities are kept: new draws are evaluated under all proposals, earlier draws under the new proposal only.
        parts = [np.concatenate([part, origin(more)]) for part, origin in zip(parts, proposals, strict=True)]
        z = np.concatenate([z, more])
        proposals.append(proposal.log_draw_density)
        parts.append(proposal.log_draw_density(z))
        log_densities = np.concatenate([log_densities, _log_density(model, series, likelihood, more)])
        log_marginal = np.concatenate([log_marginal, log_sum_exp(log_densities[-len(more) :])])
    log_total = log_sum_exp(log_weight)
    within = log_densities - log_marginal[:, None]
    return Posterior(model, series, z, within + (log_weight - log_total)[:, None], float(log_total - np.log(len(z))))


def _log_density(model: Model, series: Series, likelihood: Likelihood, z: Reals) -> Reals:
    return likelihood.log_density(series.log_rate + model.log_time(z, series.places))


def _log_prior(z: Reals) -> Reals:
    return np.asarray(-((z**2).sum(-1) + z.shape[1] * np.log(2 * np.pi)) / 2)


def _log_mixture(parts: list[Reals]) -> Reals:
    """Return the log density of the mixture of all proposals; `parts` has log(density · draws) of each proposal."""
    largest = np.maximum.reduce(parts)
    total = np.add.reduce([np.exp(part - largest) for part in parts])
    return np.asarray(np.log(total) + largest - np.log(len(largest)))


def _effective_draws(log_weight: Reals) -> float:
    return float(np.exp(2 * log_sum_exp(log_weight) - log_sum_exp(2 * log_weight)))


def _proposal(z: Reals, log_weight: Reals) -> Proposal:
    """Return a proposal by mean and covariance of the draws, tempered until `TEMPERED_DRAWS` draws are effective."""
    power = 1.0
    while _effective_draws(power * log_weight) < TEMPERED_DRAWS:
        power *= 0.7
    weights = np.exp(power * log_weight - log_sum_exp(power * log_weight))
    mean = weights @ z
    covariance = (z - mean).T @ ((z - mean) * weights[:, None])
    return Proposal(mean, np.asarray(np.linalg.cholesky(covariance + 1e-6 * np.eye(z.shape[1])), np.float64))
