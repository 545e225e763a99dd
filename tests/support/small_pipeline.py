"""Training of the small network through the stages of a pipeline."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from small_training import ITERATIONS, batches, network
from torch import nn

from stallpoint.measure.jobs.train import Trainer
from stallpoint.measure.training.input_pipeline import NothingToRead
from stallpoint.measure.training.optimisers import Sgd
from stallpoint.measure.world import World
from stallpoint.strategies.presets import PRESETS

STARTS = {1: (), 2: (0, 4), 3: (0, 4, 6)}
"""The first layers of so many stages: conv, wide and fc."""


@dataclass
class Trained:
    """What a rank saw."""

    weights: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    phases: list[dict[str, float]] = field(default_factory=list)
    layers: list[dict[str, Any]] = field(default_factory=list)


class Noting(Sgd):
    """Keeps the gradients of the first step."""

    def step(self, parameters: Any) -> None:
        """As `Sgd`."""
        if not hasattr(self, "first"):
            self.first = {id(weights): weights.grad.clone() for weights in parameters}
        super().step(parameters)


def train(world: World, name: str = "pipeline") -> Trained:
    """Through as many stages as ranks, by the preset of this name."""
    alone = World(world.comm.Split(world.rank, 0), 0, 1)
    source, small, made = iter(batches(alone)), network(), list[Noting]()

    def make(parameters: list[nn.Parameter], *, loss_scale: float) -> Noting:
        made.append(Noting(parameters, loss_scale=loss_scale))
        return made[-1]

    preset, cpu = PRESETS[name].preset, torch.device("cpu")
    with Trainer(small, world, preset, cpu, optimiser=make, division=STARTS[world.size]) as trainer:
        found = [
            trainer.step(NothingToRead().next_batch if world.rank else lambda: next(source)) for _ in range(ITERATIONS)
        ]
        trainer.check_weights()
        own = sum(weights.nbytes for weights in trainer.tensors["weights"])
    own_names = [name for name, weights in small.named_parameters() if id(weights) in made[0].first]
    assert own == sum(small.get_parameter(name).nbytes for name in own_names), "weights of other stages are not counted"
    return Trained(
        {name: small.get_parameter(name).detach().clone() for name in own_names},
        {name: made[0].first[id(small.get_parameter(name))] for name in own_names},
        [one.phases for one in found],
        [dict(one.layers) for one in found],
    )


def trains_as_whole(alone: list[Trained], stages: list[Trained], *, rtol: float) -> None:
    """Assert that stages of a pipeline have gradients, weights and losses of the whole network on one rank."""
    (whole,) = alone
    for of in ("gradients", "weights"):
        parts = [vars(rank)[of] for rank in stages]
        assert [name for part in parts for name in part] == list(vars(whole)[of]), "each layer is in one stage"
        for name, values in (item for part in parts for item in part.items()):
            torch.testing.assert_close(values, vars(whole)[of][name], rtol=rtol, atol=1e-6)
    for rank in stages:
        losses = [one["loss"] for one in rank.phases]
        assert losses == pytest.approx([one["loss"] for one in whole.phases], rel=1e-5), "every rank knows it"
