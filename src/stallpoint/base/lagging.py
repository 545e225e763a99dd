"""Lagging ranks, which are slower than others in every iteration: their lag counts as straggling, not as computing.

A mean over all p ranks would count a p-th of one rank's lag as computing. Jitter, which slows down a different rank in
each iteration, stays in the mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

OWN_PARTS = ("data_wait", "host_to_device", "forward", "backward")
"""Parts of an iteration in which a worker waits for no other worker."""
STANDARD_ERRORS = 3.0
"""Standard errors over iterations by which a rank's time must exceed that of the reference rank."""
WAITED_FRACTION = 0.5
"""Fraction of the lag that other ranks must spend waiting in communication. Pipeline stages, and workers that do not
wait for each other, may differ without anyone lagging."""
_ROUNDING = 1e-6
_SILENT_CELL_RATIO = 1e-3
"""Largest ratio of communication calls to computing time in a cell that sends no data."""


def lagging(seconds: npt.ArrayLike, cells: pd.Series, steps: pd.Series, ranks: pd.Series) -> npt.NDArray[np.bool_]:
    """Return whether each row belongs to a lagging rank; a row has the `seconds` of one rank in one step of a cell.

    A rank lags if it is slower than the reference rank of its cell: the median rank by mean time, or the faster of two.
    """
    times = np.asarray(seconds, dtype=np.float64)
    cell_codes, step_codes, rank_codes = _group_codes(cells), _group_codes(cells, steps), _group_codes(cells, ranks)
    means = _group_means(times, rank_codes)
    cell_of_rank = np.zeros(len(means), dtype=np.intp)
    cell_of_rank[rank_codes] = cell_codes
    rank_order = np.lexsort((means, cell_of_rank))
    count = np.bincount(cell_of_rank)
    is_reference = np.zeros(len(means), dtype=np.bool_)
    is_reference[rank_order[np.cumsum(count) - count + (count - 1) // 2]] = True
    reference_times = np.full(1 + step_codes.max(initial=-1), np.nan)
    rows = is_reference[rank_codes]
    reference_times[step_codes[rows]] = times[rows]
    reference_of_row = reference_times[step_codes]
    delays = times - reference_of_row
    mean, known_steps = _group_means(delays, rank_codes), _group_counts(delays, rank_codes)
    with np.errstate(invalid="ignore", divide="ignore"):
        # With a single step, the standard error is NaN, and no rank counts as lagging.
        error = np.sqrt(_group_means((delays - mean[rank_codes]) ** 2, rank_codes) / (known_steps - 1))
        rank_lags = mean > np.maximum(STANDARD_ERRORS * error, _ROUNDING * _group_means(reference_of_row, rank_codes))
    return np.asarray(rank_lags[rank_codes], dtype=np.bool_)


def _group_codes(*columns: pd.Series) -> npt.NDArray[np.intp]:
    """Return an index from 0 for each row; rows with the same values in `columns` have the same index."""
    codes = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        column_codes, values = pd.factorize(column, sort=True)
        codes = codes * len(values) + column_codes
    return np.unique(codes, return_inverse=True)[1]


def _group_counts(values: npt.NDArray[np.float64], group: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return np.bincount(group, ~np.isnan(values)).astype(np.intp)


def _group_means(values: npt.NDArray[np.float64], group: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(group, np.nan_to_num(values)) / _group_counts(values, group))


def is_waited_for(iterations: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return whether each row of the table ``iterations`` belongs to a lagging rank for which other ranks wait.

    In cells without communication no rank waits, but lagging ranks are marked too: interventions that exclude
    communication are compared by ranks that do not lag.
    """
    own_times, cells = iterations[list(OWN_PARTS)].sum(axis=1), iterations["cell"]
    is_lagging = lagging(own_times, cells, iterations["iteration"], iterations["rank"])
    if not is_lagging.any():
        return is_lagging
    times = iterations[["exposed_communication", "communication", "iteration_time"]].set_axis(
        ["waits", "sends", "takes"], axis="columns"
    )
    rows_by_rank = times.assign(own=own_times).groupby(
        [cells, iterations["rank"], pd.Series(is_lagging, iterations.index, name="lags")], observed=True
    )
    rank_means = rows_by_rank.mean().reset_index()
    other_means = rank_means[~rank_means["lags"]].groupby("cell", observed=True)[["own", "waits", "takes"]].mean()
    other_means = other_means.reindex(rank_means["cell"]).reset_index(drop=True)
    lag_to_wait = WAITED_FRACTION * (rank_means["own"] - other_means["own"])
    others_wait = other_means["waits"] - rank_means["waits"] >= lag_to_wait
    cell_groups = rank_means.groupby("cell", observed=True)
    is_silent = cell_groups["sends"].transform("max") <= _SILENT_CELL_RATIO * cell_groups["own"].transform("mean")
    is_silent &= rank_means["takes"] - other_means["takes"] >= lag_to_wait
    result = rank_means.assign(lags=rank_means["lags"] & (others_wait | is_silent)).set_index(["cell", "rank"])["lags"]
    return result.reindex(pd.MultiIndex.from_frame(iterations[["cell", "rank"]])).to_numpy(dtype=np.bool_)
