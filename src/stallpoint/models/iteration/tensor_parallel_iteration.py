"""An iteration with some layers split by outputs: each worker computes a share, and passes wait for gathered inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from typing_extensions import override

from stallpoint.base.statistics import REPLICATES
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.replicas import IterationCosts, Replicas, slowdowns
from stallpoint.models.iteration.timeline import Timeline
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import CollectiveTimes
from stallpoint.strategies.options import ALL_GATHER, REDUCE_SCATTER


class TensorParallelIteration(Replicas):
    """Iterations of tensor parallelism: `Replicas` with another timeline."""

    @override
    def times(self, without: frozenset[str] = frozenset()) -> Times | None:
        """Return the computing times of the worker with the largest share of split layers, for all samples.

        If the times of split layers at the global mini-batch are unknown, they are taken in proportion to the samples.
        """
        times, shares = self.worker_times(self.point.worker_batch, without), self._shares()
        if times is None or not shares:
            return times
        global_batch_times = self.worker_times(self.point.global_batch, without)
        shared = times.with_layer_shares(global_batch_times or times.scaled(self.point.ranks), shares)
        return replace(shared, update=times.update * self._kept(shares))

    @override
    def timeline(self, terms: IterationCosts) -> Timeline:
        """Return the timeline of the task graph with these terms."""
        times, calibrated = terms.times, terms.calibrated
        costs = self.costs(terms, np.zeros(1 + REPLICATES))
        forward = slowdowns(calibrated, waits=True)[..., None] * times.forward_steps * calibrated.forward[:, None]
        gathers, scatters = np.split(calibrated.awaited_seconds(terms.exchanges).T, 2)
        costs = replace(
            costs,
            copy=times.host_to_device + self.handover_seconds(calibrated),
            forward=np.moveaxis(forward, -1, 0),
            gathered=dict(zip(self._input_bytes(), zip(gathers, scatters, strict=True), strict=True)),
        )
        return timelines.tensor_parallel(costs, self.preset, prefetch=self.prefetch)

    @override
    def summed_bytes(self) -> list[int]:
        """Return the bytes of each layer's gradients that workers sum: 0 for split layers, whose shares differ."""
        split = self._shares()
        return [0 if layer in split else size for layer, size in enumerate(super().summed_bytes())]

    @override
    def exchanges(self) -> CollectiveTimes:
        """Return the all-gathers of the layers' inputs, then the reduce-scatters of their gradients."""
        sizes = [self.point.global_batch * size for size in self._input_bytes().values()]
        gathers, scatters = (self.collectives(sizes, operation) for operation in (ALL_GATHER, REDUCE_SCATTER))
        return gathers.followed_by(scatters)

    def _input_bytes(self) -> dict[int, int]:
        return self.cuts.gathered if self.cuts else {}

    def _shares(self) -> dict[int, float]:
        """Return for each split layer the largest share of its outputs that any worker computes."""
        ranks, split = self.point.ranks, self.cuts.split if self.cuts else {}
        return {layer: -(-outputs // ranks) / outputs for layer, outputs in split.items()}

    def _kept(self, shares: dict[int, float]) -> float:
        """Return the part of all weights that a worker holds, given its `shares` of layers."""
        sizes = self.layers.gradient_bytes
        return 1 - float(sum(sizes[layer] * (1 - share) for layer, share in shares.items()) / max(1, sizes.sum()))
