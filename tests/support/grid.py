"""The time between points of the grid that the report's sliders ask, as they interpolate it."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from stallpoint.models.answers.what_if import INTERPOLATED


def interpolated(grid: pd.DataFrame, factors: Mapping[str, float]) -> float:
    """Return the iteration time [s] at the factors `INTERPOLATED`, from rows of one curve, worker count and mini-
    batch."""
    ordered = grid.sort_values(list(INTERPOLATED))
    ticks = [np.unique(ordered[name]) for name in INTERPOLATED]
    value = np.log(ordered["iteration"].to_numpy()).reshape([len(at) for at in ticks])
    for name, at in zip(INTERPOLATED, ticks, strict=True):
        factor = np.clip(factors.get(name, 1.0), at[0], at[-1])
        below = int(np.clip(np.searchsorted(at, factor, side="right") - 1, 0, len(at) - 2))
        part = np.log(factor / at[below]) / np.log(at[below + 1] / at[below])
        value = (1 - part) * value[below] + part * value[below + 1]
    return float(np.exp(value))
