"""Single-precision matrix products of a network's layers (Keuper & Pfreundt, Table III).

In one forward pass a fully-connected layer multiplies b x I · I x O once, and a convolution multiplies
C/g x (c/g)k² · (c/g)k² x Z for each of its b samples and g groups (C filters of k x k pixels over c channels).
Z is the number of pixels the convolution really computes. The paper's Z = (√P - ⌊k/2⌋)² knows neither
stride nor padding: 49 284 instead of 55² = 3 025 for AlexNet's first layer.

All b·g products of a convolution are really done, one after the other and in the same memory, as Caffe
does them with its column buffer. So a cell takes about ``samples`` times the forward passes at all its
mini-batches, at most `SECONDS_PER_SHAPE` for each shape.

The same job measures what the machine can do (layer type ``machine``): ``peak``, a large square product, ``bandwidth``,
a matrix that no cache holds times a vector, and ``rows``, few rows at every count, which show the kernel's block of
rows. Samples are interleaved: every shape once, then every shape again, so that a slow minute slows all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stallpoint.cells import SgemmCell
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.networks import find
from stallpoint.networks.layers import layers
from stallpoint.records import MACHINE, SGEMM

SECONDS_PER_SHAPE = 20.0
"""A shape that has taken this long gets no further sample, if it has `LEAST_SAMPLES`."""
LEAST_SAMPLES = 3
PROBE_SIDE = 2048
PROBE_ROWS = (*range(1, 13), 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129)
"""Row counts at and around whole blocks of 2, 4, 8, ... rows."""


@dataclass(frozen=True)
class Shape:
    """`operations` products m x k · k x n, as one forward pass of a layer needs them."""

    layer: str
    layer_type: str
    m: int
    k: int
    n: int
    operations: int

    @property
    def floating_point_operations(self) -> int:
        """Multiplications and additions of all products."""
        return 2 * self.m * self.k * self.n * self.operations


def reference(batch: int) -> Shape:
    """The product the paper's Fig. 9 shows: the size of AlexNet's largest layer."""
    return Shape("reference", "fully-connected", m=batch, k=4096, n=9216, operations=1)


def shapes(network: nn.Module, image_size: int, batch: int) -> list[Shape]:
    """Shapes of all fully-connected and convolutional layers at mini-batch b, in the order of the layers.

    The network is run once; without values (`Network.outline`) that costs nothing.
    """
    found: list[Shape] = []

    def note(name: str, layer_type: str) -> Callable[[Any, Any, torch.Tensor], None]:
        def after_forward(module: Any, _inputs: Any, output: torch.Tensor) -> None:
            if layer_type == "fully-connected":
                found.append(Shape(name, layer_type, batch, module.in_features, module.out_features, 1))
            else:
                filters, *patch = module.weight.shape
                pixels = output[0, 0].numel()
                m, k = filters // module.groups, int(torch.Size(patch).numel())
                found.append(Shape(name, layer_type, m, k, pixels, batch * module.groups))

        return after_forward

    hooks = [
        layer.module.register_forward_hook(note(layer.name, layer.type))
        for layer in layers(network)
        if layer.type in ("fully-connected", "convolution")
    ]
    device = next(network.parameters()).device
    images = torch.zeros(batch, 3, image_size, image_size, device=device)
    with torch.no_grad():
        network(images, torch.zeros(batch, dtype=torch.int64, device=device))
    for hook in hooks:
        hook.remove()
    return found


def machine(device: torch.device) -> list[Shape]:
    """What tells about the machine; on a GPU the products are larger, so that they fill it."""
    side, row = (8192, 16384) if device.type == "cuda" else (2048, 8192)
    rows = [Shape("rows", MACHINE, m=m, k=PROBE_SIDE, n=PROBE_SIDE, operations=1) for m in PROBE_ROWS]
    peak, bandwidth = (Shape("peak", MACHINE, side, side, side, 1), Shape("bandwidth", MACHINE, 1, row, row, 1))
    return [peak, bandwidth, *rows]


def measure(cell: SgemmCell, world: World, keep: Recorder) -> None:
    """Time each shape ``cell.samples`` times after one warm-up, at each of ``cell.batches``, reference and machine.

    Equal shapes are measured once, under the first layer's name. All workers compute at once, as in training;
    rank 0 records.
    """
    network = find(cell.network)
    outline = network.outline()
    device = torch.device(cell.device)
    wanted = [
        (batch, shape)
        for batch in cell.batches
        for shape in [reference(batch), *_distinct(shapes(outline, network.image_size, batch))]
    ]
    wanted += [(shape.m, shape) for shape in machine(device)]
    for place, sample, seconds in timed([shape for _, shape in wanted], cell.samples, device):
        if world.rank == 0:
            batch, shape = wanted[place]
            _record(keep, shape, batch, sample, seconds)


def _distinct(wanted: list[Shape]) -> list[Shape]:
    """The first of each group of shapes that differ in nothing but the layer's name."""
    first: dict[tuple[int, ...], Shape] = {}
    for shape in wanted:
        first.setdefault((shape.m, shape.k, shape.n, shape.operations), shape)
    return list(first.values())


def timed(wanted: Sequence[Shape], samples: int, device: torch.device) -> Iterator[tuple[int, int, float]]:
    """Position in `wanted`, sample, and seconds for all operations of the shape; one sample of each, then the next.

    The matrices of all shapes share their memory.
    """
    sizes = [(shape.m * shape.k, shape.k * shape.n, shape.m * shape.n) for shape in wanted]
    left, right, product = (torch.rand(max(size), device=device) for size in zip(*sizes, strict=True))

    def multiply(shape: Shape) -> float:
        a = left[: shape.m * shape.k].view(shape.m, shape.k)
        b = right[: shape.k * shape.n].view(shape.k, shape.n)
        result = product[: shape.m * shape.n].view(shape.m, shape.n)
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(shape.operations):
            torch.mm(a, b, out=result)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    spent = [multiply(shape) for shape in wanted]
    for sample in range(samples):
        for place, shape in enumerate(wanted):
            if sample < LEAST_SAMPLES or spent[place] <= SECONDS_PER_SHAPE:
                seconds = multiply(shape)
                spent[place] += seconds
                yield place, sample, seconds


def _record(keep: Recorder, shape: Shape, batch: int, sample: int, seconds: float) -> None:
    keep.add(
        SGEMM,
        layer=shape.layer,
        layer_type=shape.layer_type,
        worker_batch=batch,
        m=shape.m,
        k=shape.k,
        n=shape.n,
        operations=shape.operations,
        sample=sample,
        seconds=seconds,
        gflops=shape.floating_point_operations / seconds / 1e9,
    )
