"""Synchronisation of one worker, or of workers that do not communicate."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from stallpoint.measure.synchronisation.interface import Synchronisation, Transfer


class NoExchange(Synchronisation):
    """Leaves the gradients unchanged."""

    updates = False

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def transfers(self) -> Mapping[int, Transfer]:
        """Return no transfers."""
        return {}

    def clear(self) -> None:
        """Forget the gradients."""
        self.network.zero_grad(set_to_none=True)

    def close(self, *, wait: bool) -> None:
        """Do nothing."""
