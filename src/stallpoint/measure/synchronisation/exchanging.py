"""Base of algorithms that exchange all weights or gradients in one message, after the backward pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from typing_extensions import override

from stallpoint.measure.clock import Mark
from stallpoint.measure.mpi import MPI
from stallpoint.measure.synchronisation.interface import Replica, Synchronisation, Transfer
from stallpoint.networks.layers import Layer
from stallpoint.strategies.presets import Preset


class Exchanging(Synchronisation):
    """Synchronisation of workers whose weights differ between exchanges; it times messages and counts iterations."""

    def __init__(self, replica: Replica, preset: Preset) -> None:
        self.network, self._layers = replica.network, replica.layers
        self._world, self._clock, self._preset = replica.world, replica.clock, preset
        self._flat = FlatParameters(replica.layers)
        self._iterations = 0
        self._message: tuple[int, Mark, Mark] | None = None

    @override
    def updated(self) -> None:
        """Count the iteration, and exchange weights if an exchange is due."""
        self._iterations += 1
        self._iteration_ended()

    @override
    def transfers(self) -> Mapping[int, Transfer]:
        """Return each layer's part of the message in this iteration; empty without a message."""
        if self._message is None:
            return {}
        size, *marks = self._message
        total, (start, end) = 4 * self._flat.values, map(self._clock.seconds, marks)
        return {
            index: Transfer(0, size * layer.gradient_bytes // total, start, end)
            for index, layer in enumerate(self._layers)
            if layer.parameters
        }

    @override
    def clear(self) -> None:
        super().clear()
        self._message = None

    @contextmanager
    @override
    def consensus(self) -> Iterator[None]:
        """Give the network the trained weights, equal on all ranks, within the block; then restore its own weights."""
        weights = self._flat.weights()
        self._flat.write(self._trained())
        try:
            yield
        finally:
            self._flat.write(weights)

    @override
    def state(self) -> dict[str, Any]:
        """Return the state, which is the number of iterations so far."""
        return {"iterations": self._iterations}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        self._iterations = state["iterations"]

    def _iteration_ended(self) -> None:
        return

    def _is_due(self, period: int) -> bool:
        """Return whether the number of ended iterations is a multiple of `period`."""
        return self._iterations % period == 0

    @abstractmethod
    def _trained(self) -> torch.Tensor:
        """Return the trained weights, equal on all ranks; called on all ranks."""

    def _exchange(self, exchange: Callable[[], int]) -> None:
        """Time a call of `exchange`, which returns the bytes that this rank sent."""
        start = self._clock.mark()
        self._message = exchange(), start, self._clock.mark()


class LocalUpdates(Exchanging):
    """Synchronisation of workers that update their own weights; the trained weights are the workers' mean."""

    local_updates = True

    @override
    def _trained(self) -> torch.Tensor:
        mean = (self._flat.weights() / self._world.size).cpu()
        self._world.comm.Allreduce(MPI.IN_PLACE, mean.numpy())
        return mean


class FlatParameters:
    """The parameters of `layers` as one vector [values], in forward order, on their device."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.parameters = [parameter for layer in layers for parameter in layer.parameters]
        self._sizes = [parameter.numel() for parameter in self.parameters]

    @property
    def values(self) -> int:
        return sum(self._sizes)

    def weights(self) -> torch.Tensor:
        """Return a copy of the weights."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])

    def gradients(self) -> torch.Tensor:
        """Return a copy of the gradients, with zeros for parameters without a gradient."""
        return torch.cat([
            torch.zeros_like(parameter).reshape(-1) if parameter.grad is None else parameter.grad.reshape(-1)
            for parameter in self.parameters
        ])  # fmt: skip

    @torch.no_grad()
    def write(self, weights: torch.Tensor) -> None:
        for parameter, part in zip(self.parameters, torch.split(weights, self._sizes), strict=True):
            parameter.copy_(part.view_as(parameter))
