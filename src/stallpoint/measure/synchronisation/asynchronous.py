"""Asynchronous SGD with servers, fully so, softly synchronised, or with a bound on who is ahead."""

from __future__ import annotations

from stallpoint.measure.synchronisation.served import Served
from stallpoint.measure.synchronisation.server import Ask


class Asynchronous(Served):
    """Gradients there, weights back, when the server lets them go: `server.Rules` make the difference."""

    updates = True

    def finish(self) -> None:
        """Send the gradients, and take the weights."""
        self._exchanged(self._step)

    def _step(self) -> int:
        self._flat.write(self._servers.ask(Ask.STEP, self._flat.gradients().cpu(), self._iterations))
        return 1
