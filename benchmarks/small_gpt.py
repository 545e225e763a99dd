"""A decoder in GPT-2's form with 4 blocks and 4.3 million parameters, for slow nodes: an iteration takes seconds where
a node has a quarter of a core and 400 Mbit/s."""

from __future__ import annotations

from torch import nn

from stallpoint.networks.gpt2 import gpt2


def build() -> nn.Module:
    """The network, for sequences of 128 tokens out of 4096."""
    return gpt2(width=256, heads=4, blocks=4, vocabulary=4096, length=128)
