"""Residuals of the laws: measurement noise, and a drift of the series away from any smooth law.

The logarithm of a rate is the sum of the law, a drift and noise. The noise has the standard deviation sigma. The drift
is a random walk in log2 of the workers (and of the nodes), with the standard deviation tau for each doubling. It widens
intervals with every extrapolated doubling, and carries the last deviation from the law forward. Sigma and tau have
priors on a grid, so the likelihood is a finite sum of normal densities. The unknown rate of a single worker has a flat
prior on its logarithm, and is integrated out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stallpoint.base.curve import SHARED
from stallpoint.base.statistics import Reals
from stallpoint.models.scaling.series_placement import Placements, Series, noise_grid


def log_sum_exp(log_terms: Reals) -> Reals:
    """Return the logarithm of the sum of exponentials over the last axis."""
    largest = log_terms.max(-1, keepdims=True)
    return np.asarray(np.log(np.exp(log_terms - largest).sum(-1)) + largest[..., 0])


def _drift(placements: Placements, others: Placements, across_nodes: bool) -> Reals:
    """Return the covariance of the drift between two sets of placements, [placements, others], in units of tau²."""
    shared = np.minimum.outer(np.log2(placements.workers), np.log2(others.workers))
    if across_nodes:
        shared = shared + np.minimum.outer(np.log2(placements.nodes), np.log2(others.nodes))
    return np.asarray(shared)


def _repeat_density(series: Series, points: Iterable[tuple[float, float]]) -> Reals:
    """Return the log density of the differences between repeats of a placement, [grid]."""
    variance = np.array([(1 - SHARED) * sigma**2 for sigma, _ in points])
    freedom = float((series.repeats - 1).sum())
    return np.asarray(-(freedom * np.log(2 * np.pi * variance) + float(series.squares.sum()) / variance) / 2)


@dataclass(frozen=True)
class Likelihood:
    """Normal densities of a series' residuals, one for each grid point of sigma and tau."""

    whitening: Reals
    """Matrix that makes residuals standard normal, without the single worker's rate, [grid, placements, placements]."""
    log_constant: Reals
    """[grid]."""

    @classmethod
    def of(cls, series: Series, across_nodes: bool) -> Likelihood:
        """Return the densities for the placements of `series`."""
        walk, noise, points = _drift(series.places, series.places, across_nodes), np.diag(series.noise), noise_grid()
        cholesky = np.linalg.cholesky(np.stack([s**2 * noise + t**2 * walk for s, t in points]))
        inverse = np.linalg.inv(cholesky)
        weights = inverse.sum(-1)
        square = (weights**2).sum(-1)
        level_projection = np.eye(len(series)) - weights[:, :, None] * weights[:, None, :] / square[:, None, None]
        log_determinant = 2 * np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(-1) + np.log(square)

        log_constant = -(log_determinant + (len(series) - 1) * np.log(2 * np.pi)) / 2 + _repeat_density(series, points)
        return cls(level_projection @ inverse, log_constant + np.log(list(points.values())))

    def log_density(self, residuals: Reals) -> Reals:
        """Return the log density of `residuals` [draws, placements] plus the log probability of each grid point,
        [draws, grid]."""
        grid, placements, _ = self.whitening.shape
        whitened_residuals = (residuals @ self.whitening.reshape(grid * placements, placements).T).reshape(
            len(residuals), grid, placements
        )
        return np.asarray(self.log_constant - np.einsum("dgp,dgp->dg", whitened_residuals, whitened_residuals) / 2)


@dataclass(frozen=True)
class Continuation:
    """Distribution of residuals at new placements, given the residuals of a series: normal at each grid point."""

    gain: Reals
    """Mean at new placements per residual at old ones, [grid, new placements, placements]."""
    deviation: Reals
    """Standard deviation of a new measurement, [grid, new placements]."""

    @classmethod
    def of(cls, series: Series, new: Placements, across_nodes: bool) -> Continuation:
        """Return the distribution of residuals at the placements `new`, given those of `series`."""
        walk, noise = _drift(series.places, series.places, across_nodes), np.diag(series.noise)
        covariance_with_new = _drift(new, series.places, across_nodes)
        drift_variance = np.log2(new.workers) + (np.log2(new.nodes) if across_nodes else 0.0)
        gains, deviations = [], []
        for sigma, tau in noise_grid():
            inverse = np.linalg.inv(sigma**2 * noise + tau**2 * walk)
            follow = tau**2 * covariance_with_new @ inverse
            level = inverse.sum(0) / inverse.sum()
            rest = 1 - follow.sum(-1)
            gains.append(follow + rest[:, None] * level)
            variance = tau**2 * (drift_variance - (follow * covariance_with_new).sum(-1)) + rest**2 / inverse.sum()
            deviations.append(sigma * np.sqrt(1 + np.maximum(variance, 0.0) / sigma**2))
        return cls(np.stack(gains), np.stack(deviations))
