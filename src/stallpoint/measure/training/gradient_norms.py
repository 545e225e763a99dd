"""Norms of the workers' gradients and of the mean gradient, without further passes.

McCandlish, Kaplan, Amodei et al.: An Empirical Model of Large-Batch Training, 2018, appendix A.1: gradients of two
mini-batch sizes, the worker's b and the global B, are available at once, which is enough to estimate gradient noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer
from stallpoint.strategies.presets import Preset


class GradientNorms:
    """Collector of gradient norms, in steps in which `active` is True. The trainer calls `ready` and `summed`."""

    def __init__(self, layers: Sequence[Layer], world: World, loss_scale: float) -> None:
        self._layers, self._world, self._scale = layers, world, loss_scale
        self.active = False
        self._own = self._summed = torch.zeros((), dtype=torch.float64)

    @staticmethod
    def known(preset: Preset, ranks: int) -> bool:
        """Return whether norms can be computed: several workers sum gradients exactly and update weights themselves."""
        return ranks > 1 and preset.communicates and preset.exact and not preset.strategy.updates_on_server

    def ready(self, layer: int) -> None:
        """Add the norm of this worker's gradients of a layer, which are complete and not yet summed."""
        if self.active:
            self._own = self._own + self._square(layer)

    def summed(self) -> None:
        """Add the norm of the summed gradients, which are those of the global mini-batch."""
        if self.active:
            self._summed = sum((self._square(layer) for layer in range(len(self._layers))), self._summed)

    def take(self) -> tuple[float, float]:
        """Return the mean of the workers' squared gradient norms, and the squared norm of their mean gradient.

        Called on all ranks. A worker's gradient is multiplied by the number of workers, by which its loss was divided.
        """
        ranks = self._world.size
        own = self._world.comm.allreduce(self._own.item()) * ranks**2 / ranks
        norms = own / self._scale**2, self._summed.item() / self._scale**2
        self._own = self._summed = torch.zeros((), dtype=torch.float64)
        return norms

    def _square(self, layer: int) -> torch.Tensor:
        gradients = [weights.grad for weights in self._layers[layer].parameters if weights.grad is not None]
        squares = [gradient.detach().square().sum(dtype=torch.float64) for gradient in gradients]
        return sum(squares, torch.zeros((), dtype=torch.float64, device=gradients[0].device if gradients else "cpu"))
