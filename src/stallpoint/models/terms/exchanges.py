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

import numpy as np

from stallpoint.models.base.statistics import Ensemble
from stallpoint.models.terms.effects import Messages
from stallpoint.strategies.presets import Preset


def share(preset: Preset) -> float:
    """f: exchanges in an iteration."""
    if preset.algorithm == "downpour":
        return (1 / preset.period + 1 / preset.pull_period) / 2
    return 1 / preset.period


def of_iteration(messages: Messages, preset: Preset, ranks: int, computing: Ensemble) -> Messages:
    """`messages` of the reduction scheme among `ranks` as they count for an iteration, beside `computing` [s]."""
    if preset.synchronous or ranks == 1:
        return messages
    whole, latency = messages.isolated, messages.latency
    if preset.algorithm == "gossip":
        among = min(2, ranks - 1) / (2 * (ranks - 1))
        parts = latency * among, (whole - latency) * among * ranks
    elif preset.served:
        own = whole / (ranks - 1)
        saturated = np.maximum(own, whole - np.reshape(computing, (-1, 1)) / share(preset))
        part = np.divide(saturated, whole, out=np.ones_like(whole), where=whole > 0)
        parts = latency * part, (whole - latency) * part
    else:
        parts = latency, whole - latency
    of_latency, of_bandwidth = (share(preset) * part for part in parts)
    return replace(messages, latency=of_latency, isolated=of_latency + of_bandwidth, co_run=None)
