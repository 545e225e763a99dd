"""All that a network learns in one piece of memory, as it travels where weights are exchanged."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stallpoint.networks.layers import Layer


class Flat:
    """The weights and gradients of `layers`, one after the other in forward order; on their device, [values]."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.parameters = [parameter for layer in layers for parameter in layer.parameters]
        self._sizes = [parameter.numel() for parameter in self.parameters]

    @property
    def values(self) -> int:
        """Weights in all."""
        return sum(self._sizes)

    def weights(self) -> torch.Tensor:
        """A copy of the weights."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])

    def gradients(self) -> torch.Tensor:
        """A copy of the gradients; 0 where there is none."""
        return torch.cat([
            torch.zeros_like(parameter).reshape(-1) if parameter.grad is None else parameter.grad.reshape(-1)
            for parameter in self.parameters
        ])  # fmt: skip

    @torch.no_grad()
    def write(self, weights: torch.Tensor) -> None:
        """Take these weights."""
        for parameter, part in zip(self.parameters, torch.split(weights, self._sizes), strict=True):
            parameter.copy_(part.view_as(parameter))
