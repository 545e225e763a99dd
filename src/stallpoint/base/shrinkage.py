"""Shrinkage of uncertain quantities towards a usual value, or towards each other."""

from __future__ import annotations

import numpy as np

from stallpoint.base.statistics import MAX_FACTOR, SAME_WITHIN, Ensemble, Reals

_SMALLEST_SCATTER = 1e-4


def shrink_to_one(factor: Ensemble, prior_deviation: float, deviation: Ensemble | float = 0.0) -> Ensemble:
    """Shrink an uncertain factor towards 1: its logarithm has a normal prior with standard deviation `prior_deviation`.

    `deviation` is a further standard deviation of the logarithm, besides the scatter of the factor's replicates.
    """
    logs = np.log(np.clip(factor, 1 / MAX_FACTOR, MAX_FACTOR))
    return np.asarray(np.exp(logs * prior_deviation**2 / (prior_deviation**2 + logs[1:].var() + np.square(deviation))))


def shrink_to_each_other(values: Reals, deviations: Reals) -> Reals:
    """Return the expected true values of related quantities, given measured `values` and their standard `deviations`.

    True values are modelled as normal with unknown mean and unknown scatter; the prior of the scatter falls off beyond
    `SAME_WITHIN` (half-Cauchy; Gelman 2006). Values are thus shrunk towards each other. The largest of many values that
    differ only by chance is corrected for its selection (Efron & Morris 1975); a surely larger value stays larger.
    """
    scatters = np.concatenate([[0.0], np.geomspace(_SMALLEST_SCATTER, 1.0, 100)])
    total = deviations**2 + scatters[:, None] ** 2
    precisions = (1 / total).sum(axis=1)
    means = (values / total).sum(axis=1) / precisions
    logs = -(np.log(total).sum(axis=1) + np.log(precisions) + ((values - means[:, None]) ** 2 / total).sum(axis=1)) / 2
    weights = np.exp(logs - logs.max()) * np.gradient(scatters) / (1 + (scatters / SAME_WITHIN) ** 2)
    expected_values = means[:, None] + (scatters[:, None] ** 2 / total) * (values - means[:, None])
    return np.asarray(weights @ expected_values / weights.sum())
