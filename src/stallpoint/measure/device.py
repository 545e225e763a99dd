"""The device that a worker computes on, and threads that work for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from stallpoint.cells import Cell


def device_of(cell: Cell) -> torch.device:
    """The cell's device; a GPU is this worker's own (`environment.choose_gpu`), by its number."""
    return torch.device("cuda", torch.cuda.current_device()) if cell.device == "cuda" else torch.device(cell.device)


def thread_for(device: torch.device, name: str) -> ThreadPoolExecutor:
    """A thread to work for `device`: its current GPU would be the node's first, whatever that of the main thread is."""
    if device.type == "cuda":
        return ThreadPoolExecutor(1, name, initializer=torch.cuda.set_device, initargs=(device,))
    return ThreadPoolExecutor(1, name)
