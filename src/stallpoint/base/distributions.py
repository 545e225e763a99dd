"""Quantiles and distribution functions, from `scipy.special`: importing `scipy.stats` takes longer than an answer.

Arguments are broadcast as in numpy; probabilities are from 0 to 1.
"""

from __future__ import annotations

import numpy as np
from scipy.special import fdtri, ndtr, ndtri, pdtr, pdtrik, stdtr, stdtrit

from stallpoint.base.statistics import Reals


def normal_cdf(z: Reals | float) -> Reals:
    """Return the probability that a standard normal draw is at most `z`."""
    return np.asarray(ndtr(z), np.float64)


def normal_quantile(p: Reals | float) -> Reals:
    """Return the `p` quantile of the standard normal distribution."""
    return np.asarray(ndtri(p), np.float64)


def student_cdf(t: Reals | float, freedom: Reals | float) -> Reals:
    """Return the probability that a draw of Student's t with `freedom` degrees of freedom is at most `t`."""
    return np.asarray(stdtr(freedom, t), np.float64)


def student_quantile(p: Reals | float, freedom: Reals | float) -> Reals:
    """Return the `p` quantile of Student's t with `freedom` degrees of freedom."""
    return np.asarray(stdtrit(freedom, p), np.float64)


def fisher_quantile(p: float, numerator_freedom: float, denominator_freedom: float) -> float:
    """Return the `p` quantile of the F distribution, by degrees of freedom of its numerator and its denominator."""
    return float(fdtri(numerator_freedom, denominator_freedom, p))


def poisson_quantile(p: float, mean: float) -> int:
    """Return the `p` quantile of the Poisson distribution."""
    count = max(int(np.ceil(pdtrik(p, mean))), 0)
    return count - 1 if count and pdtr(count - 1, mean) >= p else count
