"""Settings of the C library's allocator, for memory that is freed and allocated again in every iteration."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt."""


def keep_freed() -> None:
    """Keep freed memory of any size for the next iteration.

    By default glibc returns large blocks (128 KiB to 32 MiB and more) to the system when freed, so that every iteration
    has a page fault for each 4 KiB of activations and gradients: a large part of AlexNet's iteration. Nothing is done
    with other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)  # -1 is the largest unsigned number: no memory is returned
