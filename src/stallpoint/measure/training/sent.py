"""What is known of how a layer's gradients, weights and inputs travelled, and what goes from stage to stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sent:
    """How the gradients of one layer travelled in one iteration."""

    message: int
    """Which message carried them (the last one, if several), in the order of sending."""
    bytes: int
    """What this rank put into messages for them."""
    start: float
    """Start of their all-reduce, s since the start of the iteration."""
    end: float


@dataclass(frozen=True)
class Gathered:
    """An all-gather of one layer's weights, s since the start of the iteration.

    Where outputs are split, of what the layer takes; in the backward pass the reduce-scatter of its gradients.
    """

    backward: bool
    """Whether it came in the backward pass."""
    start: float
    end: float


@dataclass(frozen=True)
class Received:
    """A message from the stage before or behind; times since the start of the iteration, s."""

    since: float
    """When this rank began to wait for it."""
    start: float
    """When it began to arrive."""
    end: float
