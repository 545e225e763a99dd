"""Use of the device's library of kernels: cuDNN on a GPU, oneDNN on a CPU."""

from __future__ import annotations

from typing import Any

import torch

from stallpoint.errors import CannotRun
from stallpoint.study.cells import Cell

_BACKENDS: Any = torch.backends


def choose(cell: Cell) -> None:
    """Turn the libraries on or off as the cell says; `CannotRun` if PyTorch lacks a library that it is to use."""
    if cell.cudnn and not _BACKENDS.cudnn.is_available():
        raise CannotRun("this PyTorch has no cuDNN, or finds none (cudnn: true)")
    if cell.onednn and not _BACKENDS.mkldnn.is_available():
        raise CannotRun("this PyTorch was built without oneDNN (onednn: true)")
    _BACKENDS.cudnn.enabled = cell.cudnn is not False
    _BACKENDS.mkldnn.set_flags(_enabled=cell.onednn is not False)
