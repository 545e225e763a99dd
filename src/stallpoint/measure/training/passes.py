"""The forward and backward passes of an iteration: precision, scale of losses, timing, and recomputation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from stallpoint.errors import InputError
from stallpoint.measure.clock import IterationClock, Mark
from stallpoint.measure.training.layer_timing import LayerTimer
from stallpoint.networks.layers import Layer
from stallpoint.strategies.buckets import block_paths

Ends = Sequence[Mark]
"""Marks of the end of a forward pass and of the end of its backward pass."""


@dataclass(frozen=True)
class Passes:
    """Forward and backward passes of a worker, with their settings."""

    clock: IterationClock
    timer: LayerTimer
    in_precision: AbstractContextManager[None]
    scale: float
    """Factor on a loss, for half precision."""
    workers: int
    parts: int
    """Number of parts into which a mini-batch is divided (gradient accumulation)."""

    def divided(self, inputs: torch.Tensor, labels: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the parts of a mini-batch."""
        if len(inputs) % self.parts:
            raise InputError(f"accumulate: {self.parts} does not divide the worker's mini-batch of {len(inputs)}")
        return list(zip(inputs.chunk(self.parts), labels.chunk(self.parts), strict=True))

    def __call__(
        self, forward: Callable[..., torch.Tensor], part: tuple[torch.Tensor, torch.Tensor], workers: int
    ) -> tuple[torch.Tensor, Ends]:
        """Do the passes of a `part` of a mini-batch; return the part's mean loss, and the ends of both passes."""
        with self.in_precision:
            loss = forward(*part)
        forward_end = self.clock.mark()
        # The loss is divided by the number of workers and parts: summed gradients are then means over all samples.
        (loss * (self.scale / (workers * self.parts))).backward()  # type: ignore[no-untyped-call]
        return loss, [forward_end, self.clock.mark()]


class Recomputation:
    """Activation checkpointing (Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost): until `remove`, each
    block of `network` (`strategies.buckets.blocks`) computes its activations again before its backward pass."""

    def __init__(self, network: nn.Module, layers: Sequence[Layer]) -> None:
        paths = block_paths([layer.name for layer in layers], [layer.gradient_bytes for layer in layers])
        self._blocks = [network.get_submodule(path) for path in paths if path]
        for block in self._blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)

    def remove(self) -> None:
        while self._blocks:
            del self._blocks.pop().forward
