"""What a training iteration asks of whatever brings the workers' gradients together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import nn

from stallpoint.measure.clock import Mark
from stallpoint.measure.sent import Sent as Sent


class Synchronisation(Protocol):
    """One way to synchronise. All ranks call the same methods in the same order."""

    network: nn.Module
    """What to call for the forward pass."""
    updates: bool
    """Whether it also updates the weights, so that nobody else may."""

    def ready(self, layer: int) -> None:
        """The gradients of `layer` are complete; called in the middle of the backward pass."""

    def backward_ended(self, now: Mark) -> Mark:
        """The backward pass has returned; when back-propagation itself had ended."""

    def finish(self) -> None:
        """Return when the gradients of all layers are summed (or all weights updated); raises what went wrong."""

    def sent(self) -> Mapping[int, Sent]:
        """What was sent since the start of the iteration, by layer; it has ended."""

    def clear(self) -> None:
        """Forget the gradients, once the weights are updated."""

    def learn(self, gradient_ready: Sequence[float | None]) -> None:
        """An iteration has ended in which the layers' gradients were complete at these times, s since its start."""

    def close(self, *, wait: bool) -> None:
        """End; with `wait`, after what is under way, and together with the other ranks."""
