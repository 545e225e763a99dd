"""Interface between a training iteration and the synchronisation of gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from stallpoint.measure.clock import IterationClock, Mark
from stallpoint.measure.synchronisation.server import MakeOptimiser
from stallpoint.measure.training.passes import Ends, Passes
from stallpoint.measure.training.transfers import Gathered as Gathered
from stallpoint.measure.training.transfers import Received as Received
from stallpoint.measure.training.transfers import Transfer as Transfer
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer


@dataclass(frozen=True)
class Replica:
    """A worker's copy of the network, its world, and its clock."""

    network: nn.Module
    layers: Sequence[Layer]
    """Layers of the network, in forward order."""
    world: World
    clock: IterationClock


@dataclass(frozen=True)
class Worker:
    """All that a preset needs to divide a worker's network and to make its synchronisation."""

    network: nn.Module
    layers: Sequence[Layer]
    """Layers of the network, in forward order, whose gradients are synchronised."""
    world: World
    clock: IterationClock
    device: torch.device
    step: Callable[[list[nn.Parameter]], None]
    """Function that updates weights, if one rank does so for all."""
    for_server: MakeOptimiser
    """Function that makes the optimiser of a server's share."""
    waiting: Callable[[bool], None] = lambda _: None
    """Function called with True when a wait within computing begins, and with False when it ends."""
    warmup: int = 1
    """Number of iterations after which plans are made from measured times."""
    per_node: int = 1
    """Number of consecutive ranks that share a node."""
    division: Sequence[int] = ()
    """Positions of the layers where the network is divided (`Strategy.division`)."""
    empty_messages: bool = False
    """Whether every message carries one value and no gradients."""

    @property
    def replica(self) -> Replica:
        """The worker's copy of the network."""
        return Replica(self.network, self.layers, self.world, self.clock)


class Synchronisation(Protocol):
    """Interface of synchronisations. All ranks call the same methods in the same order.

    The methods here suit a synchronisation without shards, whose weights are equal on all ranks and updated outside.
    """

    network: nn.Module
    """The network that is trained."""
    updates: bool = False
    """Whether the synchronisation also updates the weights."""
    local_updates: bool = False
    """Whether workers update their own weights, so that losses are not divided by the number of workers."""
    shards: int = 1
    """Number of shards of the weights; so many consecutive ranks hold one shard each."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the loss; `inputs` are the network's inputs and the labels."""
        loss: torch.Tensor = self.network(*inputs)
        return loss

    def passes(self, run: Passes, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[list[torch.Tensor], list[Ends]]:
        """Do the passes of each part of a mini-batch; return the parts' losses, and the ends of their passes. The
        caller then reports the ends of the last part to the timer."""
        *earlier, last = run.divided(inputs, labels)
        workers = 1 if self.local_updates else run.workers
        losses, passes = [], []
        for part in earlier:
            with self.accumulating(), run.timer.accumulating():
                loss, ends = run(self.forward, part, workers)
            run.timer.passed(*ends)
            losses.append(loss)
            passes.append(ends)
        loss, (forward, backward) = run(self.forward, last, workers)
        return [*losses, loss], [*passes, [forward, self.backward_ended(backward)]]

    def accumulating(self) -> AbstractContextManager[None]:
        """Return a context for passes whose gradients stay on their ranks; `ready` is not called in it."""
        return nullcontext()

    def share(self, parameters: Sequence[nn.Parameter]) -> Sequence[nn.Parameter]:
        """Return the share of `parameters` that this rank updates; called once before training."""
        return parameters

    def update(self, step: Callable[[Sequence[nn.Parameter]], None], parameters: Sequence[nn.Parameter]) -> None:
        """Update the weights on all ranks; `step` updates this rank's share."""
        step(parameters)

    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """Return by layer the all-gathers of its weights, or of its input, since the start of the iteration."""
        return {}

    def ready(self, layer: int) -> None:
        """Note that the gradients of `layer` are complete; called within the backward pass."""
        return

    def backward_ended(self, now: Mark) -> Mark:
        """Return the mark at which back-propagation ended; called at mark `now`, after the backward pass returned."""
        return now

    def finish(self) -> None:
        """Wait until the gradients of all layers are summed; with `updates`, until the weights are updated.

        Raises the errors of a communication thread.
        """
        return

    def updated(self) -> None:
        """Exchange updated weights, if the algorithm exchanges weights."""
        return

    def received(self) -> Sequence[Received]:
        """Return the messages from other pipeline stages since the start of the iteration."""
        return []

    def transfers(self) -> Mapping[int, Transfer]:
        """Return the ended transfers of gradients since the start of the iteration, by layer."""
        return {}

    def clear(self) -> None:
        """Drop the gradients, once the weights are updated."""
        self.network.zero_grad(set_to_none=True)

    def learn(self, gradient_ready: Sequence[float | None]) -> None:
        """Plan messages; `gradient_ready` has the time of each layer's complete gradients in the last iteration, s."""
        return

    def consensus(self) -> AbstractContextManager[None]:
        """Return a context in which the network has the trained weights; called on all ranks."""
        return nullcontext()

    def staleness(self) -> Sequence[tuple[int, int, int]]:
        """Return the number, worker and staleness of each update of this rank's server; called on all ranks."""
        return []

    def state(self) -> dict[str, Any]:
        """Return the worker's state between iterations, in tensors, numbers, lists and dictionaries."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that the method `state` returned."""
        return

    def close(self, *, wait: bool) -> None:
        """Close. With `wait`, close after pending communication; all ranks then call this method."""
        return


@dataclass(frozen=True)
class WorkerPart:
    """A worker's part in training, as a preset makes it: synchronisation, network and layers."""

    synchronisation: Synchronisation
    network: nn.Module
    """The network that is trained."""
    layers: Sequence[Layer]
    """Layers of the complete network, with their sizes."""
    trained: Sequence[Layer]
    """Layers with the parameters that this worker trains."""
    shared: Sequence[nn.Parameter]
    """Parameters that must be equal on all ranks, or, if sharded, on the ranks with the same share."""
    copied: bool = False
    """Whether `network` is a copy."""


def parameters(layers: Sequence[Layer]) -> list[nn.Parameter]:
    """Return the parameters of `layers`."""
    return [weights for layer in layers for weights in layer.parameters]


def unsharded(synchronisation: Synchronisation, worker: Worker) -> WorkerPart:
    """Return the part in training of a `worker` that has all layers of the network."""
    return WorkerPart(synchronisation, worker.network, worker.layers, worker.layers, parameters(worker.layers))
