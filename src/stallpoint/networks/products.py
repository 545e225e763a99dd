"""Matrix products of a network's forward pass (Keuper & Pfreundt, Table III), from its shapes.

- A fully-connected layer of I inputs and O outputs multiplies v x I · I x O once. Here v is the number of vectors in
  the mini-batch of b samples: b, or b times the tokens of a sample.
- A convolution multiplies C/g x (c/g)k² · (c/g)k² x Z for each of the b samples and each of its g groups. It has C
  filters of k x k pixels over c channels, and computes Z pixels. The paper's Z (`printed_pixels`) ignores stride and
  padding: for AlexNet's first layer it is 49 284 instead of 55² = 3 025.
- Attention multiplies length x d · d x length, and the result by length x d, for each sample and head of width d. A
  mask may hide half of the square; all of it counts.

Layers without matrix products do not count, nor do products that a user's module computes outside of these layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import torch
from torch import nn

from stallpoint.networks.inputs import Inputs
from stallpoint.networks.layers import Attention, RotaryAttention, layers

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Product:
    """Equal matrix products in a layer's forward pass: `operations` products of an m x k and a k x n matrix."""

    layer: str
    layer_type: str
    m: int
    k: int
    n: int
    operations: int
    part: str = ""
    """Name of the product within the layer; empty for the only one."""

    @property
    def name(self) -> str:
        """Return the layer's name, followed by the name of the part if it has one."""
        return f"{self.layer} {self.part}".rstrip()

    @property
    def multiply_adds(self) -> int:
        """Return the number of multiply-adds of all products."""
        return self.m * self.k * self.n * self.operations

    @property
    def floating_point_operations(self) -> int:
        """Return the number of operations of all products: a multiply-add counts as two."""
        return 2 * self.multiply_adds


_ProductSizes = tuple[tuple[int, int, int, int], str]
"""m, k, n and operations of a product, and its part."""


def products(network: nn.Module, takes: Inputs, batch: int) -> list[Product]:
    """Return the products of all layers for a mini-batch of `batch` samples, in the order of running.

    The network is run once, which takes no time on PyTorch's meta device.
    """
    found: list[Product] = []
    counts: Counter[str] = Counter()

    def hook_of(name: str, layer_type: str) -> Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]:
        def after_forward(module: Any, inputs: tuple[Any, ...], keyword_inputs: dict[str, Any], output: Any) -> None:
            counts[name] += 1
            call_name = f"call {counts[name]}" if counts[name] > 1 else ""
            for sizes, part in _module_products(module, [*inputs, *keyword_inputs.values()], output):
                found.append(Product(name, layer_type, *sizes, part=f"{part} {call_name}".strip()))

        return after_forward

    hooks = [
        layer.module.register_forward_hook(hook_of(layer.name, layer.type), with_kwargs=True)
        for layer in layers(network)
    ]
    device = next(network.parameters()).device
    # In training mode batch normalisation fails on maps of one pixel, which would hide the products of later layers.
    batch_norms = [part for part in network.modules() if isinstance(part, _BATCH_NORMS) and part.training]
    try:
        for part in batch_norms:
            part.eval()
        with torch.no_grad(), device:
            network(*takes.example(batch, device))
    finally:
        for part in batch_norms:
            part.train()
        for hook in hooks:
            hook.remove()
    return found


def printed_pixels(network: nn.Module, takes: Inputs) -> dict[str, int]:
    """Return the paper's Z of each two-dimensional convolution: (√P - ⌊k/2⌋)² for P input pixels and k x k filters."""
    pixels_by_layer: dict[str, int] = {}

    def hook_of(name: str) -> Callable[[Any, tuple[Any, ...]], None]:
        def before_forward(module: Any, inputs: tuple[Any, ...]) -> None:
            pixels_by_layer[name] = (isqrt(inputs[0][0, 0].numel()) - module.kernel_size[0] // 2) ** 2

        return before_forward

    hooks = [
        layer.module.register_forward_pre_hook(hook_of(layer.name))
        for layer in layers(network)
        if isinstance(layer.module, nn.Conv2d)
    ]
    device = next(network.parameters()).device
    try:
        with torch.no_grad(), device:
            network(*takes.example(2, device))
    finally:
        for hook in hooks:
            hook.remove()
    return pixels_by_layer


def _module_products(module: nn.Module, inputs: Sequence[torch.Tensor], output: Any) -> Iterator[_ProductSizes]:
    if isinstance(module, nn.Linear):
        yield (output.numel() // module.out_features, module.in_features, module.out_features, 1), ""
    elif isinstance(module, CONVOLUTIONS):
        filters, *patch = module.weight.shape
        yield (filters // module.groups, prod(patch), output[0, 0].numel(), len(output) * module.groups), ""
    elif isinstance(module, Attention | RotaryAttention):
        batch, length, width = output.shape
        yield from _attention_products(length, length, width // module.heads, batch * module.heads)
    elif isinstance(module, nn.MultiheadAttention):
        query, key = inputs[:2]
        width = module.embed_dim
        batch = query.shape[0 if module.batch_first else 1] if query.ndim == 3 else 1
        query_count, key_count = (tensor.numel() // (tensor.shape[-1] * batch) for tensor in (query, key))
        yield (batch * query_count, width, width, 1), "queries"
        yield (batch * key_count, module.kdim, width, 1), "keys"
        yield (batch * key_count, module.vdim, width, 1), "values"
        yield from _attention_products(query_count, key_count, module.head_dim, batch * module.num_heads)
        yield (batch * query_count, width, width, 1), "projection"


def _attention_products(query_count: int, key_count: int, width: int, heads: int) -> Iterator[_ProductSizes]:
    """Yield the two products of scaled dot-product attention; queries and keys of a head have `width` values."""
    yield (query_count, width, key_count, heads), "scores"
    yield (query_count, key_count, width, heads), "mixture"
