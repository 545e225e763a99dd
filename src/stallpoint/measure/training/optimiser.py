"""Stochastic gradient descent with momentum, and what training asks of any optimiser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import nn
from torch.optim.sgd import sgd

from stallpoint.measure import STEP_SIZE

# Caffe's values for AlexNet; for the step see `STEP_SIZE`.
MOMENTUM = 0.9
WEIGHT_DECAY = 0.0005


class Optimiser(Protocol):
    """What updates weights."""

    def begin(self, step: int) -> None:
        """What follows is this step, counted from 0; until it is called, the first one."""

    def step_size(self, step: int) -> float:
        """Of a step, counted from 0."""

    @property
    def state(self) -> Iterable[torch.Tensor]:
        """What it keeps from step to step."""

    def step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Update these parameters, as far as they have gradients; some of all, where others follow."""


@torch.no_grad()
def restore(optimiser: Optimiser, state: Iterable[torch.Tensor]) -> None:
    """Have the `optimiser` go on from the `state` that one like it had."""
    for kept, values in zip(optimiser.state, state, strict=True):
        kept.copy_(values)


def local(values: torch.Tensor) -> torch.Tensor:
    """What this rank holds of sharded `values` (a DTensor); all others as they are."""
    found: torch.Tensor = getattr(values, "_local_tensor", values)
    return found


class Sgd:
    """Moves weights against their gradients, which bear the factor `loss_scale` until then.

    (`torch.optim.SGD` itself takes seconds to import.)
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, loss_scale: float = 1.0) -> None:
        moved = list(parameters)
        self._momenta = {id(weights): torch.zeros_like(local(weights.detach())) for weights in moved}
        device = moved[0].device if moved else None
        self._scale = torch.full((), loss_scale, device=device) if loss_scale != 1 else None

    def begin(self, step: int) -> None:
        """Each step is like the first one."""

    def step_size(self, step: int) -> float:
        """`STEP_SIZE`, of any step."""
        return STEP_SIZE

    @property
    def state(self) -> Iterable[torch.Tensor]:
        """What it keeps from step to step."""
        return self._momenta.values()

    @torch.no_grad()
    def step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Update these parameters, as far as they have gradients."""
        moved = [weights for weights in parameters if weights.grad is not None]
        momenta: list[torch.Tensor | None] = [self._momenta[id(weights)] for weights in moved]
        sgd(
            [local(weights.detach()) for weights in moved],
            [local(weights.grad) for weights in moved if weights.grad is not None],
            momenta,
            fused=True,
            lr=STEP_SIZE,
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            grad_scale=self._scale,
        )
