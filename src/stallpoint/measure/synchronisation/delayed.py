"""Delayed gradients: of K blocks of layers the k-th is updated with its gradient of K - k iterations ago.

Huo et al. (2018), "Decoupled Parallel Backpropagation with Convergence Guarantee", section 3: block k then need not
wait for the error that comes back through the blocks behind it. What the algorithm computes is done here on each
worker; that blocks go backward at the same time needs a device for each of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import torch

from stallpoint.errors import CannotRun
from stallpoint.networks.layers import Layer

Late = list[torch.Tensor]
"""Gradients of a block's parameters."""


class Delays:
    """Puts gradients off. Raises `CannotRun` for more blocks than there are layers that learn."""

    def __init__(self, layers: Sequence[Layer], blocks: int) -> None:
        learning = [layer for layer in layers if layer.parameters]
        if blocks > len(learning):
            raise CannotRun(f"preset: blocks: {blocks}, but the network has {len(learning)} layers that learn")
        ends = [len(learning) * block // blocks for block in range(blocks + 1)]
        self._blocks = [
            [parameter for layer in learning[begin:end] for parameter in layer.parameters]
            for begin, end in pairwise(ends)
        ]
        self._late: list[deque[Late]] = [deque() for _ in self._blocks]

    @torch.no_grad()
    def swap(self) -> None:
        """Put the gradients of this iteration off, and those in their place whose time has come, if there are any."""
        for number, (parameters, late) in enumerate(zip(self._blocks, self._late, strict=True)):
            delay = len(self._blocks) - 1 - number
            if not delay:
                continue
            late.append([parameter.grad.clone() for parameter in parameters if parameter.grad is not None])
            due = late.popleft() if len(late) > delay else None
            for place, parameter in enumerate(parameters):
                parameter.grad = due[place].to(parameter.device) if due else None

    @property
    def state(self) -> list[list[Late]]:
        """What is put off."""
        return [list(late) for late in self._late]

    def restore(self, state: Sequence[Sequence[Late]]) -> None:
        """Go on with what `state` gave."""
        self._late = [deque(late) for late in state]
