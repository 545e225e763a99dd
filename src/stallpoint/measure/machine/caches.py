"""Sizes of the machine's caches, as Linux or the GPU's driver reports them; timed matrix products are sized by them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from stallpoint.measure import constants

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Caches:
    """Sizes of caches, bytes; None if the machine does not report them."""

    core: int | None
    """Size of a core's largest private cache."""
    largest: int | None
    """Sum of the last-level caches that the threads of a process can fill."""

    @property
    def largest_bytes(self) -> int:
        """Bytes that fill the largest caches; a default if unknown."""
        return self.largest or constants.CACHE_UNKNOWN

    @property
    def core_bytes(self) -> int:
        """Bytes of a core's private cache; a default if unknown."""
        return self.core or constants.CORE_CACHE_UNKNOWN


@dataclass(frozen=True)
class _Cache:
    level: int
    size: int
    cpus: str
    """CPUs that share the cache."""


def caches(device: torch.device) -> Caches:
    """Return the caches of the GPU, or the caches that PyTorch's threads can fill on this process's CPUs."""
    if device.type == "cuda":
        return Caches(None, getattr(torch.cuda.get_device_properties(device), "L2_cache_size", None))
    return cpu_caches(os.sched_getaffinity(0), torch.get_num_threads())


def cpu_caches(cpus: Iterable[int], threads: int, root: Path = Path("/")) -> Caches:
    """Return the caches that `threads` on `cpus` can fill, read from /sys below `root`; shared caches count once."""
    found = {cache for cpu in cpus for cache in _data_caches(root / f"sys/devices/system/cpu/cpu{cpu}/cache")}
    if not found:
        return Caches(None, None)
    first, last = (end(cache.level for cache in found) for end in (min, max))
    # CPUs of one core share its first-level cache: so CPUs with the same first-level cache form a core.
    cores = {cache.cpus for cache in found if cache.level == first}
    own = [cache.size for cache in found if cache.cpus in cores]
    sizes = sorted((cache.size for cache in found if cache.level == last), reverse=True)
    return Caches(max(own), sum(sizes[:threads]))


def _data_caches(folder: Path) -> Iterator[_Cache]:
    """Yield the data caches of one CPU from its `folder` in /sys; caches of unknown size are left out."""
    for index in folder.glob("index*"):
        with suppress(OSError, ValueError, KeyError):
            type_, level, size, cpus = (
                (index / name).read_text().strip() for name in ("type", "level", "size", "shared_cpu_list")
            )
            if type_ != "Instruction":
                yield _Cache(int(level), int(size[:-1]) * _UNITS[size[-1]], cpus)
