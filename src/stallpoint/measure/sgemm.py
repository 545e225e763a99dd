"""Matrix products, in the precision of the hardware entry, of a network's layers (Keuper & Pfreundt, Table III).

All b·g products of a convolution (and those of all samples and heads of an attention) are really done, one after the
other and in the same memory, as Caffe does them with its column buffer. So a cell takes about ``samples`` times the
forward passes at all its mini-batches, at most `SECONDS_PER_PRODUCT` for each.

The same job measures what the machine can do (layer type ``machine``): ``peak``, a large square product, ``bandwidth``,
a matrix that no cache holds times a vector, and ``rows``, a large matrix at many counts of rows, which show the blocks
that kernels compute, and where the library changes from one kernel to another. Samples are interleaved: every product
once, then every product again, so that a slow minute slows all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from stallpoint.cells import SgemmCell
from stallpoint.measure.precision import NUMBERS
from stallpoint.measure.progress import Progress
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.networks import network_of
from stallpoint.networks.products import Product, products
from stallpoint.records import MACHINE, SGEMM

SECONDS_PER_PRODUCT = 20.0
"""A product that has taken this long gets no further sample, if it has `LEAST_SAMPLES`."""
LEAST_SAMPLES = 3
PROBE = (4096, 6144)
"""Between AlexNet's two largest layers: 96 MiB. Half of 64 MiB stay in large caches, which matters for few rows."""
PROBE_ROWS = (*range(1, 13), 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 160, 192, 256, 384, 512)
"""Row counts at and around whole blocks of 2, 4, 8, ... rows, and up to the largest mini-batches."""


def reference(batch: int) -> Product:
    """The product the paper's Fig. 9 shows: the size of AlexNet's largest layer."""
    return Product("reference", "fully-connected", m=batch, k=4096, n=9216, operations=1)


def machine(device: torch.device) -> list[Product]:
    """What tells about the machine; on a GPU the products are larger, so that they fill it."""
    side, row = (8192, 16384) if device.type == "cuda" else (2048, 8192)
    rows = [Product("rows", MACHINE, m, *PROBE, operations=1) for m in PROBE_ROWS]
    peak, bandwidth = (Product("peak", MACHINE, side, side, side, 1), Product("bandwidth", MACHINE, 1, row, row, 1))
    return [peak, bandwidth, *rows]


def measure(cell: SgemmCell, world: World, keep: Recorder) -> None:
    """Time each product, those that tell about the machine too, ``cell.samples`` times in a visit, after one warm-up.

    Equal products are measured once, under the first layer's name. All workers compute at once, as in training;
    rank 0 records.
    """
    network = network_of(cell)
    outline = network.outline()
    device = torch.device(cell.device)
    wanted = [
        (batch, product)
        for batch in cell.batches
        for product in [reference(batch), *_distinct(products(outline, network.takes, batch))]
    ]
    wanted += [(product.m, product) for product in machine(device)]
    shapes = [product for _, product in wanted]
    work = [product.floating_point_operations for product in shapes] * (1 + cell.samples)  # the warm-up is work too
    progress = Progress("product", work, silent=world.rank > 0)
    before = (keep.visit - 1) * cell.samples
    begin = time.perf_counter()
    for place, sample, seconds in timed(shapes, cell.samples, device, NUMBERS[cell.precision]):
        progress.tell((1 + sample) * len(wanted) + place + 1)
        if world.rank == 0:
            batch, product = wanted[place]
            _record(keep, product, batch, before + sample, seconds)
    keep.measuring += time.perf_counter() - begin


def _distinct(wanted: list[Product]) -> list[Product]:
    """The first of each group of products that differ in nothing but the layer's name."""
    first: dict[tuple[int, ...], Product] = {}
    for product in wanted:
        first.setdefault((product.m, product.k, product.n, product.operations), product)
    return list(first.values())


def timed(
    wanted: Sequence[Product], samples: int, device: torch.device, numbers: torch.dtype = torch.float32
) -> Iterator[tuple[int, int, float]]:
    """Position in `wanted`, sample, and seconds for all operations of the product; one sample of each, then the next.

    The matrices of all products share their memory.
    """
    sizes = [(product.m * product.k, product.k * product.n, product.m * product.n) for product in wanted]
    left, right, results = (torch.rand(max(size), device=device, dtype=numbers) for size in zip(*sizes, strict=True))

    def multiply(product: Product) -> float:
        a = left[: product.m * product.k].view(product.m, product.k)
        b = right[: product.k * product.n].view(product.k, product.n)
        result = results[: product.m * product.n].view(product.m, product.n)
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(product.operations):
            torch.mm(a, b, out=result)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    spent = [multiply(product) for product in wanted]
    for sample in range(samples):
        for place, product in enumerate(wanted):
            if sample < LEAST_SAMPLES or spent[place] <= SECONDS_PER_PRODUCT:
                seconds = multiply(product)
                spent[place] += seconds
                yield place, sample, seconds


def _record(keep: Recorder, product: Product, batch: int, sample: int, seconds: float) -> None:
    keep.add(
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
