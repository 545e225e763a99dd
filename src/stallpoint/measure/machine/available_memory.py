"""Memory that a worker may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stallpoint.measure.machine.sensors import groups

if TYPE_CHECKING:
    import torch

_NO_LIMIT = 2**62
"""Value from which a limit of cgroups v1 means no limit: the largest number of pages."""


def host_memory(sharing: int, given: int | None = None, root: Path = Path("/")) -> int:
    """Return the bytes of host memory that a worker may use.

    The `sharing` workers on this kernel share the machine's memory equally, or the smallest limit of this process's
    cgroups if that is lower. A scheduler may set a limit for each worker, `given`, which counts if it is even lower.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    part = min([machine, *limits(root)]) // sharing
    return part if given is None else min(part, given)


def gpu_memory(device: torch.device) -> int | None:
    """Return the bytes of GPU memory for this process's tensors: free bytes, and bytes PyTorch holds; None on a CPU."""
    if device.type != "cuda":
        return None
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device))


def limits(root: Path) -> list[int]:
    """Return the memory limits of this process's cgroup and of its parents, bytes."""
    files = [
        folder / name
        for folders in groups(root, "memory")
        for folder in folders
        for name in ("memory.limit_in_bytes", "memory.max")
    ]
    texts = [file.read_text().strip() for file in files if file.exists()]
    return [int(text) for text in texts if text.isdecimal() and int(text) < _NO_LIMIT]
