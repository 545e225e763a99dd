"""An iteration with sharded weights: passes gather each block, and wait for the gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import override

from stallpoint.base.statistics import REPLICATES
from stallpoint.models import taskgraph
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.replicas import Buckets, IterationCosts, Replicas, message_tasks, slowdowns
from stallpoint.models.iteration.timeline import Timeline
from stallpoint.models.terms import effects
from stallpoint.models.terms.effects import CollectiveTimes, Factors, IsolatedTimes
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER


class ShardedIteration(Replicas):
    """Iterations of sharded data parallelism: `Replicas` with another timeline."""

    @override
    def isolated(self, buckets: Buckets, factors: Factors | None = None) -> IsolatedTimes | None:
        """Return the isolated parts. Passes that overlap gathers last as long as in the task graph, with their known
        slowdown; otherwise calibration would count this slowdown again."""
        times, isolated = self.times(), super().isolated(buckets, factors)
        if not buckets or times is None or isolated is None:
            return isolated
        gathered, reading = self.gathered(buckets), np.zeros(1 + REPLICATES)
        known = effects.MEASURED_CO_RUN if gathered.co_run else effects.NONE
        terms = IterationCosts(times, reading, isolated.collectives, gathered, self.exchanges(), buckets, known)
        passes = timelines.sharded(self._costs(terms), self.preset, prefetch=True, blocks=[])
        return replace(isolated, forward=passes.forward, backward=passes.backward, gathered=gathered)

    @override
    def timeline(self, terms: IterationCosts) -> Timeline:
        """Return the timeline of the task graph with these terms."""
        if not terms.buckets:
            return super().timeline(terms)
        blocks = range(len(terms.buckets) - 1, -1, -1)
        return timelines.sharded(self._costs(terms), self.preset, prefetch=self.prefetch, blocks=blocks)

    @override
    def summed(self, sizes: Sequence[int]) -> CollectiveTimes:
        """Return reduce-scatters within each group of workers that hold all weights, and all-reduces between them."""
        nodes, workers = self.point.placement
        group = self.strategy.group(self.point.placement)
        shards = self.collectives(sizes, REDUCE_SCATTER, group)
        if group == (nodes, workers):
            return shards
        # The shares that all workers of a node send add up to one message of full size over the node's link.
        return shards + self.collectives(sizes, ALL_REDUCE, (nodes, 1))

    @override
    def gathered(self, buckets: Buckets) -> CollectiveTimes:
        """Return the all-gathers of each message's weights."""
        return self.collectives(self.sizes(buckets), ALL_GATHER, self.strategy.group(self.point.placement))

    def _costs(self, terms: IterationCosts) -> taskgraph.ShardedCosts:
        """Return the costs of the task graph: each layer's times in one pass, of the mean and the slowest worker."""
        times, calibrated = terms.times, terms.calibrated
        factor = slowdowns(calibrated, waits=True)[..., None] / self.preset.accumulate
        blocks = [sorted(members) for members in terms.buckets]
        gathering_effects = replace(calibrated, co_running=calibrated.gathering, after=calibrated.gathering)
        return taskgraph.ShardedCosts(
            read=terms.reading,
            copy=times.host_to_device + self.handover_seconds(calibrated),
            forward=np.moveaxis(factor * times.forward_steps * calibrated.forward[:, None], -1, 0),
            backward=np.moveaxis(factor * times.backward_steps * calibrated.backward[:, None], -1, 0),
            gathers=message_tasks(blocks, terms.gathered, gathering_effects)[::-1],
            reduces=message_tasks(blocks, terms.collectives, calibrated)[::-1],
            update=times.update * calibrated.update,
        )
