"""Matrix products of a network's layers, in the hardware entry's precision (Keuper & Pfreundt, Table III).

A convolution consists of b·g equal products (b samples, g groups), an attention of one product for each sample
and head. All are computed one after the other in the same memory, as in Caffe with its column buffer. So to time a
layer once takes about as long as its forward pass. After `constants.SECONDS_PER_PRODUCT` a product is timed no more.

The same job calibrates the machine (layer type ``machine``) by three products: ``peak`` is a large square product;
``bandwidth`` multiplies a matrix larger than the caches by a vector; ``rows`` multiplies such a matrix by 1, 2, ...
rows, which shows the blocks of kernels and where the library changes the kernel. Sizes follow from the machine's
caches, and row counts end when the rate has settled. Samples are interleaved: every product once, then every product
again, so that a slow phase of the machine slows all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import torch

from stallpoint.measure import constants
from stallpoint.measure.clock import clock_for
from stallpoint.measure.device import device_of
from stallpoint.measure.machine.caches import caches
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training.precision import NUMBERS
from stallpoint.measure.world import World
from stallpoint.networks import network_of
from stallpoint.networks.products import Product, products
from stallpoint.records.tables import MACHINE, SGEMM
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.text import Progress

_rows: dict[tuple[torch.device, torch.dtype, int], int] = {}
"""Largest row count by device, number type and threads; found once in a process, so that all visits have the same."""


def reference(batch: int, size: Sequence[int]) -> Product:
    """Return the reference product of Keuper & Pfreundt's Fig. 9; `size` is its depth and number of columns."""
    depth, columns = size
    return Product("reference", "fully-connected", m=batch, k=depth, n=columns, operations=1)


def machine(device: torch.device, numbers: torch.dtype, largest: int) -> list[Product]:
    """Return the products that calibrate the machine: ``peak``, ``bandwidth``, and ``rows`` up to `largest` rows."""
    side, cache_bytes = constants.PEAK_SIDE[device.type], caches(device).largest_bytes
    memory = doubled(*constants.BANDWIDTH_BYTES[device.type], constants.BANDWIDTH_CACHES * cache_bytes)
    return [
        Product("peak", MACHINE, side, side, side, 1),
        Product("bandwidth", MACHINE, 1, side * 4, memory // (side * 4 * numbers.itemsize), 1),
        *(rows_product(m, device, numbers) for m in constants.ROWS if m <= largest),
    ]


def rows_product(m: int, device: torch.device, numbers: torch.dtype) -> Product:
    """Return the product named ``rows``, which calibrates the machine, for a left matrix with `m` rows."""
    size = doubled(*constants.ROWS_BYTES, constants.ROWS_CACHES * caches(device).largest_bytes)
    return Product("rows", MACHINE, m, constants.ROWS_DEEP, size // (constants.ROWS_DEEP * numbers.itemsize), 1)


def doubled(smallest: int, largest: int, wanted: int) -> int:
    """Return `smallest`, doubled until it reaches `wanted` or `largest`, so that similar machines get equal sizes."""
    size = smallest
    while size < min(wanted, largest):
        size *= 2
    return size


def settled_rows(rate: Callable[[int], float]) -> int:
    """Return the row count at which `rate` has settled. From `ROWS_LEAST` on, the count doubles until a doubling
    changes the rate by at most the share `ROWS_SETTLED`, or until the count reaches the last of `ROWS`."""
    rows, rate_before = constants.ROWS_LEAST, rate(constants.ROWS_LEAST // 2)
    while abs((rate_now := rate(rows)) / rate_before - 1) > constants.ROWS_SETTLED and rows < constants.ROWS[-1]:
        rows, rate_before = 2 * rows, rate_now
    return rows


def _largest_rows(world: World, device: torch.device, numbers: torch.dtype) -> int:
    """Return the row count at which rank 0's rate settles, while all ranks compute; measured once in a process."""
    key = device, numbers, torch.get_num_threads()
    known: int | None = world.comm.bcast(_rows.get(key))
    if known is None:
        matrices = _Matrices([rows_product(constants.ROWS[-1], device, numbers)], device, numbers)

        def rate(m: int) -> float:
            product = rows_product(m, device, numbers)
            times = [matrices.multiply(product) for _ in range(1 + constants.ROWS_SAMPLES)]
            return float(world.comm.bcast(m / min(times[1:])))

        known = settled_rows(rate)
    _rows[key] = known
    return known


def measure(cell: SgemmCell, world: World, recorder: Recorder) -> None:
    """Time the products of the layers and of the machine ``cell.samples`` times in a visit, after one warm-up.

    Equal products are measured once, under the first layer's name. All workers compute at once, as in training;
    rank 0 records its times.
    """
    network = network_of(cell.network, cell.own_network)
    layers = network.outline()
    device = device_of(cell)
    wanted = [
        (batch, product)
        for batch in cell.batches
        for product in [reference(batch, cell.size), *_distinct(products(layers, network.takes, batch))]
    ]
    numbers = NUMBERS[cell.precision]
    machine_products = machine(device, numbers, _largest_rows(world, device, numbers))
    wanted += [(product.m, product) for product in machine_products]
    shapes = [product for _, product in wanted]
    # The warm-up, too, is work whose progress is shown.
    operations = [product.floating_point_operations for product in shapes] * (1 + cell.samples)
    progress = Progress("product", operations, silent=world.rank > 0)
    first_sample = (recorder.visit - 1) * cell.samples
    begin = time.perf_counter()
    for index, sample, seconds in timed(shapes, cell.samples, device, numbers):
        progress.tell((1 + sample) * len(wanted) + index + 1)
        if world.rank == 0:
            batch, product = wanted[index]
            _record(recorder, product, batch, first_sample + sample, seconds)
    recorder.measuring += time.perf_counter() - begin


def _distinct(wanted: list[Product]) -> list[Product]:
    """Return the first of each group of products that differ only in the layer's name."""
    first: dict[tuple[int, ...], Product] = {}
    for product in wanted:
        first.setdefault((product.m, product.k, product.n, product.operations), product)
    return list(first.values())


class _Matrices:
    """Memory shared by the matrices of all `products`."""

    def __init__(self, products: Sequence[Product], device: torch.device, numbers: torch.dtype) -> None:
        sizes = [(product.m * product.k, product.k * product.n, product.m * product.n) for product in products]
        largest = map(max, zip(*sizes, strict=True))
        self._left, self._right, self._results = (torch.rand(size, device=device, dtype=numbers) for size in largest)
        self._clock = clock_for(device)

    def multiply(self, product: Product) -> float:
        """Multiply the matrices `product.operations` times; return the total time, s."""
        a = self._left[: product.m * product.k].view(product.m, product.k)
        b = self._right[: product.k * product.n].view(product.k, product.n)
        result = self._results[: product.m * product.n].view(product.m, product.n)
        self._clock.wait()
        begin = time.perf_counter()
        for _ in range(product.operations):
            torch.mm(a, b, out=result)
        self._clock.wait()
        return time.perf_counter() - begin


def timed(
    wanted: Sequence[Product], samples: int, device: torch.device, numbers: torch.dtype = torch.float32
) -> Iterator[tuple[int, int, float]]:
    """Yield a product's index in `wanted`, its sample's number and its time, s; all products get a sample in turn."""
    matrices = _Matrices(wanted, device, numbers)
    total_seconds = [matrices.multiply(product) for product in wanted]
    for sample in range(samples):
        for index, product in enumerate(wanted):
            if sample < constants.MIN_SAMPLES or total_seconds[index] <= constants.SECONDS_PER_PRODUCT:
                seconds = matrices.multiply(product)
                total_seconds[index] += seconds
                yield index, sample, seconds


def _record(recorder: Recorder, product: Product, batch: int, sample: int, seconds: float) -> None:
    recorder.add(
        SGEMM,
        layer=product.name,
        layer_type=product.layer_type,
        worker_batch=batch,
        m=product.m,
        k=product.k,
        n=product.n,
        operations=product.operations,
        sample=sample,
        seconds=seconds,
        gflops=product.floating_point_operations / seconds / 1e9,
    )
