"""Timed transfers in an iteration: transfers of gradients, of weights, of inputs, and between pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Transfer:
    """Collective that carried one layer's gradients in one iteration."""

    bucket: int
    """Number of the bucket in the order of sending; if the layer was in several buckets, the first."""
    bytes: int
    """Bytes that this rank sent for the gradients."""
    start: float
    """Start of the all-reduce, s since the start of the iteration."""
    end: float


@dataclass(frozen=True)
class Gathered:
    """All-gather of one layer's weights; times are since the start of the iteration, s.

    If layers are split by outputs, it is the all-gather of a layer's input or, in the backward pass, the reduce-scatter
    of the input's gradient.
    """

    backward: bool
    """Whether the collective was in the backward pass."""
    start: float
    end: float


@dataclass(frozen=True)
class Received:
    """Message from a neighbouring pipeline stage; times are since the start of the iteration, s."""

    since: float
    """Begin of this rank's wait for the message."""
    start: float
    """Begin of the transfer."""
    end: float
