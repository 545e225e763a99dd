"""Forward and backward time of each layer inside an ordinary training iteration.

Both passes do one thing after the other: the forward pass module by module, and the autograd engine its
operations in the reverse of their order in the forward pass, branches included. A mark is taken where a
layer begins, by a hook before its module or before the last of its operations is undone; it ends where
the next mark is taken, and the last one where the pass ends. So the layers add up to the whole pass, also
with in-place activations, and for the first layer, whose input needs no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from stallpoint.measure.clock import Clock, Mark
from stallpoint.networks.layers import Layer

_Marked = tuple[int, Mark]
"""Position of a layer, and when."""


@dataclass(frozen=True)
class LayerTimes:
    """One iteration's times in s, in the order of the layers."""

    forward: list[float]
    backward: list[float]
    gradient_ready: list[float | None]
    """When a layer's gradients were complete, since the start of the iteration; None where nothing is learned."""


class LayerTimer:
    """Takes the marks, by hooks that stay on the layers.

    `gradients_ready` is called, in the middle of the backward pass, with the position of each layer whose
    gradients have just been completed.
    """

    def __init__(self, layers: Sequence[Layer], clock: Clock, gradients_ready: Callable[[int], None]) -> None:
        self._clock = clock
        self._gradients_ready = gradients_ready
        self._layers = len(layers)
        self._forward: list[_Marked] = []
        self._backward: list[_Marked] = []
        self._ready: list[_Marked] = []
        for index, layer in enumerate(layers):
            self._hook_passes(index, layer.module)
            self._hook_gradients(index, layer.parameters)

    def times(self, end_of_forward: Mark, end_of_backward: Mark) -> LayerTimes:
        """Times of the iteration that just ended; the timer is then ready for the next one."""
        ready = {index: self._clock.seconds(mark) for index, mark in self._ready}
        times = LayerTimes(
            forward=self._durations(self._forward, end_of_forward),
            backward=self._durations(self._backward, end_of_backward),
            gradient_ready=[ready.get(index) for index in range(self._layers)],
        )
        for marks in (self._forward, self._backward, self._ready):
            marks.clear()
        return times

    def _durations(self, marks: list[_Marked], end: Mark) -> list[float]:
        """Seconds of each layer, from its mark to the next; 0 for a layer without one."""
        durations = [0.0] * self._layers
        for (index, begin), (_, next_begin) in pairwise([*marks, (-1, end)]):
            durations[index] += self._clock.seconds(next_begin) - self._clock.seconds(begin)
        return durations

    def _hook_passes(self, index: int, module: nn.Module) -> None:
        mark, forward, backward = self._clock.mark, self._forward, self._backward

        def before_forward(_module: nn.Module, _inputs: Any) -> None:
            forward.append((index, mark()))

        def before_backward(_gradients: Any) -> None:
            backward.append((index, mark()))

        def after_forward(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            if output.grad_fn is not None:
                # Of the operation, not of the tensor: an in-place ReLU gives the tensor another one.
                output.grad_fn.register_prehook(before_backward)

        module.register_forward_pre_hook(before_forward)
        module.register_forward_hook(after_forward)

    def _hook_gradients(self, index: int, parameters: Sequence[nn.Parameter]) -> None:
        """Tell when the last of a layer's parameters has its gradient."""
        missing = len(parameters)

        def accumulated(_parameter: torch.Tensor) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                missing = len(parameters)
                self._ready.append((index, self._clock.mark()))
                self._gradients_ready(index)

        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(accumulated)  # type: ignore[no-untyped-call]
