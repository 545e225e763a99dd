"""How far the slowest of many workers lags, from how far measured ones did: all of them wait for it."""

from __future__ import annotations

import numpy as np

from stallpoint.models.base.statistics import Reals


def expected_lead(values: Reals, workers: int) -> float:
    """Expected maximum of `workers` draws from `values`: value number j of m is it with (j^n - (j-1)^n) / m^n."""
    if not len(values):
        return 0.0
    places = np.arange(len(values) + 1) / len(values)
    return float(np.sort(values) @ np.diff(places**workers))
