"""Array files (``.npy``) that hold one sample after another.

They are read in pieces, not memory-mapped: a mapped page cannot be dropped from the page cache, and cold reads could
not be measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stallpoint.errors import InputError


def array(path: Path) -> np.memmap[tuple[int, ...], np.dtype[Any]]:
    """The array file, mapped only to look at its header and labels."""
    try:
        found: np.memmap[tuple[int, ...], np.dtype[Any]] = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable array file ({error})") from error
    return found
