"""Waiting for the slowest of n, against what is known of the largest of n draws."""

import numpy as np
import pytest

from stallpoint.models.terms.effects import expected_lead

MEASURED = 20_000
SHARES = (np.arange(MEASURED) + 0.5) / MEASURED


@pytest.mark.parametrize("workers", [1, 2, 10, 100])
def test_the_largest_of_n_exponentials_has_mean_h_n(workers: int) -> None:
    """Renyi (1953)."""
    harmonic = sum(1 / number for number in range(1, workers + 1))
    assert expected_lead(-np.log1p(-SHARES), workers) == pytest.approx(harmonic, rel=2e-3)


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_the_largest_of_n_uniforms_is_beta_distributed(workers: int) -> None:
    assert expected_lead(SHARES, workers) == pytest.approx(workers / (workers + 1), rel=1e-3)


def test_nothing_beyond_what_was_measured_is_expected() -> None:
    assert expected_lead(np.array([3.0, 1.0, 2.0]), 10**6) == pytest.approx(3.0)
    assert expected_lead(np.array([]), 4) == 0
