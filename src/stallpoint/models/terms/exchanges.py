"""What the messages of an algorithm that is not synchronous take of an iteration, by what an all-reduce takes.

All weights or gradients travel in one message. With p workers, T the time of the preset's reduction scheme for it, α
its latency and β·m the rest, and f the exchanges in an iteration (1, 1 / period, or of downpour the mean of both):

    averaging      f T
    gossip         f (α k / (2 (p - 1)) + β m k p / (2 (p - 1))) for k = min(2, p - 1) neighbours: an all-reduce around
                   a ring is 2 (p - 1) messages of m / p bytes
    with servers   f max(T / (p - 1), T - computing / f)

A scheme with servers moves gradients of p - 1 workers in and their weights out, one after the other: T / (p - 1) is a
worker's own push and pull. While servers answer all others a worker computes; where they take longer, they are
saturated. Where this fails: docs/models/algorithms.md.
"""

from __future__ import annotations

from dataclasses import replace

from stallpoint.models.base.statistics import Ensemble
from stallpoint.models.terms.effects import Messages
from stallpoint.strategies.presets import Preset


def of_iteration(messages: Messages, preset: Preset, ranks: int, computing: Ensemble) -> Messages:
    """`messages` of the reduction scheme among `ranks` as they count for an iteration, beside `computing` [s]."""
    if preset.synchronous or ranks == 1:
        return messages
    latency, bandwidth = preset.strategy.exchanged(
        messages.latency, messages.isolated - messages.latency, ranks, computing
    )
    return replace(messages, latency=latency, isolated=latency + bandwidth, co_run=None)
