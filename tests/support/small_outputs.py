"""Training of a small network with split outputs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from small_training import batches
from torch import nn

from stallpoint.measure.jobs.train import Trainer
from stallpoint.measure.synchronisation.outputs import SplitLayers
from stallpoint.measure.world import World
from stallpoint.networks.description import splittable_layers
from stallpoint.networks.layers import Classifier, initialise
from stallpoint.strategies.presets import PRESETS, Preset

ITERATIONS, SAMPLES = 5, 12
WIDE, CLASSES = 61, 5
"""Outputs of the split layers, which no number of ranks here divides."""
TRICK = PRESETS["one-weird-trick"].preset
WAYS: dict[str, tuple[Preset, int]] = {
    "layer by layer": (TRICK, CLASSES),
    "after the backward pass": (replace(TRICK, start="after-backward"), CLASSES),
    "merged": (replace(TRICK, grouping="merged"), CLASSES),
    "fewer outputs than workers": (TRICK, 2),
}
"""Presets, and classes of the network."""


class Seeing(nn.Linear):
    """Keeps what it took last."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As `nn.Linear`."""
        self.seen = input.detach().clone()
        return super().forward(input)


def network(classes: int, dropped: float = 0.0) -> nn.Module:
    small = Classifier(
        conv=nn.Conv2d(3, 4, 3),
        relu=nn.ReLU(inplace=True),
        pool=nn.MaxPool2d(2),
        conv2=nn.Conv2d(4, 6, 2),
        flatten=nn.Flatten(),
        wide=nn.Linear(6 * 4, WIDE),
        relu2=nn.ReLU(inplace=True),
        drop=nn.Dropout(dropped),
        fc=Seeing(WIDE, classes, bias=classes == CLASSES),
    )
    initialise(small, seed=3)
    return small


@dataclass
class Trained:
    """What a rank saw."""

    weights: dict[str, torch.Tensor]
    held: dict[str, int]
    """Bytes of its tensors by what they are."""
    phases: list[dict[str, float]]
    layers: list[dict[str, Any]]
    sent: dict[str, list[int]]
    """Bytes that the rank handed to each operation in the last iteration, one by one."""
    seen: torch.Tensor
    """What the last layer took in the last iteration."""


def train(world: World, preset: Preset, classes: int, dropped: float = 0.0) -> Trained:
    """On all ranks of `world`."""
    torch.manual_seed(world.rank)
    small = network(classes, dropped)
    before = {name: values.clone() for name, values in small.state_dict().items()}
    source = iter(batches(world, SAMPLES, classes))
    split = splittable_layers(small)
    with Trainer(small, world, preset, torch.device("cpu"), warmup=2, division=split) as trainer:
        found = [trainer.step(lambda: next(source)) for _ in range(ITERATIONS - 1)]
        sent = counted(trainer)
        found.append(trainer.step(lambda: next(source)))
        trainer.check_weights()
        held = {name: sum(one.nbytes for one in tensors) for name, tensors in trainer.tensors.items()}
        modules = dict(trainer._network.named_modules())
        weights = {name: values.clone() for name, values in trainer._network.state_dict().items()}
    if world.size > 1:
        assert all(torch.equal(values, before[name]) for name, values in small.state_dict().items()), "a copy trains"
    fc = modules["fc"]
    assert isinstance(fc, Seeing)
    return Trained(weights, held, [one.phases for one in found], [dict(one.layers) for one in found], sent, fc.seen)


def counted(trainer: Trainer) -> dict[str, list[int]]:
    """What is gathered and scattered from now on."""
    sent: dict[str, list[int]] = {"all_gather": [], "reduce_scatter": []}
    if not isinstance(trainer._synchronisation, SplitLayers):
        return sent
    moves = trainer._synchronisation._communicates

    def counting(name: str, do: Callable[..., int]) -> Callable[..., int]:
        def count(*tensors: torch.Tensor) -> int:
            sent[name].append(do(*tensors))
            return sent[name][-1]

        return count

    for name in sent:
        setattr(moves, name, counting(name, getattr(moves, name)))
    return sent


def train_all(world: World) -> dict[str, Trained]:
    """Train in every way, and with a dropout before the last layer."""
    found = {name: train(world, preset, classes) for name, (preset, classes) in WAYS.items()}
    return {**found, "dropout": train(world, TRICK, CLASSES, 0.5)}
