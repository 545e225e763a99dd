"""Draws and quantiles are those of `scipy.stats`, which the source does not import: it takes longer than an answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stallpoint.base import distributions
from stallpoint.models.scaling.sobol import MAX_DIMENSIONS, sobol

P = np.array([1e-9, 0.05, 0.5, 0.95, 1 - 1e-9])


@pytest.mark.parametrize("dimensions", range(1, MAX_DIMENSIONS + 1))
def test_sobol_points_are_those_of_scipy(dimensions: int) -> None:
    assert np.array_equal(sobol(dimensions, 512), stats.qmc.Sobol(dimensions, scramble=False).random(512))
    for seed in (1, 2):
        assert np.array_equal(sobol(dimensions, 1024, seed), stats.qmc.Sobol(dimensions, seed=seed).random(1024))


def test_quantiles_and_tails_are_those_of_scipy() -> None:
    z = np.linspace(-8, 8, 33)
    np.testing.assert_allclose(distributions.normal_cdf(z), stats.norm.cdf(z), rtol=1e-12)
    np.testing.assert_allclose(distributions.normal_quantile(P), stats.norm.ppf(P), rtol=1e-12, atol=1e-15)
    for freedom in (1, 2.5, 30):
        np.testing.assert_allclose(distributions.student_cdf(z, freedom), stats.t.cdf(z, freedom), rtol=1e-12)
        quantiles = distributions.student_quantile(P, freedom)
        np.testing.assert_allclose(quantiles, stats.t.ppf(P, freedom), rtol=1e-9, atol=1e-12)
    assert distributions.fisher_quantile(0.99, 3, 20) == pytest.approx(stats.f.ppf(0.99, 3, 20), rel=1e-12)


@pytest.mark.parametrize("mean", [0.0, 1e-6, 0.3, 1.0, 17.2, 4000.0])
def test_poisson_quantiles_are_those_of_scipy(mean: float) -> None:
    for p in (0.01, 0.5, 0.95, 0.999):
        assert distributions.poisson_quantile(p, mean) == stats.poisson.ppf(p, mean)
