"""Memory layout of gradients, and their messages.

Back-propagation leaves each parameter's gradient in memory of its own. Large gradients (`constants.IN_PLACE_BYTES`) are
sent from there; small gradients are packed contiguously in the order of sending, so that a message has few spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from stallpoint.measure import constants
from stallpoint.networks.layers import Layer


@dataclass(frozen=True)
class GradientSpan:
    """Gradients in contiguous memory, one-dimensional."""

    values: torch.Tensor
    offset: int
    """Offset among all gradients of the network, constant over iterations."""


@dataclass(frozen=True)
class Bucket:
    """A message: the layers whose gradients are sent together."""

    number: int
    """Position in the order of sending, from 0."""
    layers: tuple[int, ...]
    """Positions of the layers, the last first."""


class Gradients:
    """The gradients of a network from the backward pass to the update, layer by layer."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._parameters = {index: layer.parameters for index, layer in enumerate(layers) if layer.parameters}
        small = [
            parameter
            for layer in self.order
            for parameter in self._parameters[layer]
            if parameter.nbytes < constants.IN_PLACE_BYTES
        ]
        device = next((parameter.device for parameter in small), torch.device("cpu"))
        self._packed = torch.zeros(sum(parameter.numel() for parameter in small), device=device)
        parts = torch.split(self._packed, [parameter.numel() for parameter in small])
        self._parts = {id(parameter): part for parameter, part in zip(small, parts, strict=True)}
        self._offsets = self._lay_out()

    @property
    def order(self) -> list[int]:
        """Positions of the layers with parameters, in the order of back-propagation."""
        return sorted(self._parameters, reverse=True)

    @property
    def values(self) -> int:
        """Number of gradient values of the network."""
        return sum(parameter.numel() for layer in self.order for parameter in self._parameters[layer])

    def bytes_of(self, layer: int) -> int:
        return sum(parameter.nbytes for parameter in self._parameters[layer])

    def parameters(self, message: Bucket) -> list[nn.Parameter]:
        return [parameter for layer in message.layers for parameter in self._parameters[layer]]

    @torch.no_grad()
    def complete(self, layer: int) -> None:
        """Pack the small gradients of a complete `layer`."""
        for parameter in self._parameters[layer]:
            assert parameter.grad is not None, "told that it is complete"
            part = self._parts.get(id(parameter))
            if part is None:
                parameter.grad = parameter.grad.contiguous()
            else:
                parameter.grad = part.view_as(parameter).copy_(parameter.grad)

    def spans(self, message: Bucket) -> list[GradientSpan]:
        """Return the contiguous spans of a message's gradients, the span of packed gradients first."""
        parameters = self.parameters(message)
        packed = [self._offsets[id(parameter)] for parameter in parameters if id(parameter) in self._parts]
        large = [parameter for parameter in parameters if id(parameter) not in self._parts]
        # Small gradients of a message are neighbours: layers are packed in the order of sending.
        begin, end = (min(begin for begin, _ in packed), max(end for _, end in packed)) if packed else (0, 0)
        spans = [GradientSpan(_gradient(parameter), self._offsets[id(parameter)][0]) for parameter in large]
        return [GradientSpan(self._packed[begin:end], begin), *spans] if packed else spans

    def clear(self) -> None:
        """Drop all gradients; the next backward pass makes new ones."""
        for parameters in self._parameters.values():
            for parameter in parameters:
                parameter.grad = None

    def _lay_out(self) -> dict[int, tuple[int, int]]:
        """Return begin and end of each parameter's gradient among all gradients; packed gradients come first."""
        parameters = [parameter for layer in self.order for parameter in self._parameters[layer]]
        places, begin = {}, 0
        for parameter in sorted(parameters, key=lambda parameter: id(parameter) not in self._parts):
            places[id(parameter)] = begin, begin + parameter.numel()
            begin += parameter.numel()
        return places


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None, "spans are asked for once the message's layers are complete"
    return parameter.grad.view(-1)
