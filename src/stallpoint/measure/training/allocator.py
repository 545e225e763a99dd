"""Settings of the C library's allocator for memory that is freed and allocated again in every iteration."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt."""


def keep_freed() -> None:
    """Keep freed memory for the next iteration, whatever its size.

    By default glibc gets large blocks (128 KiB to 32 MiB and more) from the system one by one and gives them back
    when they are freed, so that every iteration takes a page fault for each 4 KiB of activations and gradients:
    a large part of AlexNet's iteration. Does nothing with other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)  # as an unsigned number: never trim
