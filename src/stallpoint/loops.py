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

WORTH_COMPILING = 20_000
"""Number of steps above which a loop is compiled; to interpret so many takes about 20 ms."""


def kernel(function: Function, steps: int) -> Function:
    """Return `function`, compiled if it has more than `WORTH_COMPILING` `steps`."""
    return compiled(function) if steps > WORTH_COMPILING else function


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
    options: dict[str, Any] = {"nogil": True, "fastmath": {"nnan", "ninf", "nsz", "reassoc", "contract"}}
    try:
        compiled_one: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache is writable
        compiled_one = numba.njit(**options)(function)
    return compiled_one


MAX_PROCESSES = 4
"""Largest number of copies of a process, each of which may need as much memory as the process."""
WORTH_COPYING = 32
"""Number of items, of 10 ms or more, above which copies of a process save more time than starting them takes."""
WORTH_COPYING_SHORT = 500
"""The same number for items of a millisecond."""
_shared: list[Any] = []


def for_each(function: Callable[[Item], Result], items: Iterable[Item], few: int = WORTH_COPYING) -> list[Result]:
    """Return the result of `function` for each of `items`, in order. Processes share the work on more than `few` items.

    Results are pickled. `function` must not depend on the order of calls, and its side effects are lost.
    """
    items = list(items)
    processes = min(len(os.sched_getaffinity(0)), MAX_PROCESSES) if hasattr(os, "sched_getaffinity") else 1
    if processes == 1 or len(items) <= few or _shared:  # `_shared` is set in copies
        return [function(item) for item in items]
    # A forked copy shares this process's memory, so that neither the function nor the items are pickled.
    copies = multiprocessing.get_context("fork")
    with warnings.catch_warnings(), ProcessPoolExecutor(processes, copies, _share, (function, items)) as pool:
        # Python 3.12 warns of locks of other threads. These are Arrow's and Polars', which are idle meanwhile.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return list(pool.map(_result_at, range(len(items)), chunksize=max(1, len(items) // (8 * processes))))


def rows_of_each(
    function: Callable[[Item], Iterable[Result]], items: Iterable[Item], few: int = WORTH_COPYING
) -> list[Result]:
    """Return the rows that `function` makes of all `items`, in order; processes share the work as in `for_each`."""
    return [row for rows in for_each(lambda item: list(function(item)), items, few) for row in rows]


def _share(function: Callable[[Item], Result], items: Sequence[Item]) -> None:
    _shared[:] = function, items


def _result_at(position: int) -> Any:
    function, items = _shared
    return function(items[position])


def refit(
    first: Reals, second: Reals, observed: Reals, count: Reals, found: Reals, refits: int, shortest: float
) -> None:
    """Fit two non-negative coefficients to each replicate, by the same steps as `non_negative_fits.quasi_poisson_fit`.

    They fill `found` [replicates, 2]. `first` and `second` are the design; all other arrays are [replicates, points].
    """
    for at in range(len(found)):
        fitted = first[at] + second[at]
        for round_ in range(refits):
            aa = ab = bb = ra = rb = 0.0
            for point in range(len(fitted)):
                weight = count[at, point] / max(fitted[point], shortest)
                of_first, of_second = weight * first[at, point], weight * second[at, point]
                aa += of_first * first[at, point]
                ab += of_first * second[at, point]
                bb += of_second * second[at, point]
                ra += of_first * observed[at, point]
                rb += of_second * observed[at, point]
            determinant = aa * bb - ab * ab
            a = b = -1.0
            if determinant > 1e-12 * aa * bb:
                a, b = (bb * ra - ab * rb) / determinant, (aa * rb - ab * ra) / determinant
            if a < 0 or b < 0:  # the best non-negative pair has a coefficient 0
                a = max(ra / aa, 0.0) if aa > 0 else 0.0
                b = max(rb / bb, 0.0) if bb > 0 else 0.0
                if a * ra > (1 + 1e-9) * b * rb:
                    b = 0.0
                else:
                    a = 0.0
            for point in range(len(fitted)):
                now = a * first[at, point] + b * second[at, point]
                fitted[point] = now if round_ < refits // 2 else (fitted[point] + now) / 2
        found[at, 0], found[at, 1] = a, b
