"""Computing times that are possible together: more samples never take less time, nor does any sample get dearer.

A worker that computes a mini-batch of 2b computes b twice at worst, so for b < b':

    t(b) <= t(b') <= (b'/b) · t(b)

What was measured may say otherwise: a slow spell of the machine at one b makes another b look superlinear.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stallpoint.models.base.statistics import LEAST_SCATTER, Ensemble, Reals

_SWEEPS = 60  # of Dykstra's algorithm, which converges geometrically
_CLOSE = 1e-6  # in logarithms


def corrections(batches: Sequence[int], seconds: Ensemble) -> Ensemble:
    """Factors that make `seconds` [1 + REPLICATES, len(batches)] possible; 1 where they are.

    The nearest possible times, by squares of logarithms over the variance of each: what is uncertain gives way. What
    is not a positive number stays as it is.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(seconds)
    factors = np.ones_like(seconds)
    usable = np.isfinite(logs).all(-1)
    if len(batches) > 1 and usable.all():
        variance = np.maximum(logs[1:].var(0), LEAST_SCATTER**2)
        wrong = _violation(logs, batches) > _CLOSE
        factors[wrong] = np.exp(_nearest(logs[wrong], batches, variance) - logs[wrong])
    return factors


def _violation(logs: Reals, batches: Sequence[int]) -> Reals:
    """How far neighbours are from being possible together, at worst."""
    steps, most = np.diff(logs), np.diff(np.log(np.asarray(batches, dtype=np.float64)))
    return np.asarray(np.maximum(-steps, steps - most).max(-1))


def _nearest(logs: Reals, batches: Sequence[int], variance: Reals) -> Reals:
    """Projection on the steps that are possible (Dykstra 1983, "An algorithm for restricted least squares")."""
    most = np.diff(np.log(np.asarray(batches, dtype=np.float64)))
    found, owed = logs.copy(), np.zeros((len(most), *logs.shape))
    for _ in range(_SWEEPS):
        for left, step in enumerate(most):
            tried = found + owed[left]
            apart = tried[:, left + 1] - tried[:, left]
            over = apart - np.clip(apart, 0.0, step)
            both = variance[left] + variance[left + 1]
            found = tried.copy()
            found[:, left] += over * variance[left] / both
            found[:, left + 1] -= over * variance[left + 1] / both
            owed[left] = tried - found
        if (_violation(found, batches) <= _CLOSE).all():
            break
    for left, step in enumerate(most):  # what the sweeps left
        found[:, left + 1] = np.clip(found[:, left + 1], found[:, left], found[:, left] + step)
    return found
