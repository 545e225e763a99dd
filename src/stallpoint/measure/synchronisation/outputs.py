"""The last fully-connected layers split over the ranks by their outputs, all others in copies (Krizhevsky 2014).

Scheme (a) of section 4: what enters the first split layer is gathered of all ranks' samples; each rank computes its
share of the outputs of each split layer for all of them, and the outputs are gathered before the next one, and behind
the last one, of which a rank then keeps those of its own samples. In the backward pass a reduce-scatter takes the place
of each all-gather. Gradients of split weights are complete on their rank; the others are summed as ever.

Values between two split layers are each on one rank alone: so is what a dropout between them draws.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import nn
from torch.nn import functional

from stallpoint.errors import InputError
from stallpoint.measure.clock import Clock, Mark
from stallpoint.measure.synchronisation.assembly import replicas
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.synchronisation.interface import Gathered, Part, Sent, Synchronisation, Worker, parameters
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer, layers
from stallpoint.strategies.presets import Preset


def shares(outputs: int, ranks: int) -> list[int]:
    """How many of the `outputs` each rank computes; the first ones have one more where they cannot be equal."""
    each, more = divmod(outputs, ranks)
    return [each + (rank < more) for rank in range(ranks)]


class SplitLayers(Synchronisation):
    """A `Synchronisation` of a `network` whose layers at the positions `split` are split over the ranks of `world`.

    The network is not changed: what is trained is a copy of it with this rank's share of those layers.
    """

    updates = False

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> Part:
        """See `assembly`."""
        split = cls(worker.network, worker.division, worker.world, worker.clock, worker.device, preset, worker.waiting)
        trained = layers(split.network)
        summed = split.summed(trained)
        split.start(replicas(preset, replace(worker, layers=summed)).synchronisation)
        return Part(split, split.network, split.layers, trained, parameters(summed), copied=True)

    def __init__(
        self,
        network: nn.Module,
        split: Sequence[int],
        world: World,
        clock: Clock,
        device: torch.device,
        preset: Preset,
        waiting: Callable[[bool], None],
    ) -> None:
        self._clock, self._waiting = clock, waiting
        # Of its own, as a communication thread may be sending gradients meanwhile.
        self._comm = world.comm.Dup()
        own = World(self._comm, world.rank, world.size)
        self._communicates = communicator(preset.backend, preset.scheme, 0, own, device)
        self._exchanges: list[tuple[int, bool, Mark, Mark]] = []
        whole = layers(network)
        self.layers = [
            replace(layer, parameters=[nn.Parameter(weights.detach().to("meta")) for weights in layer.parameters])
            if place in split else layer
            for place, layer in enumerate(whole)
        ]  # fmt: skip
        """Those of the network with the sizes of whole layers, without the memory for those that are split."""
        linears = {place: cast(nn.Linear, whole[place].module) for place in split}
        sizes = {place: shares(linear.out_features, world.size) for place, linear in linears.items()}
        self.network = _with_shares(network, [(linears[place], sizes[place]) for place in split], world.rank)
        self._split = frozenset(split)
        copied = layers(self.network)
        samples: _Parts = _Samples(world.size)
        takes = [samples, *(_Outputs(sizes[place], world.rank) for place in split)]
        for number, place in enumerate(split):
            behind = len(whole) - 1 if place == split[-1] else None  # the loss takes what the last one gives
            self._gather_around(copied[place].module, place, takes[number], behind, takes[-1])

    def summed(self, of: Sequence[Layer]) -> list[Layer]:
        """The layers `of` the network, without the parameters that one rank alone has."""
        return [replace(layer, parameters=[]) if place in self._split else layer for place, layer in enumerate(of)]

    def start(self, others: Synchronisation) -> None:
        """What brings the gradients of the layers together that all ranks have."""
        self._others = others

    def ready(self, layer: int) -> None:
        """Send the gradients of a layer that all have."""
        if layer not in self._split:
            self._others.ready(layer)

    def finish(self) -> None:
        """Return when the gradients that all have are summed."""
        self._others.finish()

    def sent(self) -> Mapping[int, Sent]:
        """What was sent of gradients."""
        return self._others.sent()

    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """The all-gathers of what layers take, and the reduce-scatters of its gradients."""
        found: dict[int, list[Gathered]] = {}
        for layer, backward, start, end in self._exchanges:
            took = Gathered(backward, self._clock.seconds(start), self._clock.seconds(end))
            found.setdefault(layer, []).append(took)
        return found

    def learn(self, gradient_ready: Sequence[float | None]) -> None:
        """Tell what sends the gradients."""
        self._others.learn(gradient_ready)

    def clear(self) -> None:
        """Forget the gradients and what was gathered."""
        self._others.clear()
        self.network.zero_grad(set_to_none=True)
        self._exchanges.clear()

    def close(self, *, wait: bool) -> None:
        """End, and leave the other ranks."""
        self._others.close(wait=wait)
        if wait:
            self._comm.Free()

    def _gather_around(self, linear: nn.Module, place: int, takes: _Parts, behind: int | None, gives: _Parts) -> None:
        """Have the layer gather what it takes, and where something is `behind` it also what it gives."""
        share = linear.forward

        def forward(values: torch.Tensor) -> torch.Tensor:
            if values.dim() != 2:
                raise InputError(
                    "sharding: outputs splits fully-connected layers of flat values [b, width]; one of this network "
                    f"takes {list(values.shape)}"
                )
            outputs: torch.Tensor = share(self._gathered(place, takes, values))
            if behind is None:
                return outputs
            own = len(outputs) // self._communicates.ranks
            return self._gathered(behind, gives, outputs).narrow(0, self._communicates.rank * own, own)

        linear.forward = forward

    def _gathered(self, layer: int, parts: _Parts, values: torch.Tensor) -> torch.Tensor:
        gathered: torch.Tensor = _Gathering.apply(values.float(), self, layer, parts)  # type: ignore[no-untyped-call]
        return gathered

    def all_gather(self, layer: int, part: torch.Tensor) -> torch.Tensor:
        """The `part` of each rank [ranks, ...], which `layer` takes."""
        received = part.new_empty(self._communicates.ranks, *part.shape)
        self._exchange(layer, lambda: self._communicates.all_gather(received, part.contiguous()), backward=False)
        return received

    def reduce_scatter(self, layer: int, parts: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum of all ranks' `parts` [ranks, ...]: gradients of what `layer` takes."""
        received = parts.new_empty(parts.shape[1:])
        self._exchange(layer, lambda: self._communicates.reduce_scatter(received, parts.contiguous()), backward=True)
        return received

    def _exchange(self, layer: int, do: Callable[[], object], *, backward: bool) -> None:
        self._waiting(True)
        start = self._clock.mark()
        do()
        self._exchanges.append((layer, backward, start, self._clock.mark()))
        self._waiting(False)


class _Parts(Protocol):
    """How what is gathered is made of the ranks' parts, all of one size as they are sent."""

    def sent(self, part: torch.Tensor) -> torch.Tensor:
        """A rank's part, as it is sent."""

    def joined(self, parts: torch.Tensor) -> torch.Tensor:
        """What the parts [ranks, ...] are together."""

    def divided(self, whole: torch.Tensor) -> torch.Tensor:
        """The parts [ranks, ...] of it, as they are sent."""

    def own(self, part: torch.Tensor) -> torch.Tensor:
        """This rank's part, of what was received."""


@dataclass(frozen=True)
class _Samples:
    """Each rank has as many samples, all values of each."""

    ranks: int

    def sent(self, part: torch.Tensor) -> torch.Tensor:
        return part

    def joined(self, parts: torch.Tensor) -> torch.Tensor:
        return parts.flatten(0, 1)

    def divided(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.reshape(self.ranks, -1, *whole.shape[1:])

    def own(self, part: torch.Tensor) -> torch.Tensor:
        return part


@dataclass(frozen=True)
class _Outputs:
    """Each rank has so many outputs of a layer, of all samples; narrower parts are sent with zeros behind them."""

    sizes: list[int]
    rank: int

    def sent(self, part: torch.Tensor) -> torch.Tensor:
        return functional.pad(part, (0, max(self.sizes) - part.shape[-1]))

    def joined(self, parts: torch.Tensor) -> torch.Tensor:
        return torch.cat([part[..., :size] for part, size in zip(parts, self.sizes, strict=True)], dim=-1)

    def divided(self, whole: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.sent(part) for part in torch.split(whole, self.sizes, dim=-1)])

    def own(self, part: torch.Tensor) -> torch.Tensor:
        return part[..., : self.sizes[self.rank]]


class _Gathering(torch.autograd.Function):
    """All ranks' parts; a part's gradient is the sum of what all ranks have of it."""

    @staticmethod
    def forward(context: Any, part: torch.Tensor, of: SplitLayers, layer: int, parts: _Parts) -> torch.Tensor:
        context.of, context.layer, context.parts = of, layer, parts
        return parts.joined(of.all_gather(layer, parts.sent(part)))

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (whole,) = gradients
        own = context.of.reduce_scatter(context.layer, context.parts.divided(whole))
        return context.parts.own(own), None, None, None


def _with_shares(network: nn.Module, split: Sequence[tuple[nn.Module, list[int]]], rank: int) -> nn.Module:
    """A copy of `network` with the share of `rank` of the `split` layers, each of which has so many outputs on each."""
    shared: dict[int, Any] = {}
    for linear, sizes in split:
        for weights in linear.parameters(recurse=False):
            own = torch.split(weights.detach(), sizes)[rank].clone()
            shared[id(weights)] = nn.Parameter(own, requires_grad=weights.requires_grad)
    return copy.deepcopy(network, shared)
