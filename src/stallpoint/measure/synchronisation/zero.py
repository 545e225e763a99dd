"""ZeRO-1: gradients are summed by DistributedDataParallel, each rank updates its share of the weights, and all gather.

A rank's share is an equal part of all weights laid end to end, wherever that cuts them: momenta, and the update, are
each rank's own part alone (Rajbhandari et al. 2020, section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from stallpoint.measure.clock import Mark
from stallpoint.measure.synchronisation.ddp import DataParallel
from stallpoint.measure.synchronisation.interface import Gathered
from stallpoint.measure.synchronisation.torch_distributed import all_gather


@dataclass(frozen=True)
class Slice:
    """A part of one parameter: its values [begin:end], laid flat."""

    weights: nn.Parameter
    begin: int
    end: int

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """This part of the parameter, or of its gradient."""
        return values.view(-1)[self.begin : self.end]


def shares(parameters: Sequence[nn.Parameter], ranks: int) -> list[list[Slice]]:
    """Each rank's share of all values, in their order: equal ones, the last may be smaller."""
    size = -(-sum(weights.numel() for weights in parameters) // ranks)
    found: list[list[Slice]] = [[] for _ in range(ranks)]
    place = 0
    for weights in parameters:
        begin = 0
        while begin < weights.numel():
            rank = place // size
            end = min(weights.numel(), begin + (rank + 1) * size - place)
            found[rank].append(Slice(weights, begin, end))
            place, begin = place + end - begin, end
    return found


class ShardedOptimiser(DataParallel):
    """A `Synchronisation` that updates `own` parameters and gathers those of all ranks."""

    def share(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """What this rank updates: parameters that share memory with its part of `parameters`."""
        self._shares = shares(parameters, self._communicator.ranks)
        self._own = self._shares[self._communicator.rank]
        self._moved = [nn.Parameter(one.of(one.weights.detach())) for one in self._own]
        size = max(sum(one.end - one.begin for one in share) for share in self._shares)
        device = parameters[0].device
        self._packed = torch.zeros(size, device=device)
        self._gathered = torch.empty(size * self._communicator.ranks, device=device)
        return self._moved

    @torch.no_grad()
    def update(self, step: Callable[[Sequence[nn.Parameter]], None], parameters: Sequence[nn.Parameter]) -> None:
        """Update the own share, then gather all of them."""
        for moved, one in zip(self._moved, self._own, strict=True):
            assert one.weights.grad is not None, "its gradient was summed"
            moved.grad = one.of(one.weights.grad)
        step(self._moved)
        place = 0
        for moved in self._moved:
            self._packed[place : place + len(moved)].copy_(moved)
            place += len(moved)
        self._waiting(True)
        start = self._clock.mark()
        all_gather(self._gathered, self._packed)
        self._gather: tuple[Mark, Mark] | None = (start, self._clock.mark())
        self._waiting(False)
        for rank, share in enumerate(self._shares):
            place = rank * len(self._packed)
            for one in share if rank != self._communicator.rank else ():
                length = one.end - one.begin
                one.of(one.weights.detach()).copy_(self._gathered[place : place + length])
                place += length

    def gathered(self) -> Mapping[int, Sequence[Gathered]]:
        """The all-gather after the update, of all layers."""
        took = Gathered(False, *map(self._clock.seconds, self._gather)) if self._gather else None
        return {layer: [took] for layer, of in enumerate(self._layers) if of.parameters} if took else {}

    def clear(self) -> None:
        """Forget the gradients and what was sent."""
        super().clear()
        self._gather = None
        for moved in self._moved:
            moved.grad = None
