"""Delayed gradients: the k-th of K blocks of layers is updated with its gradient of K - k iterations ago.

Huo et al. (2018), "Decoupled Parallel Backpropagation with Convergence Guarantee", section 3: block k then need not
wait for the error from later blocks. Each worker computes the updates of this algorithm; backward passes of blocks are
not concurrent, as that would need a device for each block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import torch

from stallpoint.errors import CannotRun
from stallpoint.networks.layers import Layer

BlockGradients = list[torch.Tensor]
"""Gradients of a block's parameters."""


class Delays:
    """Delay of the gradients of `blocks` blocks. Raises `CannotRun` for more blocks than layers with parameters."""

    def __init__(self, layers: Sequence[Layer], blocks: int) -> None:
        trainable = [layer for layer in layers if layer.parameters]
        if blocks > len(trainable):
            raise CannotRun(f"preset: blocks: {blocks}, but the network has {len(trainable)} layers that learn")
        ends = [len(trainable) * block // blocks for block in range(blocks + 1)]
        self._blocks = [
            [parameter for layer in trainable[begin:end] for parameter in layer.parameters]
            for begin, end in pairwise(ends)
        ]
        self._late: list[deque[BlockGradients]] = [deque() for _ in self._blocks]

    @torch.no_grad()
    def swap(self) -> None:
        """Keep the gradients of this iteration for later, and replace them by the delayed gradients that are due."""
        for number, (parameters, queue) in enumerate(zip(self._blocks, self._late, strict=True)):
            delay = len(self._blocks) - 1 - number
            if not delay:
                continue
            queue.append([parameter.grad.clone() for parameter in parameters if parameter.grad is not None])
            gradients = queue.popleft() if len(queue) > delay else None
            for index, parameter in enumerate(parameters):
                parameter.grad = gradients[index].to(parameter.device) if gradients else None

    @property
    def state(self) -> list[list[BlockGradients]]:
        """Return the delayed gradients, for a checkpoint."""
        return [list(late) for late in self._late]

    def restore(self, state: Sequence[Sequence[BlockGradients]]) -> None:
        self._late = [deque(late) for late in state]
