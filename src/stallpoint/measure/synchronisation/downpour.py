"""Downpour SGD: replicas that train by themselves between pushes and pulls (Dean et al. 2012, algorithm 1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from stallpoint.measure.synchronisation.interface import Replica
from stallpoint.measure.synchronisation.served import Served
from stallpoint.measure.synchronisation.server import Ask, MakeOptimiser
from stallpoint.strategies.presets import Preset


class Downpour(Served):
    """A replica. What it sends is divided by the number of replicas, as in synchronous SGD."""

    apart = True

    def __init__(self, replica: Replica, preset: Preset, make_optimiser: MakeOptimiser) -> None:
        super().__init__(replica, preset, make_optimiser)
        self._accrued = torch.zeros(self._flat.values)

    def finish(self) -> None:
        """Add the gradients to those that are to be sent."""
        self._accrued += self._flat.gradients().cpu()

    def state(self) -> dict[str, Any]:
        """See `Exchanging`."""
        return {**super().state(), "accrued": self._accrued}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Exchanging`."""
        super().restore(state)
        self._accrued = state["accrued"]

    def _iteration_ended(self) -> None:
        push, pull = self._is_due(self._preset.period), self._is_due(self._preset.pull_period)
        if push or pull:
            self._exchanged(lambda: self._talk(push, pull))

    def _talk(self, push: bool, pull: bool) -> int:
        if push:
            step = self._iterations - 1  # this iteration is counted already
            self._servers.ask(Ask.PUSH, self._accrued / self._world.size, step)
            self._accrued.zero_()
        if pull:
            self._flat.write(self._servers.ask(Ask.PULL))
        return int(push)
