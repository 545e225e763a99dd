"""What algorithms share that exchange all weights or gradients in one message, after the backward pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from stallpoint.measure.clock import Mark
from stallpoint.measure.mpi import MPI
from stallpoint.measure.synchronisation.flat import Flat
from stallpoint.measure.synchronisation.interface import Replica, Sent, Synchronisation
from stallpoint.strategies.presets import Preset


class Exchanging(Synchronisation):
    """Workers whose weights differ at least for a while; notes their message, and counts iterations."""

    updates = False

    def __init__(self, replica: Replica, preset: Preset) -> None:
        self.network, self._layers = replica.network, replica.layers
        self._world, self._clock, self._preset = replica.world, replica.clock, preset
        self._flat = Flat(replica.layers)
        self._iterations = 0
        self._message: tuple[int, Mark, Mark] | None = None

    def updated(self) -> None:
        """Count the iteration, and exchange weights if the time has come."""
        self._iterations += 1
        self._iteration_ended()

    def sent(self) -> Mapping[int, Sent]:
        """The message, if there was one since the start of the iteration, by layer."""
        if self._message is None:
            return {}
        size, *marks = self._message
        whole, (start, end) = 4 * self._flat.values, map(self._clock.seconds, marks)
        return {
            index: Sent(0, size * layer.gradient_bytes // whole, start, end)
            for index, layer in enumerate(self._layers)
            if layer.parameters
        }

    def clear(self) -> None:
        """Forget the gradients and the message."""
        self.network.zero_grad(set_to_none=True)
        self._message = None

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """A block in which the network has the weights that are trained, the same on all ranks; then its own again."""
        own = self._flat.weights()
        self._flat.write(self._trained())
        try:
            yield
        finally:
            self._flat.write(own)

    def state(self) -> dict[str, Any]:
        """Iterations so far."""
        return {"iterations": self._iterations}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from them."""
        self._iterations = state["iterations"]

    def _iteration_ended(self) -> None:
        """Exchange weights if the time has come."""
        return

    def _is_due(self, period: int) -> bool:
        """Whether so many iterations have ended since the last time, or since the first one began."""
        return self._iterations % period == 0

    @abstractmethod
    def _trained(self) -> torch.Tensor:
        """The weights that are trained, the same on all ranks, which call it together."""

    def _exchange(self, exchange: Callable[[], int]) -> None:
        """Do it, and note that it is the iteration's message; it gives the bytes that this rank sent."""
        start = self._clock.mark()
        self._message = exchange(), start, self._clock.mark()


class Apart(Exchanging):
    """Each worker updates weights of its own; what is trained is their mean."""

    apart = True

    def _trained(self) -> torch.Tensor:
        mean = (self._flat.weights() / self._world.size).cpu()
        self._world.comm.Allreduce(MPI.IN_PLACE, mean.numpy())
        return mean
