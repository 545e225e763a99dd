"""The forward and backward passes of an iteration: in which precision, how losses count, and who takes the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from stallpoint.errors import InputError
from stallpoint.measure.clock import Clock, Mark
from stallpoint.measure.training.layer_timing import LayerTimer

Ends = Sequence[Mark]
"""The end of a forward pass, and that of the backward pass that followed it."""


@dataclass(frozen=True)
class Passes:
    """How a worker computes."""

    clock: Clock
    timer: LayerTimer
    in_precision: AbstractContextManager[None]
    scale: float
    """Of a loss, which half precision needs."""
    workers: int
    parts: int
    """Of a mini-batch, computed one after the other."""

    def divided(self, inputs: torch.Tensor, labels: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The parts of a mini-batch."""
        if len(inputs) % self.parts:
            raise InputError(f"accumulate: {self.parts} does not divide the worker's mini-batch of {len(inputs)}")
        return list(zip(inputs.chunk(self.parts), labels.chunk(self.parts), strict=True))

    def __call__(
        self, forward: Callable[..., torch.Tensor], part: tuple[torch.Tensor, torch.Tensor], workers: int
    ) -> tuple[torch.Tensor, Ends]:
        """The loss of a part of a mini-batch, which `workers` share, and the ends of its passes."""
        with self.in_precision:
            loss = forward(*part)
        middle = self.clock.mark()
        # Scaled here, summed gradients are averages.
        (loss * (self.scale / (workers * self.parts))).backward()  # type: ignore[no-untyped-call]
        return loss, [middle, self.clock.mark()]
