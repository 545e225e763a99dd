"""Norms of the workers' gradients and of their mean, without further passes.

McCandlish, Kaplan, Amodei et al.: An Empirical Model of Large-Batch Training, 2018, appendix A.1: two mini-batch sizes
are available at once, the worker's b and the global B, which is enough to estimate the gradient's noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer
from stallpoint.strategies.presets import Preset


class GradientNorms:
    """Norms of gradients in `active` steps; notified when a layer's gradients are complete, and when all are summed."""

    def __init__(self, layers: Sequence[Layer], world: World, loss_scale: float) -> None:
        self._layers, self._world, self._scale = layers, world, loss_scale
        self.active = False
        self._own = self._summed = torch.zeros((), dtype=torch.float64)

    @staticmethod
    def known(preset: Preset, ranks: int) -> bool:
        """Return whether the norms are known: several workers get the complete sum, and not a server's weights."""
        return ranks > 1 and preset.communicates and preset.exact and not preset.strategy.updates_on_server

    def ready(self, layer: int) -> None:
        """Add the worker's own gradients of a layer, complete and not yet summed."""
        if self.active:
            self._own = self._own + self._square(layer)

    def summed(self) -> None:
        """Add the summed gradients, those of the global mini-batch."""
        if self.active:
            self._summed = sum((self._square(layer) for layer in range(len(self._layers))), self._summed)

    def take(self) -> tuple[float, float]:
        """Return the workers' mean squared gradient norm, and the squared norm of their mean gradient, on all ranks.

        Each worker's loss was divided by the number of workers, so that its own gradient is scaled back.
        """
        ranks = self._world.size
        own = self._world.comm.allreduce(self._own.item()) * ranks**2 / ranks
        taken = own / self._scale**2, self._summed.item() / self._scale**2
        self._own = self._summed = torch.zeros((), dtype=torch.float64)
        return taken

    def _square(self, layer: int) -> torch.Tensor:
        gradients = [weights.grad for weights in self._layers[layer].parameters if weights.grad is not None]
        squares = [gradient.detach().square().sum(dtype=torch.float64) for gradient in gradients]
        return sum(squares, torch.zeros((), dtype=torch.float64, device=gradients[0].device if gradients else "cpu"))
