"""Peak memory of training on a worker's host and GPU.

One process makes many visits, and keeps freed memory (`allocator.keep_freed`) and networks (`resident`) between them.
So each visit begins by returning freed memory to the system, and by resetting the kernel's high-water mark of the
process (``VmHWM``, by ``/proc/self/clear_refs``, which needs no privilege). Networks kept for other visits, and memory
retained by these visits, are subtracted: the residual is that of a process that trains nothing else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from stallpoint.measure import resident

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"
"""Command to clear_refs that resets the high-water mark (proc(5), Linux 4.0 and newer)."""
_CPU = torch.device("cpu")


class PeakMemory:
    """Peak memory since construction: to be constructed after the network, before all else that training needs."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        _give_back_freed()
        self._reset = _reset_peak()
        if self._reset:
            retained = _private() - _private_at_first()
            self._others = resident.held_bytes(_CPU) + retained
            self._process = status("VmRSS") - self._others
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def row(self, tensors: Mapping[str, Iterable[torch.Tensor]], *, kept: bool = True) -> dict[str, Any]:
        """Return the measured columns of `tables.PEAK_MEMORY`, with the `tensors` of training by kind.

        Values are bytes; None if the system does not report them. With `kept`, the trained weights are those of a
        network kept for other visits, not a copy.
        """
        sizes = {name: sum(one.nbytes for one in group) for name, group in tensors.items()}
        host = device = process = None
        if self._reset:
            own = sizes["weights"] if self._device.type == "cpu" and kept else 0
            host, process = status("VmHWM") - self._others + own, self._process
        if self._device.type == "cuda":
            others = resident.held_bytes(self._device) - (sizes["weights"] if kept else 0)
            device = torch.cuda.max_memory_allocated(self._device) - others
        return {"host_peak": host, "device_peak": device, "process": process, **sizes}


def _private() -> int:
    """Return the private memory of this process, without networks."""
    return status("RssAnon") - resident.held_bytes(_CPU)


@cache
def _private_at_first() -> int:
    """Return the private memory before this process first trained; any excess is retained by other visits."""
    return _private()


def _give_back_freed() -> None:
    """Return freed memory to the system, with glibc only."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def _reset_peak() -> bool:
    """Reset the process's high-water mark; return whether the kernel can reset and report it."""
    try:
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return "VmHWM:" in (_PROCESS / "status").read_text()


def status(field: str) -> int:
    """Return a size in /proc/self/status, bytes."""
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
