"""The device of a worker, its streams, and threads that use it.

Features of all accelerators go through `torch.accelerator`, `torch.Stream` and `torch.Event`; features of CUDA (and
ROCm, which has the same name in PyTorch) through `torch.cuda`.
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
    """Return the cell's device; a GPU is the one that `environment.choose_gpu` gave to this worker."""
    return torch.device(cell.device) if cell.device == "cpu" else torch.device(cell.device, current_device())


def has_streams(device: torch.device) -> bool:
    """Return whether `device` has streams. With streams, a call only queues work; on a CPU, a call also does it."""
    return device.type != "cpu"


def synchronize(device: torch.device) -> None:
    """Wait until all work on `device` is done."""
    if has_streams(device):
        torch.accelerator.synchronize(device)


@contextmanager
def in_stream(stream: torch.Stream | None) -> Iterator[None]:
    """Queue this thread's work within the block in `stream`, or in the current stream if `stream` is None.

    (`torch.Stream` is a context manager itself since PyTorch 2.7.)
    """
    if stream is None:
        yield
        return
    previous_stream = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(previous_stream)


def thread_for(device: torch.device, name: str) -> ThreadPoolExecutor:
    """Return an executor with one thread. The thread uses the GPU `device`; by default it would use the first GPU."""
    if has_streams(device):
        return ThreadPoolExecutor(1, name, initializer=set_device, initargs=(device,))
    return ThreadPoolExecutor(1, name)
