"""The optimisers of recipes, whose step size follows from the step, and that of servers.

Biases, and the scales and shifts of normalisations, have no weight decay and no layer-wise step: both are of weight
matrices and filters (You et al. 2017; Goyal et al. 2017, section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from stallpoint.study.recipes import Recipe

EPSILON = 1e-6
"""Of ``lamb`` and `Adagrad`: keeps the step finite where gradients were 0 so far (You et al. 2020, section 4)."""


class RecipeOptimiser:
    """Moves weights against their gradients, which bear the factor `loss_scale` until then, as a recipe says.

    `step_size` is that of each step, counted from 0; without it all have the recipe's.
    """

    def __init__(
        self,
        recipe: Recipe,
        parameters: Iterable[nn.Parameter],
        step_size: Callable[[int], float] | None = None,
        *,
        loss_scale: float = 1.0,
    ) -> None:
        self._recipe, self._scale = recipe, loss_scale
        self._size_of = step_size or (lambda _: recipe.step_size)
        moved = list(parameters)
        self._means = {id(weights): torch.zeros_like(weights) for weights in moved}
        self._squares = {id(weights): torch.zeros_like(weights) for weights in moved if recipe.optimiser == "lamb"}
        self._step = 0

    def begin(self, step: int) -> None:
        """What follows is this step, counted from 0."""
        self._step = step

    def step_size(self, step: int) -> float:
        """Of a step, counted from 0."""
        return self._size_of(step)

    @torch.no_grad()
    def step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Update these parameters, as far as they have gradients."""
        for weights in parameters:
            if weights.grad is not None:
                self._move(weights, weights.grad / self._scale)

    @property
    def state(self) -> Sequence[torch.Tensor]:
        """What it keeps from step to step."""
        return [*self._means.values(), *self._squares.values()]

    def _move(self, weights: nn.Parameter, gradient: torch.Tensor) -> None:
        recipe, size = self._recipe, self.step_size(self._step)
        layerwise = weights.dim() > 1
        decay = recipe.weight_decay if layerwise else 0.0
        mean = self._means[id(weights)]
        if recipe.optimiser == "lamb":
            square = self._squares[id(weights)]
            mean.lerp_(gradient, 1 - recipe.momentum)
            square.lerp_(gradient.square(), 1 - recipe.beta2)
            unbiased = mean / (1 - recipe.momentum ** (self._step + 1))
            spread = square / (1 - recipe.beta2 ** (self._step + 1))
            update = unbiased / (spread.sqrt() + EPSILON) + decay * weights
            weights.sub_(size * (_ratio(weights.norm(), update.norm()) if layerwise else 1.0) * update)
            return
        local = 1.0
        if recipe.optimiser == "lars" and layerwise:
            local = recipe.trust * _ratio(weights.norm(), gradient.norm() + decay * weights.norm()).item()
        gradient = gradient + decay * weights
        if recipe.optimiser == "lars":  # the size of each step stays with it (You et al. 2017, algorithm 1)
            weights.sub_(mean.mul_(recipe.momentum).add_(size * local * gradient))
        elif recipe.optimiser == "sgd":
            weights.sub_(size * gradient)
        else:
            mean.mul_(recipe.momentum).add_(gradient)
            weights.sub_(size * (gradient + recipe.momentum * mean if recipe.optimiser == "nesterov" else mean))


class Adagrad:
    """Adagrad with this `step_size` of each step, counted from 0; gradients bear the factor `loss_scale`.

    Duchi et al. (2011), diagonal; Dean et al. (2012), section 4.1, have the rates at the servers, each for its
    own share.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], step_size: Callable[[int], float], *, loss_scale: float = 1.0
    ) -> None:
        self._size_of, self._scale, self._step = step_size, loss_scale, 0
        self._squares = {id(weights): torch.zeros_like(weights) for weights in parameters}

    def begin(self, step: int) -> None:
        """What follows is this step, counted from 0."""
        self._step = step

    def step_size(self, step: int) -> float:
        """Of a step, counted from 0."""
        return self._size_of(step)

    @property
    def state(self) -> Sequence[torch.Tensor]:
        """Sums of squared gradients."""
        return list(self._squares.values())

    @torch.no_grad()
    def step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Update these parameters, as far as they have gradients."""
        for weights in parameters:
            if weights.grad is not None:
                gradient = weights.grad / self._scale
                square = self._squares[id(weights)].add_(gradient.square())
                weights.sub_(self.step_size(self._step) * gradient / (square.sqrt() + EPSILON))


def _ratio(norm: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """``norm / of``; 1 where either is 0, as a layer without weights or gradient has no scale."""
    return torch.where((norm > 0) & (of > 0), norm / of, torch.ones_like(norm))
