"""Downpour SGD: replicas that train by themselves between pushes and pulls (Dean et al. 2012, algorithm 1.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from stallpoint.measure.clock import Clock
from stallpoint.measure.synchronisation.served import Served
from stallpoint.measure.synchronisation.server import Ask, MakeOptimiser
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer
from stallpoint.presets import Preset


class Downpour(Served):
    """A replica. What it sends is divided by the number of replicas, as in synchronous SGD."""

    apart = True

    def __init__(
        self,
        network: nn.Module,
        layers: Sequence[Layer],
        world: World,
        clock: Clock,
        preset: Preset,
        make_optimiser: MakeOptimiser,
    ) -> None:
        super().__init__(network, layers, world, clock, preset, make_optimiser)
        self._accrued = torch.zeros(self._flat.values)

    def finish(self) -> None:
        """Add the gradients to those that are to be sent."""
        self._accrued += self._flat.gradients().cpu()

    def updated(self) -> None:
        """Push and pull, if the time has come."""
        self._iterations += 1
        due = [self._iterations % period == 0 for period in (self._preset.period, self._preset.pull_period)]
        if any(due):
            self._exchanged(lambda: self._talk(*due))

    def state(self) -> dict[str, Any]:
        """See `Exchanging`."""
        return {**super().state(), "accrued": self._accrued}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Exchanging`."""
        super().restore(state)
        self._accrued = state["accrued"]

    def _talk(self, push: bool, pull: bool) -> int:
        if push:
            self._servers.ask(Ask.PUSH, self._accrued / self._world.size)
            self._accrued.zero_()
        if pull:
            self._flat.write(self._servers.ask(Ask.PULL))
        return int(push)
