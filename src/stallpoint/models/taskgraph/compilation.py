"""Loops over millions of tasks, compiled by numba when there are that many.

Kernels are plain functions on arrays. Small inputs run them as they are: importing numba alone takes longer than
scheduling a thousand tasks, and neither planning nor an import of stallpoint should pay for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

WORTH_COMPILING = 20_000
"""Steps of a loop beyond which the compiled kernel is taken (about 20 ms of interpreting)."""


def kernel(function: Function, steps: int) -> Function:
    """`function`, compiled if it is to take many steps."""
    return compiled(function) if steps > WORTH_COMPILING else function


@functools.cache
def compiled(function: Function) -> Function:
    """`function` in machine code, kept on disk for later processes where there is a place to write.

    Numbers are known to be finite (graphs are checked), which lets maxima be taken several at a time. Without numba
    (which the extra `workflow` has) it is the function itself, slower.
    """
    try:
        import numba
    except ImportError:
        return function
    options: dict[str, Any] = {"nogil": True, "fastmath": {"nnan", "ninf", "nsz", "reassoc", "contract"}}
    try:
        compiled_one: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the source's folder nor the user's cache can be written
        compiled_one = numba.njit(**options)(function)
    return compiled_one
