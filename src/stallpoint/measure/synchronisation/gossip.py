"""Decentralised averaging: each worker with its two neighbours around a ring, nobody with all (Lian et al. 2017)."""

from __future__ import annotations

import torch

from stallpoint.measure.synchronisation.exchanging import Apart
from stallpoint.measure.synchronisation.interface import Part, Worker, whole
from stallpoint.strategies.presets import Preset


class Gossip(Apart):
    """Mixes every `period` iterations, by equal weights: 1/3 each, or 1/2 of two workers."""

    @classmethod
    def begin(cls, preset: Preset, worker: Worker) -> Part:
        """See `assembly`."""
        return whole(cls(worker.replica, preset), worker)

    def close(self, *, wait: bool) -> None:
        """Nothing to end."""

    def _iteration_ended(self) -> None:
        if self._is_due(self._preset.period):
            self._exchange(self._mix)

    def _mix(self) -> int:
        rank, size = self._world.rank, self._world.size
        left, right = (rank - 1) % size, (rank + 1) % size
        own = self._flat.weights().cpu()
        mixed = own.clone()
        ways = [(right, left)] if left == right else [(right, left), (left, right)]
        for to, source in ways:
            received = torch.empty_like(own)
            self._world.comm.Sendrecv(own.numpy(), to, recvbuf=received.numpy(), source=source)
            mixed += received
        self._flat.write(mixed / (1 + len(ways)))
        return own.nbytes * len(ways)
