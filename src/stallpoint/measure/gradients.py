"""Gradients of a layer in one piece of memory, so that one layer is one message."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stallpoint.networks.layers import Layer


class LayerGradients:
    """Makes each parameter's ``.grad`` a view of its layer's buffer; back-propagation adds into it.

    Nothing may set ``.grad`` to None afterwards: clear gradients with `zero`.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.buffers: dict[int, torch.Tensor] = {
            index: _one_buffer(layer.parameters) for index, layer in enumerate(layers) if layer.parameters
        }
        """The gradients of each layer that learns, by its position: weight, then bias, one after the other."""

    def zero(self) -> None:
        """Set all gradients to 0, as the next backward pass expects them."""
        for buffer in self.buffers.values():
            buffer.zero_()


def _one_buffer(parameters: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    buffer = torch.zeros(sum(parameter.numel() for parameter in parameters), device=parameters[0].device)
    parts = torch.split(buffer, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return buffer
