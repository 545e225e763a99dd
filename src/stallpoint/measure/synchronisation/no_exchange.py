"""One worker, or workers that do not communicate: nothing to bring together."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from stallpoint.measure.synchronisation.interface import Sent, Synchronisation


class Alone(Synchronisation):
    """Leaves the gradients where they are."""

    updates = False

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def sent(self) -> Mapping[int, Sent]:
        """Nothing."""
        return {}

    def clear(self) -> None:
        """Forget the gradients."""
        self.network.zero_grad(set_to_none=True)

    def close(self, *, wait: bool) -> None:
        """Nothing to end."""
