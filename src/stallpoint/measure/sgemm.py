"""Single-precision matrix products of a network's layers (Keuper & Pfreundt, Table III).

All b·g products of a convolution (and those of all samples and heads of an attention) are really done, one after the
other and in the same memory, as Caffe does them with its column buffer. So a cell takes about ``samples`` times the
forward passes at all its mini-batches, at most `SECONDS_PER_PRODUCT` for each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from stallpoint.cells import SgemmCell
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.networks import network_of
from stallpoint.networks.products import Product, products
from stallpoint.records import SGEMM

SECONDS_PER_PRODUCT = 20.0
"""A product that has taken this long gets no further sample, if it has `LEAST_SAMPLES`."""
LEAST_SAMPLES = 3


def reference(batch: int) -> Product:
    """The product the paper's Fig. 9 shows: the size of AlexNet's largest layer."""
    return Product("reference", "fully-connected", m=batch, k=4096, n=9216, operations=1)


def measure(cell: SgemmCell, world: World, keep: Recorder) -> None:
    """Time each product ``cell.samples`` times after one warm-up, at each of ``cell.batches``, and the reference.

    Equal products are measured once, under the first layer's name. All workers compute at once, as in training;
    rank 0 records.
    """
    network = network_of(cell)
    outline = network.outline()
    for batch in cell.batches:
        wanted = [reference(batch), *_distinct(products(outline, network.takes, batch))]
        for product in wanted:
            for sample, seconds in enumerate(_time(product, cell.samples, torch.device(cell.device))):
                if world.rank == 0:
                    _record(keep, product, batch, sample, seconds)


def _distinct(wanted: list[Product]) -> list[Product]:
    """The first of each group of products that differ in nothing but the layer's name."""
    first: dict[tuple[int, ...], Product] = {}
    for product in wanted:
        first.setdefault((product.m, product.k, product.n, product.operations), product)
    return list(first.values())


def _time(product: Product, samples: int, device: torch.device) -> Iterator[float]:
    """Seconds for all operations of the product, once for each sample."""
    left = torch.rand(product.m, product.k, device=device)
    right = torch.rand(product.k, product.n, device=device)
    result = torch.empty(product.m, product.n, device=device)

    def multiply() -> float:
        begin = time.perf_counter()
        for _ in range(product.operations):
            torch.mm(left, right, out=result)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    spent = multiply()
    for sample in range(samples):
        if sample >= LEAST_SAMPLES and spent > SECONDS_PER_PRODUCT:
            return
        seconds = multiply()
        spent += seconds
        yield seconds


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
