"""Array files (``.npy``) that hold one sample after another.

Samples are read, not memory-mapped: mapped pages cannot be dropped from the page cache, so that cold reads could not be
measured (format ``mapped`` unmaps its pages after each read).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError


def array(path: Path) -> np.memmap[tuple[int, ...], np.dtype[Any]]:
    """Return the array file memory-mapped, for its header and labels."""
    try:
        found: np.memmap[tuple[int, ...], np.dtype[Any]] = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable array file ({error})") from error
    return found


def new_array(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    """Create an array file of its final size, without values."""
    np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()


def write_rows(path: Path, first: int, rows: Sequence[bytes]) -> None:
    """Write rows into an array file, from row `first` on."""
    with path.open("r+b") as file:
        file.seek(array(path).offset + first * len(rows[0]))
        file.writelines(rows)
