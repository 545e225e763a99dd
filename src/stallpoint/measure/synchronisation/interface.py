"""What a training iteration asks of whatever brings the workers' gradients together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from stallpoint.measure.clock import Clock, Mark
from stallpoint.measure.synchronisation.server import MakeOptimiser
from stallpoint.measure.training.passes import Ends, Passes
from stallpoint.measure.training.sent import Gathered as Gathered
from stallpoint.measure.training.sent import Received as Received
from stallpoint.measure.training.sent import Sent as Sent
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer


@dataclass(frozen=True)
class Replica:
    """A worker's copy of the network, whom it shares the training with, and what times both."""

    network: nn.Module
    layers: Sequence[Layer]
    """Of the network, in forward order."""
    world: World
    clock: Clock


@dataclass(frozen=True)
class Worker:
    """A worker, before it is known how its network is divided and what brings gradients together."""

    network: nn.Module
    layers: Sequence[Layer]
    """Of the network, in forward order; their gradients are brought together."""
    world: World
    clock: Clock
    device: torch.device
    step: Callable[[list[nn.Parameter]], None]
    """Updates weights, where that is done by one rank."""
    for_server: MakeOptimiser
    """Makes what updates the share of a server."""
    waiting: Callable[[bool], None] = lambda _: None
    """Is told when a rank begins and ends to wait in the middle of computing."""
    warmup: int = 1
    """Iterations after which plans are made that need measured times."""
    per_node: int = 1
    """Ranks that share a node, in their order."""
    division: Sequence[int] = ()
    """Positions of the layers where the network is divided (`Strategy.division`)."""
    empty_messages: bool = False
    """Every message carries one value, and no gradients."""

    @property
    def replica(self) -> Replica:
        """Its copy of the network."""
        return Replica(self.network, self.layers, self.world, self.clock)


class Synchronisation(Protocol):
    """One way to synchronise. All ranks call the same methods in the same order.

    Those that shard nothing, keep the weights of all ranks the same, accumulate by themselves and leave the update to
    others inherit all that is not theirs.
    """

    network: nn.Module
    """What is trained."""
    updates: bool
    """Whether it also updates the weights, so that nobody else may."""
    apart: bool = False
    """Whether workers update weights of their own, so that a loss is not divided by their number."""
    shards: int = 1
    """In how many parts the weights are: as many ranks, in their order, hold all of them together."""

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The loss of these inputs and labels."""
        loss: torch.Tensor = self.network(*inputs)
        return loss

    def passes(self, how: Passes, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[list[torch.Tensor], list[Ends]]:
        """Losses of the parts of a mini-batch, and the ends of all forward and backward passes; the last ones are not
        told to the timer."""
        *earlier, last = how.divided(inputs, labels)
        workers = 1 if self.apart else how.workers
        losses, passes = [], []
        for part in earlier:
            with self.accumulating(), how.timer.accumulating():
                loss, ends = how(self.forward, part, workers)
            how.timer.passed(*ends)
            losses.append(loss)
            passes.append(ends)
        loss, (forward, backward) = how(self.forward, last, workers)
        return [*losses, loss], [*passes, [forward, self.backward_ended(backward)]]

    def accumulating(self) -> AbstractContextManager[None]:
        """A block of passes whose gradients stay on their ranks; `ready` is not called in it."""
        return nullcontext()

    def share(self, parameters: Sequence[nn.Parameter]) -> Sequence[nn.Parameter]:
        """What of `parameters` this rank updates, once and before training."""
        return parameters

    def update(self, step: Callable[[Sequence[nn.Parameter]], None], parameters: Sequence[nn.Parameter]) -> None:
        """Update the weights on all ranks; `step` updates what is its share."""
        step(parameters)

    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """All-gathers of weights, or of what layers take, since the start of the iteration, by layer."""
        return {}

    def ready(self, layer: int) -> None:
        """The gradients of `layer` are complete; called in the middle of the backward pass."""
        return

    def backward_ended(self, now: Mark) -> Mark:
        """The backward pass has returned; when back-propagation itself had ended."""
        return now

    def finish(self) -> None:
        """Return when the gradients of all layers are summed (or all weights updated); raises what went wrong."""
        return

    def updated(self) -> None:
        """The weights are updated: exchange them, where it is they that are exchanged."""
        return

    def received(self) -> Sequence[Received]:
        """What came from other stages since the start of the iteration."""
        return []

    def sent(self) -> Mapping[int, Sent]:
        """What was sent since the start of the iteration, by layer; it has ended."""

    def clear(self) -> None:
        """Forget the gradients, once the weights are updated."""

    def learn(self, gradient_ready: Sequence[float | None]) -> None:
        """An iteration has ended in which the layers' gradients were complete at these times, s since its start."""
        return

    def consensus(self) -> AbstractContextManager[None]:
        """A block in which the network has the weights that are trained, on all ranks, which call it together."""
        return nullcontext()

    def staleness(self) -> Sequence[tuple[int, int, int]]:
        """Number of each update of this rank's server, the worker of each, and its staleness; all ranks call it."""
        return []

    def state(self) -> dict[str, Any]:
        """What it keeps from iteration to iteration, in tensors, numbers, lists and dictionaries; a worker's own."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with what `state` gave."""
        return

    def close(self, *, wait: bool) -> None:
        """End; with `wait`, after what is under way, and together with the other ranks."""


@dataclass(frozen=True)
class Part:
    """A worker's part in training."""

    synchronisation: Synchronisation
    network: nn.Module
    """What it trains."""
    layers: Sequence[Layer]
    """Those of the whole network, with its sizes."""
    trained: Sequence[Layer]
    """The same with the parameters that this worker trains."""
    alike: Sequence[nn.Parameter]
    """Those of them that as many ranks hold as there are, or, of sharded ones, as hold the same share."""
    copied: bool = False
    """Whether `network` is a copy."""


def parameters(of: Sequence[Layer]) -> list[nn.Parameter]:
    """Return the parameters of layers."""
    return [weights for layer in of for weights in layer.parameters]


def whole(synchronisation: Synchronisation, worker: Worker) -> Part:
    """Return the part of a worker that has all layers."""
    return Part(synchronisation, worker.network, worker.layers, worker.layers, parameters(worker.layers))
