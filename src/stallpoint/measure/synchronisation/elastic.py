"""Elastic averaging: workers and a centre that pull at each other (Zhang, Choromanska & LeCun 2015, algorithm 1)."""

from __future__ import annotations

from stallpoint.measure.synchronisation.served import Served
from stallpoint.measure.synchronisation.server import Ask


class Elastic(Served):
    """A worker; the servers hold the centre, which is what is trained."""

    apart = True

    def updated(self) -> None:
        """Meet the centre, if the time has come."""
        self._iterations += 1
        if self._iterations % self._preset.period == 0:
            self._exchanged(self._meet)

    def _meet(self) -> int:
        own = self._flat.weights().cpu()
        centre = self._servers.ask(Ask.MEET, own)
        self._flat.write(own.lerp(centre, self._preset.elasticity / self._world.size))
        return 1
