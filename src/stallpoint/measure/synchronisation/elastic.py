"""Elastic averaging: workers and a centre that pull at each other (Zhang, Choromanska & LeCun 2015, algorithm 1)."""

from __future__ import annotations

from stallpoint.measure.synchronisation.served import Served
from stallpoint.measure.synchronisation.server import Ask


class Elastic(Served):
    """A worker; the servers hold the centre, which is what is trained."""

    apart = True

    def _iteration_ended(self) -> None:
        if self._is_due(self._preset.period):
            self._exchanged(self._meet)

    def _meet(self) -> int:
        own = self._flat.weights().cpu()
        centre = self._servers.ask(Ask.MEET, own)
        self._flat.write(own.lerp(centre, self._preset.elasticity / self._world.size))
        return 1
