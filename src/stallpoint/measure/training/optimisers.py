"""Optimisers: SGD with momentum for timing, recipes' optimisers with a schedule of step sizes, and Adagrad for servers.

In recipes' optimisers only weight matrices and filters have weight decay and layer-wise steps, not biases or the scales
and shifts of normalisations (You et al. 2017; Goyal et al. 2017, section 5.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import nn
from torch.optim.sgd import sgd
from typing_extensions import override

from stallpoint.measure import STEP_SIZE
from stallpoint.study.recipes import Recipe

EPSILON = 1e-6
"""Term in the denominators of ``lamb`` and `Adagrad` that keeps steps finite while gradients are 0 (You et al. 2020,
section 4)."""


class Stepwise(ABC):
    """Base of optimisers with a step size for each step. Gradients are divided by `loss_scale` before a step."""

    def __init__(self, step_size: Callable[[int], float], loss_scale: float) -> None:
        self._size_of, self._scale, self._step = step_size, loss_scale, 0

    def begin(self, step: int) -> None:
        """Set the number of the next step, counted from 0."""
        self._step = step

    def step_size(self, step: int) -> float:
        return self._size_of(step)

    @torch.no_grad()
    def step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Update `parameters` that have gradients."""
        for weights in parameters:
            if weights.grad is not None:
                self._move(weights, weights.grad / self._scale)

    @abstractmethod
    def _move(self, weights: nn.Parameter, gradient: torch.Tensor) -> None:
        """Update one parameter."""


class RecipeOptimiser(Stepwise):
    """Optimiser of a recipe. `step_size` returns the size of a step; without it, all steps have the recipe's size."""

    def __init__(
        self,
        recipe: Recipe,
        parameters: Iterable[nn.Parameter],
        step_size: Callable[[int], float] | None = None,
        *,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(step_size or (lambda _: recipe.step_size), loss_scale)
        self._recipe = recipe
        params = list(parameters)
        self._means = {id(weights): torch.zeros_like(weights) for weights in params}
        self._squares = {id(weights): torch.zeros_like(weights) for weights in params if recipe.optimiser == "lamb"}

    @property
    def state(self) -> Sequence[torch.Tensor]:
        """Return the tensors kept from step to step: momenta, and mean squared gradients."""
        return [*self._means.values(), *self._squares.values()]

    @override
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
        scale = 1.0
        if recipe.optimiser == "lars" and layerwise:
            scale = recipe.trust * _ratio(weights.norm(), gradient.norm() + decay * weights.norm()).item()
        gradient = gradient + decay * weights
        if recipe.optimiser == "lars":  # LARS's momentum adds up steps, not gradients (You et al. 2017, algorithm 1)
            weights.sub_(mean.mul_(recipe.momentum).add_(size * scale * gradient))
        elif recipe.optimiser == "sgd":
            weights.sub_(size * gradient)
        else:
            mean.mul_(recipe.momentum).add_(gradient)
            weights.sub_(size * (gradient + recipe.momentum * mean if recipe.optimiser == "nesterov" else mean))


class Adagrad(Stepwise):
    """Adagrad with a diagonal (Duchi et al. 2011): each weight has a step size of its own. A server has the step sizes
    of its share of the weights (Dean et al. 2012, section 4.1)."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], step_size: Callable[[int], float], *, loss_scale: float = 1.0
    ) -> None:
        super().__init__(step_size, loss_scale)
        self._squares = {id(weights): torch.zeros_like(weights) for weights in parameters}

    @property
    def state(self) -> Sequence[torch.Tensor]:
        """Return the tensors kept from step to step: sums of squared gradients."""
        return list(self._squares.values())

    @override
    def _move(self, weights: nn.Parameter, gradient: torch.Tensor) -> None:
        square = self._squares[id(weights)].add_(gradient.square())
        weights.sub_(self.step_size(self._step) * gradient / (square.sqrt() + EPSILON))


def _ratio(norm: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return ``norm / other``; 1 if either is 0, as a layer without weights or gradient has no scale."""
    return torch.where((norm > 0) & (other > 0), norm / other, torch.ones_like(norm))


# Momentum and weight decay by which Caffe trains AlexNet.
MOMENTUM = 0.9
WEIGHT_DECAY = 0.0005


class Optimiser(Protocol):
    """Interface of an optimiser."""

    def begin(self, step: int) -> None:
        """Set the number of the next step, counted from 0. Without any call, every step is step 0."""

    def step_size(self, step: int) -> float:
        """Return the step size of a `step`; steps are counted from 0."""

    @property
    def state(self) -> Iterable[torch.Tensor]:
        """Return the tensors kept from step to step."""

    def step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Update `parameters` that have gradients; a step may take several calls."""


@torch.no_grad()
def restore(optimiser: Optimiser, state: Iterable[torch.Tensor]) -> None:
    """Set the state of `optimiser` to `state`, which an optimiser of the same kind and parameters returned."""
    for tensor, values in zip(optimiser.state, state, strict=True):
        tensor.copy_(values)


def local(values: torch.Tensor) -> torch.Tensor:
    """Return this rank's share of `values` if they are sharded (a DTensor), else `values` themselves."""
    found: torch.Tensor = getattr(values, "_local_tensor", values)
    return found


class Sgd:
    """SGD with momentum. Gradients are divided by `loss_scale` before a step.

    (`torch.optim.SGD` itself takes seconds to import.)
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, loss_scale: float = 1.0) -> None:
        moved = list(parameters)
        self._momenta = {id(weights): torch.zeros_like(local(weights.detach())) for weights in moved}
        device = moved[0].device if moved else None
        self._scale = torch.full((), loss_scale, device=device) if loss_scale != 1 else None

    def begin(self, step: int) -> None:
        """Do nothing, as all steps have the same size."""

    def step_size(self, step: int) -> float:
        """Return `STEP_SIZE` for any step."""
        return STEP_SIZE

    @property
    def state(self) -> Iterable[torch.Tensor]:
        return self._momenta.values()

    @torch.no_grad()
    def step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Update `parameters` that have gradients."""
        updated = [weights for weights in parameters if weights.grad is not None]
        momenta: list[torch.Tensor | None] = [self._momenta[id(weights)] for weights in updated]
        sgd(
            [local(weights.detach()) for weights in updated],
            [local(weights.grad) for weights in updated if weights.grad is not None],
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
