"""The device that a worker computes on, its streams, and threads that work for it.

Features of every accelerator go through `torch.accelerator`, `torch.Stream` and `torch.Event`; those of CUDA only (and
ROCm, which PyTorch gives the same name) are read from `torch.cuda` where they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from stallpoint.study.cells import Cell

set_device = getattr(torch.accelerator, "set_device_index", None) or torch.accelerator.set_device_idx
current_device = getattr(torch.accelerator, "current_device_index", None) or torch.accelerator.current_device_idx
"""Functions named differently before PyTorch 2.7."""


def device_of(cell: Cell) -> torch.device:
    """Return the cell's device; a GPU is this worker's own (`environment.choose_gpu`), by its number."""
    return torch.device(cell.device) if cell.device == "cpu" else torch.device(cell.device, current_device())


def has_streams(device: torch.device) -> bool:
    """Return whether work waits in streams of `device` when the call that asks for it returns; on a CPU it is done."""
    return device.type != "cpu"


def synchronize(device: torch.device) -> None:
    """Wait until all work on `device` is done."""
    if has_streams(device):
        torch.accelerator.synchronize(device)


@contextmanager
def in_stream(stream: torch.Stream | None) -> Iterator[None]:
    """Put the work of this thread in the block into `stream`; None: the current one.

    (`torch.Stream` is a context manager itself since PyTorch 2.7.)
    """
    if stream is None:
        yield
        return
    before = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


def thread_for(device: torch.device, name: str) -> ThreadPoolExecutor:
    """Return an executor of one thread whose current GPU is `device`: that of a new thread is the node's first."""
    if has_streams(device):
        return ThreadPoolExecutor(1, name, initializer=set_device, initargs=(device,))
    return ThreadPoolExecutor(1, name)
