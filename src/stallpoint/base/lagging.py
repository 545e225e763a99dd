"""Lagging ranks, which are slower than others in every iteration: their lag counts as straggling, not as computing.

A mean over all p ranks would count a p-th of one rank's lag as computing. Jitter, which slows down a different rank in
each iteration, stays in the mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

OWN = ("data_wait", "host_to_device", "forward", "backward")
"""Parts of an iteration in which a worker waits for no other worker."""
SURE = 3.0
"""Standard errors over iterations by which a rank's time must exceed that of the reference rank."""
WAITED_FOR = 0.5
"""Fraction of the lag that other ranks must spend waiting in communication. Pipeline stages, and workers that do not
wait for each other, may differ without anyone lagging."""
_ROUNDING = 1e-6
_NO_COMMUNICATION = 1e-3
"""Largest ratio of communication calls to computing time in a cell that sends no data."""


def lagging(seconds: npt.ArrayLike, cells: pd.Series, steps: pd.Series, ranks: pd.Series) -> npt.NDArray[np.bool_]:
    """Return whether each row belongs to a lagging rank; a row has the `seconds` of one rank in one step of a cell.

    A rank lags if it is slower than the reference rank of its cell: the median rank by mean time, or the faster of two.
    """
    times = np.asarray(seconds, dtype=np.float64)
    cell, of_step, of_rank = _codes(cells), _codes(cells, steps), _codes(cells, ranks)
    means = _means(times, of_rank)
    cell_of = np.zeros(len(means), dtype=np.intp)
    cell_of[of_rank] = cell
    order = np.lexsort((means, cell_of))
    count = np.bincount(cell_of)
    is_reference = np.zeros(len(means), dtype=np.bool_)
    is_reference[order[np.cumsum(count) - count + (count - 1) // 2]] = True
    reference_times = np.full(1 + of_step.max(initial=-1), np.nan)
    rows = is_reference[of_rank]
    reference_times[of_step[rows]] = times[rows]
    reference = reference_times[of_step]
    longer = times - reference
    mean, known = _means(longer, of_rank), _counts(longer, of_rank)
    with np.errstate(invalid="ignore", divide="ignore"):
        # With a single step, the standard error is NaN, and no rank counts as lagging.
        error = np.sqrt(_means((longer - mean[of_rank]) ** 2, of_rank) / (known - 1))
        lags = mean > np.maximum(SURE * error, _ROUNDING * _means(reference, of_rank))
    return np.asarray(lags[of_rank], dtype=np.bool_)


def _codes(*columns: pd.Series) -> npt.NDArray[np.intp]:
    """Return an index from 0 for each row; rows with the same values in `columns` have the same index."""
    codes = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        each, values = pd.factorize(column, sort=True)
        codes = codes * len(values) + each
    return np.unique(codes, return_inverse=True)[1]


def _counts(values: npt.NDArray[np.float64], group: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return np.bincount(group, ~np.isnan(values)).astype(np.intp)


def _means(values: npt.NDArray[np.float64], group: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(group, np.nan_to_num(values)) / _counts(values, group))


def waited_for(iterations: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return whether each row of the table ``iterations`` belongs to a lagging rank for which other ranks wait.

    In cells without communication no rank waits. Lagging ranks are marked there, too: interventions that exclude
    communication are compared by ranks that do not lag.
    """
    own, cells = iterations[list(OWN)].sum(axis=1), iterations["cell"]
    lags = lagging(own, cells, iterations["iteration"], iterations["rank"])
    if not lags.any():
        return lags
    times = iterations[["exposed_communication", "communication", "iteration_time"]].set_axis(
        ["waits", "sends", "takes"], axis="columns"
    )
    both = times.assign(own=own).groupby(
        [cells, iterations["rank"], pd.Series(lags, iterations.index, name="lags")], observed=True
    )
    of_ranks = both.mean().reset_index()
    others = of_ranks[~of_ranks["lags"]].groupby("cell", observed=True)[["own", "waits", "takes"]].mean()
    others = others.reindex(of_ranks["cell"]).reset_index(drop=True)
    lag = WAITED_FOR * (of_ranks["own"] - others["own"])
    waited = others["waits"] - of_ranks["waits"] >= lag
    of_cells = of_ranks.groupby("cell", observed=True)
    silent = of_cells["sends"].transform("max") <= _NO_COMMUNICATION * of_cells["own"].transform("mean")
    silent &= of_ranks["takes"] - others["takes"] >= lag
    known = of_ranks.assign(lags=of_ranks["lags"] & (waited | silent)).set_index(["cell", "rank"])["lags"]
    return known.reindex(pd.MultiIndex.from_frame(iterations[["cell", "rank"]])).to_numpy(dtype=np.bool_)
