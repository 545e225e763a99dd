"""Single-precision matrix products of a network's layers (Keuper & Pfreundt, Table III).

In one forward pass a fully-connected layer multiplies b x I · I x O once, and a convolution multiplies
C/g x (c/g)k² · (c/g)k² x Z for each of its b samples and g groups (C filters of k x k pixels over c channels).
Z is the number of pixels the convolution really computes. The paper's Z = (√P - ⌊k/2⌋)² knows neither
stride nor padding: 49 284 instead of 55² = 3 025 for AlexNet's first layer.

All b·g products of a convolution are really done, one after the other and in the same memory, as Caffe
does them with its column buffer. So a cell takes about ``samples`` times the forward passes at all its
mini-batches, at most `SECONDS_PER_SHAPE` for each shape.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stallpoint.cells import SgemmCell
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.networks import find
from stallpoint.networks.layers import layers
from stallpoint.records import SGEMM

SECONDS_PER_SHAPE = 20.0
"""A shape that has taken this long gets no further sample, if it has `LEAST_SAMPLES`."""
LEAST_SAMPLES = 3


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


def measure(cell: SgemmCell, world: World, keep: Recorder) -> None:
    """Time each shape ``cell.samples`` times after one warm-up, at each of ``cell.batches``, and the reference.

    Equal shapes are measured once, under the first layer's name. All workers compute at once, as in training;
    rank 0 records.
    """
    network = find(cell.network)
    outline = network.outline()
    for batch in cell.batches:
        wanted = [reference(batch), *_distinct(shapes(outline, network.image_size, batch))]
        for shape in wanted:
            for sample, seconds in enumerate(_time(shape, cell.samples, torch.device(cell.device))):
                if world.rank == 0:
                    _record(keep, shape, batch, sample, seconds)


def _distinct(wanted: list[Shape]) -> list[Shape]:
    """The first of each group of shapes that differ in nothing but the layer's name."""
    first: dict[tuple[int, ...], Shape] = {}
    for shape in wanted:
        first.setdefault((shape.m, shape.k, shape.n, shape.operations), shape)
    return list(first.values())


def _time(shape: Shape, samples: int, device: torch.device) -> Iterator[float]:
    """Seconds for all operations of the shape, once for each sample."""
    left = torch.rand(shape.m, shape.k, device=device)
    right = torch.rand(shape.k, shape.n, device=device)
    product = torch.empty(shape.m, shape.n, device=device)

    def multiply() -> float:
        begin = time.perf_counter()
        for _ in range(shape.operations):
            torch.mm(left, right, out=product)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    spent = multiply()
    for sample in range(samples):
        if sample >= LEAST_SAMPLES and spent > SECONDS_PER_SHAPE:
            return
        seconds = multiply()
        spent += seconds
        yield seconds


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
