"""Periodic averaging of weights, over all workers (parameter averaging, local SGD, post-local SGD, DiLoCo) or over
neighbours (gossip).

With a period of 1 and an optimiser that is linear in the gradients (sgd, momentum, nesterov) averaging equals
synchronous SGD. Momenta are not averaged (Stich 2019, algorithm 1; Lin et al. 2020; Douillard et al. 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from stallpoint.measure.synchronisation.communicator import Communicator, communicator
from stallpoint.measure.synchronisation.exchanging import LocalUpdates
from stallpoint.measure.synchronisation.interface import Replica, Worker, WorkerPart, unsharded
from stallpoint.strategies.families.averaging_family import AveragingOptions
from stallpoint.strategies.one_message import PeriodOptions
from stallpoint.strategies.presets import Preset


class Averaging(LocalUpdates):
    """Periodic averaging of the weights of all workers, as `preset` says."""

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> WorkerPart:
        sums = communicator(preset.backend, preset.scheme, preset.segment_bytes, worker.world, worker.device)
        return unsharded(cls(worker.replica, preset, sums), worker)

    def __init__(self, replica: Replica, preset: Preset, sums: Communicator) -> None:
        super().__init__(replica, preset)
        self._communicator = sums
        self._own = own = preset.family(AveragingOptions)
        self._outer = OuterOptimiser(self._flat.weights(), own.outer_step, own.outer_momentum)

    @override
    def state(self) -> dict[str, Any]:
        return {**super().state(), "start": self._outer.start, "velocity": self._outer.velocity}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        device = self._outer.start.device
        self._outer.start, self._outer.velocity = (state[name].to(device) for name in ("start", "velocity"))

    @override
    def close(self, *, wait: bool) -> None:
        if wait:
            self._communicator.close()

    @override
    def _iteration_ended(self) -> None:
        if self._iterations <= self._own.synchronous_steps or self._is_due(self._own.period):
            self._exchange(self._average)

    def _average(self) -> int:
        mean = self._flat.weights() / self._world.size
        count = self._communicator.all_reduce(mean)
        self._flat.write(self._outer.step(mean))
        return count


class OuterOptimiser:
    """Outer optimiser of weight averaging: SGD with Nesterov momentum (Douillard et al. 2023, algorithm 1).

    The gradient is the last outer weights minus the workers' mean. Step size 1 without momentum is plain averaging.
    """

    def __init__(self, start: torch.Tensor, step: float, momentum: float) -> None:
        self.start, self.size, self.momentum = start, step, momentum
        self.velocity = torch.zeros_like(start)

    def step(self, mean: torch.Tensor) -> torch.Tensor:
        """Return the new weights of all workers; `mean` is the mean of their present weights."""
        if (self.size, self.momentum) == (1, 0):
            return mean
        gradient = self.start - mean
        self.velocity = self.momentum * self.velocity + gradient
        self.start = self.start - self.size * (gradient + self.momentum * self.velocity)
        return self.start


class Gossip(LocalUpdates):
    """Decentralised averaging in a ring (Lian et al. 2017): every `period` iterations each worker takes the mean of its
    own weights and those of its two neighbours. With two workers, each has one neighbour."""

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> WorkerPart:
        return unsharded(cls(worker.replica, preset), worker)

    @override
    def close(self, *, wait: bool) -> None:
        """Do nothing."""

    @override
    def _iteration_ended(self) -> None:
        if self._is_due(self._preset.family(PeriodOptions).period):
            self._exchange(self._mix)

    def _mix(self) -> int:
        rank, size = self._world.rank, self._world.size
        left, right = (rank - 1) % size, (rank + 1) % size
        weights = self._flat.weights().cpu()
        total = weights.clone()
        directions = [(right, left)] if left == right else [(right, left), (left, right)]
        for target, source in directions:
            received = torch.empty_like(weights)
            self._world.comm.Sendrecv(weights.numpy(), target, recvbuf=received.numpy(), source=source)
            total += received
        self._flat.write(total / (1 + len(directions)))
        return weights.nbytes * len(directions)
