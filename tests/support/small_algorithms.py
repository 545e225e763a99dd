"""Training of the small network by algorithms other than synchronous SGD, on four ranks."""

from dataclasses import dataclass, field
from typing import Any

import torch
from small_training import ITERATIONS, batches, large_gradients, network
from torch import nn

from stallpoint.measure.clock import HostClock
from stallpoint.measure.jobs.train import Trainer
from stallpoint.measure.synchronisation.averaging import Gossip
from stallpoint.measure.synchronisation.interface import Replica
from stallpoint.measure.training.optimisers import RecipeOptimiser
from stallpoint.measure.world import World
from stallpoint.networks.layers import layers
from stallpoint.strategies.presets import PRESETS, Preset, preset_from, with_options
from stallpoint.study.recipes import Recipe

WORKERS = 4
Weights = dict[str, torch.Tensor]


def averaging(**options: float) -> Preset:
    return preset_from({"start": "after-backward", "algorithm": "averaging", **options})


def served(**options: Any) -> Preset:
    return preset_from({"reduction": "parameter-server", "start": "after-backward", **options})


DOWNPOUR_WITH_LOSS = with_options(
    PRESETS["downpour-with-loss"].preset, {"period": 2, "pull_period": 2, "lost_after": 6}
)
CASES: dict[str, tuple[Preset, str]] = {
    "sgd, averaged each time": (averaging(period=1), "sgd"),
    "momentum, averaged each time": (averaging(period=1), "momentum"),
    "synchronous at first": (averaging(period=7, synchronous_steps=ITERATIONS), "nesterov"),
    "averaged every fifth time": (averaging(period=5), "sgd"),
    "outer steps of the whole way": (averaging(period=5, outer_step=1.0, outer_momentum=0.0), "sgd"),
    "bound 0": (served(algorithm="asynchronous", staleness_bound=0), "sgd"),
    "bound 0, three servers": (
        served(reduction="sharded-servers", servers=3, algorithm="asynchronous", staleness_bound=0),
        "sgd",
    ),
    "bound 2": (served(algorithm="asynchronous", staleness_bound=2), "sgd"),
    **{
        name: (PRESETS[name].preset, "sgd")
        for name in ("asynchronous", "soft-synchronous", "dist-async", "downpour", "elastic-averaging", "gossip")
    },
    "a replica is lost": (DOWNPOUR_WITH_LOSS, "sgd"),
}
"""Preset and optimiser."""
RESUMED: dict[str, tuple[Preset, str]] = {
    "averaging": (averaging(period=3, outer_step=0.7, outer_momentum=0.9), "momentum"),
    "bound 0": CASES["bound 0"],
    "delayed": (preset_from({"blocks": 2}), "momentum"),
    "a replica is lost": (
        with_options(DOWNPOUR_WITH_LOSS, dict.fromkeys(("period", "pull_period"), ITERATIONS + 1)),
        "sgd",
    ),
    "a server beside momenta": (served(algorithm="elastic", period=ITERATIONS + 1), "momentum"),
}
"""Preset and optimiser, whose numbers do not depend on who is first."""


@dataclass
class Trained:
    """What a rank saw."""

    weights: Weights
    """That are trained."""
    own: Weights = field(default_factory=dict)
    """Of this worker."""
    losses: list[float] = field(default_factory=list)
    sent: list[bool] = field(default_factory=list)
    """Whether there was a message, for each iteration."""
    staleness: dict[str, Any] = field(default_factory=dict)


def train(world: World, preset: Preset, optimiser: str, *, stop: int = ITERATIONS, size: float = 0.05) -> Trained:
    """Train, and from iteration `stop` on with another trainer that goes on from the state of the first."""
    source, found = iter(batches(world)), Trained({})
    state: Any = None
    for count in (stop, ITERATIONS - stop):
        small = network()

        def make(parameters: list[nn.Parameter], *, loss_scale: float) -> RecipeOptimiser:
            return RecipeOptimiser(Recipe(optimiser, step_size=size), parameters, loss_scale=loss_scale)

        with large_gradients(), Trainer(small, world, preset, torch.device("cpu"), optimiser=make) as trainer:
            if state:
                small.load_state_dict(state[0])
                trainer.restore(state[1])
                world.comm.Barrier()  # as in a job: whoever steps before a server has its state steps in vain
            for _ in range(count):
                iteration = trainer.step(lambda: next(source))
                found.losses.append(iteration.phases["loss"])
                found.sent.append(max(iteration.layers["bucket"]) >= 0)
            with trainer.for_evaluation():
                found.weights = {name: values.clone() for name, values in small.state_dict().items()}
            found.own = {name: values.clone() for name, values in small.state_dict().items()}
            world.comm.Barrier()
            state = small.state_dict(), trainer.state()
            found.staleness = {name: list(values) for name, values in trainer.staleness().items()}
    return found


def mixed(world: World) -> list[float]:
    """A worker's only weight, its rank at first, after each of three mixes with its neighbours."""
    one = nn.Linear(1, 1, bias=False)
    gossip = Gossip(Replica(one, layers(nn.Sequential(one)), world, HostClock()), PRESETS["gossip"].preset)
    nn.init.constant_(one.weight, world.rank)
    found = []
    for _ in range(3):
        gossip.updated()
        found.append(one.weight.item())
    return found


def train_all(world: World) -> dict[str, Any]:
    """Train in every way: what this rank saw of each case."""
    trained = {name: train(world, preset, optimiser) for name, (preset, optimiser) in CASES.items()}
    resumed = {
        name: [(one.weights, one.own) for one in (train(world, *case, stop=stop) for stop in (ITERATIONS, 5))]
        for name, case in RESUMED.items()
    }
    return {"trained": trained, "resumed": resumed, "mixed": mixed(world)}
