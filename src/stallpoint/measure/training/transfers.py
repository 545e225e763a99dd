"""Timed transfers of an iteration: gradients, weights and inputs of layers, and messages between pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Transfer:
    """The collective with one layer's gradients in one iteration."""

    bucket: int
    """Number of the bucket (the last of several), in the order of sending."""
    bytes: int
    """Bytes that this rank sent for the gradients."""
    start: float
    """Start of the all-reduce, s since the start of the iteration."""
    end: float


@dataclass(frozen=True)
class Gathered:
    """An all-gather of one layer's weights, s since the start of the iteration.

    With split outputs, an all-gather of the layer's input; in the backward pass the reduce-scatter of its gradients.
    """

    backward: bool
    """Whether the collective was in the backward pass."""
    start: float
    end: float


@dataclass(frozen=True)
class Received:
    """A message from a neighbouring pipeline stage; times since the start of the iteration, s."""

    since: float
    """Begin of this rank's wait for the message."""
    start: float
    """Begin of the transfer."""
    end: float
