"""Peak memory of training on a worker's host and GPU.

One process makes many visits, and keeps freed memory (`allocator.keep_freed`) and networks (`resident`) between visits.
So each visit begins by returning freed memory to the system, and by resetting the kernel's high-water mark of the
process (``VmHWM``, by ``/proc/self/clear_refs``, which needs no privilege). Networks kept for other visits, and memory
that these visits retain, are subtracted: the result is the peak of a process that trains nothing else.
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
"""Text that, written to clear_refs, resets the high-water mark (proc(5), Linux 4.0 and newer)."""
_CPU = torch.device("cpu")


class PeakMemory:
    """Meter of peak memory. It counts from its construction on; the network is built before."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        _give_back_freed()
        self._reset = _reset_peak()
        if self._reset:
            retained_bytes = _private_bytes() - _private_bytes_at_first()
            self._others = resident.network_bytes(_CPU) + retained_bytes
            self._process = status_bytes("VmRSS") - self._others
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def row(self, tensors: Mapping[str, Iterable[torch.Tensor]], *, kept: bool = True) -> dict[str, Any]:
        """Return the measured columns of `tables.PEAK_MEMORY`, bytes; `tensors` are the tensors of training by kind.

        A value is None if the system does not report it. `kept` is False if the trained network is a copy, and
        not the network itself that `resident` keeps for other visits.
        """
        sizes = {name: sum(one.nbytes for one in group) for name, group in tensors.items()}
        host = device = process = None
        if self._reset:
            own_weights = sizes["weights"] if self._device.type == "cpu" and kept else 0
            host, process = status_bytes("VmHWM") - self._others + own_weights, self._process
        if self._device.type == "cuda":
            others = resident.network_bytes(self._device) - (sizes["weights"] if kept else 0)
            device = torch.cuda.max_memory_allocated(self._device) - others
        return {"host_peak": host, "device_peak": device, "process": process, **sizes}


def _private_bytes() -> int:
    """Return the bytes of this process's private memory, without the networks that `resident` keeps."""
    return status_bytes("RssAnon") - resident.network_bytes(_CPU)


@cache
def _private_bytes_at_first() -> int:
    """Return the private memory at the first call, bytes: before training, when no visit has retained memory yet."""
    return _private_bytes()


def _give_back_freed() -> None:
    """Return freed memory to the system, which only glibc can do."""
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


def status_bytes(field: str) -> int:
    """Return the size in `field` of /proc/self/status, such as ``VmRSS``, in bytes."""
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
