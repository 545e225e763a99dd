"""ZeRO-1: DistributedDataParallel sums gradients, each rank updates its share of the weights, all gather the shares.

A rank's share is an equal part of all weights in one vector, which may cut parameters. Each rank keeps the momenta of
its share only, and updates only this share (Rajbhandari et al. 2020, section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override

from stallpoint.measure.clock import Mark
from stallpoint.measure.synchronisation.ddp import DataParallel
from stallpoint.measure.synchronisation.interface import Gathered
from stallpoint.measure.synchronisation.torch_distributed import all_gather


@dataclass(frozen=True)
class Slice:
    """A part of one parameter: values [begin:end] of the flattened parameter."""

    weights: nn.Parameter
    begin: int
    end: int

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return this part of `values`, a parameter or its gradient."""
        return values.view(-1)[self.begin : self.end]


def shares(parameters: Sequence[nn.Parameter], ranks: int) -> list[list[Slice]]:
    """Return for each rank the slices that are its share: consecutive values, equally many except on the last ranks."""
    size = -(-sum(weights.numel() for weights in parameters) // ranks)
    found: list[list[Slice]] = [[] for _ in range(ranks)]
    offset = 0
    for weights in parameters:
        begin = 0
        while begin < weights.numel():
            rank = offset // size
            end = min(weights.numel(), begin + (rank + 1) * size - offset)
            found[rank].append(Slice(weights, begin, end))
            offset, begin = offset + end - begin, end
    return found


class ShardedOptimiser(DataParallel):
    """Synchronisation in which each rank updates its share of the weights, and gathers the other ranks' shares."""

    @override
    def share(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """Return the slices that this rank updates, which share memory with `parameters`."""
        self._shares = shares(parameters, self._communicator.ranks)
        self._own = self._shares[self._communicator.rank]
        self._moved = [nn.Parameter(one.of(one.weights.detach())) for one in self._own]
        size = max(sum(one.end - one.begin for one in share) for share in self._shares)
        device = parameters[0].device
        self._packed = torch.zeros(size, device=device)
        self._gathered = torch.empty(size * self._communicator.ranks, device=device)
        return self._moved

    @torch.no_grad()
    @override
    def update(self, step: Callable[[Sequence[nn.Parameter]], None], parameters: Sequence[nn.Parameter]) -> None:
        """Update this rank's share of the weights by `step`, then gather the updated shares of all ranks."""
        for values, part in zip(self._moved, self._own, strict=True):
            assert part.weights.grad is not None, "its gradient was summed"
            values.grad = part.of(part.weights.grad)
        step(self._moved)
        offset = 0
        for values in self._moved:
            self._packed[offset : offset + len(values)].copy_(values)
            offset += len(values)
        self._waiting(True)
        start = self._clock.mark()
        all_gather(self._gathered, self._packed)
        self._gather: tuple[Mark, Mark] | None = (start, self._clock.mark())
        self._waiting(False)
        for rank, share in enumerate(self._shares):
            offset = rank * len(self._packed)
            for part in share if rank != self._communicator.rank else ():
                length = part.end - part.begin
                part.of(part.weights.detach()).copy_(self._gathered[offset : offset + length])
                offset += length

    @override
    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """Return by layer the all-gather after the update; one all-gather serves all layers."""
        gather = Gathered(False, *map(self._clock.seconds, self._gather)) if self._gather else None
        return {layer: [gather] for layer, entry in enumerate(self._layers) if entry.parameters} if gather else {}

    @override
    def clear(self) -> None:
        super().clear()
        self._gather = None
        for moved in self._moved:
            moved.grad = None
