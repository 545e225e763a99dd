"""The same work again and again, at both ends of each visit: where its time changes, the machine did, and not the cell.

A product of matrices that stay in a core's own cache tells about the cores and their clock, a small all-reduce about
the network and about ranks that do not get a core. Together they take some 0.2 s.
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

_MOST = 2**20

_sentinels: dict[tuple[int, str], Sentinel] = {}
_products: dict[str, int] = {}
"""How many products this process does, by type of device: counted once, so that the times of all visits compare."""


def sentinel_of(world: World, device: torch.device) -> Sentinel:
    """The sentinel of these ranks, who ask for it together; made once for each world and device."""
    key = world.comm.handle, device.type
    if key not in _sentinels:
        _sentinels[key] = Sentinel(world, device)
    return _sentinels[key]


def side_of(device: str, known: Caches) -> int:
    """Side of square matrices of which three fill a part of a core's own cache; on a GPU, of some that fill it."""
    values = constants.SENTINEL_CACHE * known.kept_by_core / (3 * np.dtype(np.float32).itemsize)
    step = constants.SENTINEL_STEP
    return constants.SENTINEL_SIDE.get(device, max(step, math.isqrt(int(values)) // step * step))


class Sentinel:
    """The fixed work of the ranks of `world`, who make it together; they do as many products as rank 0 found right.

    A process does the same number of products in all worlds, and the same number of all-reduces in one.
    """

    def __init__(self, world: World, device: torch.device) -> None:
        self._comm, self._device = world.comm, device
        side = self.side = side_of(device.type, caches(device))
        self._left, self._right = (torch.rand(side, side, device=device) for _ in range(2))
        self._result = torch.empty(side, side, device=device)
        self._values, self._sums = np.zeros((2, constants.SENTINEL_VALUES), np.float32)
        # Rank 0 of a world of fewer ranks is the same process, so that all agree with what they did before.
        known = world.comm.bcast(_products.get(device.type))
        self.products = _products[device.type] = known or self._counted(self._multiply)
        self.all_reduces = self._counted(self._all_reduce) if world.size > 1 else 0

    def run(self) -> dict[str, float | None]:
        """Seconds of this rank: ``product_seconds`` for `SENTINEL_PRODUCTS`, ``all_reduce_seconds`` (None for one)."""
        return {
            "product_seconds": self._multiply(self.products) * constants.SENTINEL_PRODUCTS / self.products,
            "all_reduce_seconds": self._all_reduce(self.all_reduces) if self.all_reduces else None,
        }

    def _counted(self, work: Callable[[int], float]) -> int:
        """How many times all ranks are to do it; they do it now, as all ranks compute at once later on."""
        count = 1
        work(count)  # the first time is longer
        while (seconds := float(self._comm.bcast(work(count)))) < constants.SENTINEL_PROBE and count < _MOST:
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
