"""Column-parallel fully-connected layers, split over the ranks by outputs; other layers are copied (Krizhevsky 2014).

Scheme (a) of section 4: the input of the first split layer is gathered over all ranks' samples. Each rank computes its
share of each split layer's outputs for all samples. Outputs are gathered before the next split layer and after the last
one, where a rank keeps the outputs of its own samples. In the backward pass a reduce-scatter replaces each all-gather.
Gradients of split layers are complete on their rank; gradients of other layers are summed as in data parallelism.
Values between two split layers, and random numbers of a dropout there, exist on one rank only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import nn
from torch.nn import functional
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.measure.clock import IterationClock, Mark
from stallpoint.measure.synchronisation.assembly import replicas
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.synchronisation.interface import (
    Gathered,
    Synchronisation,
    Transfer,
    Worker,
    WorkerPart,
    parameters,
)
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer, layers
from stallpoint.strategies.presets import Preset


def shares(outputs: int, ranks: int) -> list[int]:
    """Return how many of `outputs` each rank has. If they cannot be divided equally, the first ranks have one more."""
    quotient, remainder = divmod(outputs, ranks)
    return [quotient + (rank < remainder) for rank in range(ranks)]


class SplitLayers(Synchronisation):
    """Synchronisation of a `network` whose layers at the positions `split` are split over the ranks of `world`.

    A copy of the network with this rank's share of the split layers is trained; the network itself is unchanged.
    """

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> WorkerPart:
        split = cls(worker.network, worker.division, worker.world, worker.clock, worker.device, preset, worker.waiting)
        trained = layers(split.network)
        summed = split.summed(trained)
        split.start(replicas(preset, replace(worker, layers=summed)).synchronisation)
        return WorkerPart(split, split.network, split.layers, trained, parameters(summed), copied=True)

    def __init__(
        self,
        network: nn.Module,
        split: Sequence[int],
        world: World,
        clock: IterationClock,
        device: torch.device,
        preset: Preset,
        waiting: Callable[[bool], None],
    ) -> None:
        self._clock, self._waiting = clock, waiting
        # Gradients have another communicator: a communication thread may send them at the same time.
        self._comm = world.comm.Dup()
        own = World(self._comm, world.rank, world.size)
        self._communicates = communicator(preset.backend, preset.scheme, 0, own, device)
        self._exchanges: list[tuple[int, bool, Mark, Mark]] = []
        full = layers(network)
        self.layers = [
            replace(layer, parameters=[nn.Parameter(weights.detach().to("meta")) for weights in layer.parameters])
            if position in split else layer
            for position, layer in enumerate(full)
        ]  # fmt: skip
        """Layers of the network with unsharded sizes; split layers are without memory."""
        linears = {position: cast(nn.Linear, full[position].module) for position in split}
        sizes = {position: shares(linear.out_features, world.size) for position, linear in linears.items()}
        self.network = _copy_with_shares(
            network, [(linears[position], sizes[position]) for position in split], world.rank
        )
        self._split = frozenset(split)
        copied = layers(self.network)
        samples: _Partition = _BySample(world.size)
        takes = [samples, *(_ByOutput(sizes[position], world.rank) for position in split)]
        for number, position in enumerate(split):
            behind = len(full) - 1 if position == split[-1] else None  # the loss needs complete outputs
            self._gather_around(copied[position].module, position, takes[number], behind, takes[-1])

    def summed(self, trained: Sequence[Layer]) -> list[Layer]:
        """Return the `trained` layers; split layers come without parameters, as only one rank has them."""
        return [
            replace(layer, parameters=[]) if position in self._split else layer
            for position, layer in enumerate(trained)
        ]

    def start(self, synchronisation: Synchronisation) -> None:
        """Set the synchronisation of the layers that all ranks have."""
        self._others = synchronisation

    @override
    def ready(self, layer: int) -> None:
        """Send the gradients of a layer that all ranks have."""
        if layer not in self._split:
            self._others.ready(layer)

    @override
    def finish(self) -> None:
        """Wait until gradients are summed over the ranks. Gradients of split layers need no sum."""
        self._others.finish()

    @override
    def transfers(self) -> Mapping[int, Transfer]:
        """Return the transfers of the layers that all ranks have."""
        return self._others.transfers()

    @override
    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """Return by layer the all-gathers of its input, and the reduce-scatters of the input's gradient."""
        found: dict[int, list[Gathered]] = {}
        for layer, backward, start, end in self._exchanges:
            exchange = Gathered(backward, self._clock.seconds(start), self._clock.seconds(end))
            found.setdefault(layer, []).append(exchange)
        return found

    @override
    def learn(self, gradient_ready: Sequence[float | None]) -> None:
        """Pass `gradient_ready` on to the synchronisation of the layers that all ranks have."""
        self._others.learn(gradient_ready)

    @override
    def clear(self) -> None:
        self._others.clear()
        super().clear()
        self._exchanges.clear()

    @override
    def close(self, *, wait: bool) -> None:
        """Close the synchronisation of the unsplit layers. With `wait`, called on all ranks, free the communicator."""
        self._others.close(wait=wait)
        if wait:
            self._comm.Free()

    def _gather_around(
        self, linear: nn.Module, position: int, inputs: _Partition, successor: int | None, results: _Partition
    ) -> None:
        """Make a layer gather its input. With `successor`, the layer also gathers its output.

        The layer at the position `successor` then gets the output of this rank's samples.
        """
        share = linear.forward

        def forward(values: torch.Tensor) -> torch.Tensor:
            if values.dim() != 2:
                raise InputError(
                    "sharding: outputs splits fully-connected layers of flat values [b, width]; one of this network "
                    f"takes {list(values.shape)}"
                )
            outputs: torch.Tensor = share(self._gathered(position, inputs, values))
            if successor is None:
                return outputs
            count = len(outputs) // self._communicates.ranks
            return self._gathered(successor, results, outputs).narrow(0, self._communicates.rank * count, count)

        linear.forward = forward

    def _gathered(self, layer: int, parts: _Partition, values: torch.Tensor) -> torch.Tensor:
        gathered: torch.Tensor = _Gathering.apply(values.float(), self, layer, parts)  # type: ignore[no-untyped-call]
        return gathered

    def all_gather(self, layer: int, part: torch.Tensor) -> torch.Tensor:
        """Return all ranks' parts of the input of `layer`, [ranks, ...]; `part` is this rank's part."""
        received = part.new_empty(self._communicates.ranks, *part.shape)
        self._exchange(layer, lambda: self._communicates.all_gather(received, part.contiguous()), backward=False)
        return received

    def reduce_scatter(self, layer: int, parts: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the gradient of a layer's input. Each rank has a gradient of every rank's
        part, `parts` [ranks, ...]. The gradients of each part are summed over the ranks."""
        received = parts.new_empty(parts.shape[1:])
        self._exchange(layer, lambda: self._communicates.reduce_scatter(received, parts.contiguous()), backward=True)
        return received

    def _exchange(self, layer: int, call: Callable[[], object], *, backward: bool) -> None:
        self._waiting(True)
        start = self._clock.mark()
        call()
        self._exchanges.append((layer, backward, start, self._clock.mark()))
        self._waiting(False)


class _Partition(Protocol):
    """Conversion between a gathered tensor and the ranks' parts of it; parts are padded to the same size."""

    def padded(self, part: torch.Tensor) -> torch.Tensor:
        """Return a rank's part, padded for sending."""

    def joined(self, parts: torch.Tensor) -> torch.Tensor:
        """Return the gathered tensor from its padded parts [ranks, ...]."""

    def divided(self, full: torch.Tensor) -> torch.Tensor:
        """Return the padded parts [ranks, ...] of a gathered tensor."""

    def own(self, part: torch.Tensor) -> torch.Tensor:
        """Return this rank's part without its padding."""


@dataclass(frozen=True)
class _BySample:
    """Conversion of tensors divided along the batch dimension: each rank has the same number of complete samples."""

    ranks: int

    def padded(self, part: torch.Tensor) -> torch.Tensor:
        return part

    def joined(self, parts: torch.Tensor) -> torch.Tensor:
        return parts.flatten(0, 1)

    def divided(self, full: torch.Tensor) -> torch.Tensor:
        return full.reshape(self.ranks, -1, *full.shape[1:])

    def own(self, part: torch.Tensor) -> torch.Tensor:
        return part


@dataclass(frozen=True)
class _ByOutput:
    """Conversion of tensors divided by a layer's outputs: each rank has some outputs, for all samples.

    Zeros pad the parts of ranks that have fewer outputs.
    """

    sizes: list[int]
    rank: int

    def padded(self, part: torch.Tensor) -> torch.Tensor:
        return functional.pad(part, (0, max(self.sizes) - part.shape[-1]))

    def joined(self, parts: torch.Tensor) -> torch.Tensor:
        return torch.cat([part[..., :size] for part, size in zip(parts, self.sizes, strict=True)], dim=-1)

    def divided(self, full: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.padded(part) for part in torch.split(full, self.sizes, dim=-1)])

    def own(self, part: torch.Tensor) -> torch.Tensor:
        return part[..., : self.sizes[self.rank]]


class _Gathering(torch.autograd.Function):
    """All-gather of the ranks' parts of a tensor; in the backward pass a part's gradient is summed over all ranks."""

    @staticmethod
    @override
    def forward(context: Any, part: torch.Tensor, of: SplitLayers, layer: int, parts: _Partition) -> torch.Tensor:
        context.of, context.layer, context.parts = of, layer, parts
        return parts.joined(of.all_gather(layer, parts.padded(part)))

    @staticmethod
    @override
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (full,) = gradients
        own = context.of.reduce_scatter(context.layer, context.parts.divided(full))
        return context.parts.own(own), None, None, None


def _copy_with_shares(network: nn.Module, split: Sequence[tuple[nn.Module, list[int]]], rank: int) -> nn.Module:
    """Return a copy of `network` in which the layers `split` have the outputs of `rank` only.

    Each of `split` is a layer and its number of outputs on each rank.
    """
    copies: dict[int, Any] = {}
    for linear, sizes in split:
        for weights in linear.parameters(recurse=False):
            share = torch.split(weights.detach(), sizes)[rank].clone()
            copies[id(weights)] = nn.Parameter(share, requires_grad=weights.requires_grad)
    return copy.deepcopy(network, copies)
