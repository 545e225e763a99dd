"""An iteration of workers that have a share of the outputs of some layers: passes wait for what these take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stallpoint.models.base.statistics import REPLICATES, Ensemble
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.replicas import Replicas, Sent, slowness
from stallpoint.models.iteration.timeline import Timeline
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import Effects, Messages
from stallpoint.strategies.options import ALL_GATHER, REDUCE_SCATTER


class OfOutputs(Replicas):
    """See `Replicas`."""

    def times(self, without: frozenset[str] = frozenset()) -> Times | None:
        """Of split layers the largest share, with the samples of all workers; where their times at B are not known,
        they grow with the samples."""
        times, shares = self.of_one(self.point.worker_batch, without), self._shares()
        if times is None or not shares:
            return times
        everyone = self.of_one(self.point.global_batch, without)
        shared = times.with_shares(everyone or times.scaled(self.point.ranks), shares)
        return replace(shared, update=times.update * self._kept(shares))

    def timeline(
        self,
        times: Times,
        reading: Ensemble,
        of_messages: Messages,
        gathered: Messages,
        exchanged: Messages,
        sent: Sent,
        learned: Effects,
    ) -> Timeline:
        """See `Replicas`."""
        costs = self.costs(times, reading, of_messages, sent, learned, np.zeros(1 + REPLICATES))
        forward = slowness(learned, waits=True)[..., None] * times.forward_steps * learned.forward[:, None]
        gathers, scatters = np.split(learned.waited_for(exchanged).T, 2)
        costs = replace(
            costs,
            copy=times.host_to_device + self.taken_over(learned),
            forward=np.moveaxis(forward, -1, 0),
            gathered=dict(zip(self._taken(), zip(gathers, scatters, strict=True), strict=True)),
        )
        return timelines.split(costs, self.preset, prefetch=self.prefetch)

    def summed_bytes(self) -> list[int]:
        """Of the layers that all workers have."""
        split = self._shares()
        return [0 if layer in split else size for layer, size in enumerate(super().summed_bytes())]

    def exchanged(self) -> Messages:
        """The all-gathers of what layers take, then the reduce-scatters of its gradients."""
        sizes = [self.point.global_batch * size for size in self._taken().values()]
        gathers, scatters = (self.messages(sizes, operation) for operation in (ALL_GATHER, REDUCE_SCATTER))
        return gathers.and_then(scatters)

    def _taken(self) -> dict[int, int]:
        return self.cuts.gathered if self.cuts else {}

    def _shares(self) -> dict[int, float]:
        """What the worker with most outputs has of those of each split layer."""
        ranks, split = self.point.ranks, self.cuts.split if self.cuts else {}
        return {layer: -(-outputs // ranks) / outputs for layer, outputs in split.items()}

    def _kept(self, shares: dict[int, float]) -> float:
        """The part of all weights that a worker has with these shares of layers."""
        sizes = self.layers.gradient_bytes
        return 1 - float(sum(sizes[layer] * (1 - share) for layer, share in shares.items()) / max(1, sizes.sum()))
