"""Activation checkpointing: activations of a block are freed, and computed again before its backward pass (Chen et al.
2016, Training Deep Nets with Sublinear Memory Cost)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from stallpoint.networks.layers import Layer
from stallpoint.strategies.buckets import block_paths


class Recomputation:
    """Makes the blocks of `network` (`strategies.buckets.blocks`) recompute their forward pass, until `remove` is
    called."""

    def __init__(self, network: nn.Module, layers: Sequence[Layer]) -> None:
        paths = block_paths([layer.name for layer in layers], [layer.gradient_bytes for layer in layers])
        self._blocks = [network.get_submodule(path) for path in paths if path]
        for block in self._blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)

    def remove(self) -> None:
        """Restore the blocks."""
        while self._blocks:
            del self._blocks.pop().forward
