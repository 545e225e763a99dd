"""Loops that are compiled, or divided among processes, if they have many steps.

Kernels are plain functions on arrays. A kernel with few steps is not compiled: importing numba takes longer than
scheduling a thousand tasks, and neither planning nor an import of stallpoint should wait for numba.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item")
Result = TypeVar("Result")
Reals: TypeAlias = npt.NDArray[np.float64]

MIN_COMPILED_STEPS = 20_000
"""Number of steps above which a loop is compiled; to interpret so many takes about 20 ms."""


def kernel(function: Function, steps: int) -> Function:
    """Return `function`, compiled if it has more than `MIN_COMPILED_STEPS` `steps`."""
    return compiled(function) if steps > MIN_COMPILED_STEPS else function


@functools.cache
def compiled(function: Function) -> Function:
    """Return `function` compiled to machine code, which is cached on disk if possible.

    The compiled code assumes finite numbers, so that maxima can be vectorised. Without numba (of the extra `workflow`)
    the function itself is returned, which is slower.
    """
    try:
        import numba
    except ImportError:
        return function
    compiler_options: dict[str, Any] = {"nogil": True, "fastmath": {"nnan", "ninf", "nsz", "reassoc", "contract"}}
    try:
        compiled_function: Function = numba.njit(cache=True, **compiler_options)(function)
    except RuntimeError:  # numba finds no writable folder for its cache
        compiled_function = numba.njit(**compiler_options)(function)
    return compiled_function


MAX_PROCESSES = 4
"""Largest number of copies of a process, each of which may need as much memory as the process."""
MIN_LONG_ITEMS = 32
"""Number of items, of 10 ms or more, above which copies of a process save more time than starting them takes."""
MIN_SHORT_ITEMS = 500
"""The same number for items of a millisecond."""
_job: list[Any] = []


def for_each(function: Callable[[Item], Result], items: Iterable[Item], limit: int = MIN_LONG_ITEMS) -> list[Result]:
    """Return the result of `function` for each of `items`, in order. Above `limit` items, processes share the work.

    Results are pickled. `function` must not depend on the order of calls, and its side effects are lost.
    """
    items = list(items)
    processes = min(len(os.sched_getaffinity(0)), MAX_PROCESSES) if hasattr(os, "sched_getaffinity") else 1
    if processes == 1 or len(items) <= limit or _job:  # `_job` is set only in a forked copy, which must not fork
        return [function(item) for item in items]
    # A forked copy shares this process's memory, so that neither the function nor the items are pickled.
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings(), ProcessPoolExecutor(processes, context, _keep_work, (function, items)) as pool:
        # Python 3.12 warns of locks that other threads hold. The other threads here are Arrow's and Polars', and idle.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return list(pool.map(_result_at, range(len(items)), chunksize=max(1, len(items) // (8 * processes))))


def rows_of_each(
    function: Callable[[Item], Iterable[Result]], items: Iterable[Item], limit: int = MIN_LONG_ITEMS
) -> list[Result]:
    """Return the rows that `function` makes of all `items`, in order; processes share the work as in `for_each`."""
    return [row for rows in for_each(lambda item: list(function(item)), items, limit) for row in rows]


def _keep_work(function: Callable[[Item], Result], items: Sequence[Item]) -> None:
    _job[:] = function, items


def _result_at(position: int) -> Any:
    function, items = _job
    return function(items[position])


def refit(
    first: Reals, second: Reals, measured: Reals, count: Reals, found: Reals, refit_count: int, min_time: float
) -> None:
    """Fit two non-negative coefficients to each replicate, by the same steps as `non_negative_fits.quasi_poisson_fit`.

    The coefficients of `first` and `second` come into `found` [replicates, 2]; other arrays are [replicates, points].
    """
    for replicate in range(len(found)):
        fitted_values = first[replicate] + second[replicate]
        for round_ in range(refit_count):
            m11 = m12 = m22 = y1 = y2 = 0.0
            for point in range(len(fitted_values)):
                weight = count[replicate, point] / max(fitted_values[point], min_time)
                of_first, of_second = weight * first[replicate, point], weight * second[replicate, point]
                m11 += of_first * first[replicate, point]
                m12 += of_first * second[replicate, point]
                m22 += of_second * second[replicate, point]
                y1 += of_first * measured[replicate, point]
                y2 += of_second * measured[replicate, point]
            determinant = m11 * m22 - m12 * m12
            a = b = -1.0
            if determinant > 1e-12 * m11 * m22:
                a, b = (m22 * y1 - m12 * y2) / determinant, (m11 * y2 - m12 * y1) / determinant
            if a < 0 or b < 0:  # then one of the two best non-negative coefficients is 0
                a = max(y1 / m11, 0.0) if m11 > 0 else 0.0
                b = max(y2 / m22, 0.0) if m22 > 0 else 0.0
                if a * y1 > (1 + 1e-9) * b * y2:
                    b = 0.0
                else:
                    a = 0.0
            for point in range(len(fitted_values)):
                value = a * first[replicate, point] + b * second[replicate, point]
                fitted_values[point] = value if round_ < refit_count // 2 else (fitted_values[point] + value) / 2
        found[replicate, 0], found[replicate, 1] = a, b
