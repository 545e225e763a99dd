"""Sentinel: the same work before and after each visit. If its time changes, the machine has become slower or faster.

A product of matrices in a core's own cache shows the speed of the cores. A small all-reduce shows the speed of the
network, and whether ranks wait for a core. Both together take some 0.2 s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from stallpoint.measure import constants
from stallpoint.measure.device import synchronize
from stallpoint.measure.machine.caches import Caches, caches
from stallpoint.measure.world import World

_MAX_REPEATS = 2**20

_sentinels: dict[tuple[int, str], Sentinel] = {}
_products: dict[str, int] = {}
"""Number of products by type of device; chosen once in a process, so that times of its visits can be compared."""


def sentinel_of(world: World, device: torch.device) -> Sentinel:
    """Return the sentinel of the ranks of `world`, made once for each world and device; called on all ranks."""
    key = world.comm.handle, device.type
    if key not in _sentinels:
        _sentinels[key] = Sentinel(world, device)
    return _sentinels[key]


def side_of(device: str, cache_sizes: Caches) -> int:
    """Return the side of the square matrices. On a CPU three of them fill a part of a core's own cache; on a GPU they
    are large enough to keep it busy."""
    values = constants.SENTINEL_CACHE * cache_sizes.core_bytes / (3 * np.dtype(np.float32).itemsize)
    step = constants.SENTINEL_STEP
    return constants.SENTINEL_SIDE.get(device, max(step, math.isqrt(int(values)) // step * step))


class Sentinel:
    """Constant work of the ranks of `world`: matrix products and all-reduces. Rank 0 chooses their numbers.

    A process keeps the number of products for later visits; a world keeps the number of all-reduces.
    """

    def __init__(self, world: World, device: torch.device) -> None:
        self._comm, self._device = world.comm, device
        side = self.side = side_of(device.type, caches(device))
        self._left, self._right = (torch.rand(side, side, device=device) for _ in range(2))
        self._result = torch.empty(side, side, device=device)
        self._values, self._sums = np.zeros((2, constants.SENTINEL_VALUES), np.float32)
        # All ranks take rank 0's number, so that they compute equally long.
        known = world.comm.bcast(_products.get(device.type))
        self.products = _products[device.type] = known or self._repetitions(self._multiply)
        self.all_reduces = self._repetitions(self._all_reduce) if world.size > 1 else 0

    def run(self) -> dict[str, float | None]:
        """Do the work and return this rank's times, s: ``product_seconds`` of `SENTINEL_PRODUCTS` products, and
        ``all_reduce_seconds`` (None for one rank)."""
        return {
            "product_seconds": self._multiply(self.products) * constants.SENTINEL_PRODUCTS / self.products,
            "all_reduce_seconds": self._all_reduce(self.all_reduces) if self.all_reduces else None,
        }

    def _repetitions(self, work: Callable[[int], float]) -> int:
        """Return the number of repetitions that take `SENTINEL_SECONDS` while all ranks work, equal on all ranks."""
        count = 1
        work(count)  # a warm-up, as the first call takes longer
        while (seconds := float(self._comm.bcast(work(count)))) < constants.SENTINEL_PROBE and count < _MAX_REPEATS:
            count *= 2
        return max(1, round(count * constants.SENTINEL_SECONDS / seconds))

    def _multiply(self, count: int) -> float:
        self._comm.Barrier()
        begin = time.perf_counter()
        for _ in range(count):
            torch.mm(self._left, self._right, out=self._result)
        synchronize(self._device)
        return time.perf_counter() - begin

    def _all_reduce(self, count: int) -> float:
        self._comm.Barrier()
        begin = time.perf_counter()
        for _ in range(count):
            self._comm.Allreduce(self._values, self._sums)
        return time.perf_counter() - begin
