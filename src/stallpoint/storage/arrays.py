"""Array files (``.npy``) that hold one sample after another.

Samples are read with ordinary reads, not through a memory map. The page cache cannot drop mapped pages, so that reads
from a cold cache could not be measured. (Format ``mapped`` unmaps its pages after each read.)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallpoint.errors import InputError


def array(path: Path) -> np.memmap[tuple[int, ...], np.dtype[Any]]:
    """Map the array file into memory, to read its header and labels."""
    try:
        mapped_array: np.memmap[tuple[int, ...], np.dtype[Any]] = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable array file ({error})") from error
    return mapped_array


def new_array(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    """Create an array file of its final size; its values are still 0."""
    np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape).flush()


def write_rows(path: Path, first: int, rows: Sequence[bytes]) -> None:
    """Write encoded rows into an array file, beginning at the row numbered `first`."""
    with path.open("r+b") as file:
        file.seek(array(path).offset + first * len(rows[0]))
        file.writelines(rows)
