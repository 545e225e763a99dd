"""An iteration of workers that have a share of the weights: passes gather each block, and wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stallpoint.models import taskgraph
from stallpoint.models.base.statistics import REPLICATES, Ensemble
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.replicas import Replicas, Sent, of_graph, slowness
from stallpoint.models.iteration.timeline import Timeline
from stallpoint.models.terms import effects
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import Effects, IsolatedTimes, Messages
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER


class OfShards(Replicas):
    """See `Replicas`."""

    def isolated(self, sent: Sent) -> IsolatedTimes | None:
        """As ever; passes beside which weights are gathered are as long as the graph has them, so that what gathers are
        known to take from computing is not learned once more."""
        times, isolated = self.times(), super().isolated(sent)
        if not sent or times is None or isolated is None:
            return isolated
        gathered, reading = self.gathered(sent), np.zeros(1 + REPLICATES)
        known = effects.AS_CO_RUN if gathered.co_run else effects.NONE
        costs = self._costs(times, reading, isolated.messages, gathered, sent, known)
        passes = timelines.sharded(costs, self.preset, prefetch=True, sent=[])
        return replace(isolated, forward=passes.forward, backward=passes.backward, gathered=gathered)

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
        if not sent:
            return super().timeline(times, reading, of_messages, gathered, exchanged, sent, learned)
        costs = self._costs(times, reading, of_messages, gathered, sent, learned)
        return timelines.sharded(costs, self.preset, prefetch=self.prefetch, sent=range(len(sent) - 1, -1, -1))

    def summed(self, sizes: Sequence[int]) -> Messages:
        """Reduce-scatters among those that have all weights together, and all-reduces between such groups."""
        nodes, workers = self.point.place
        group = self.strategy.group(self.point.place)
        shards = self.messages(sizes, REDUCE_SCATTER, group)
        if group == (nodes, workers):
            return shards
        # Each worker of a node sends its share; together these are the message, over the link of the node.
        return shards + self.messages(sizes, ALL_REDUCE, (nodes, 1))

    def gathered(self, sent: Sent) -> Messages:
        """All-gathers of the weights of each message."""
        return self.messages(self.sizes(sent), ALL_GATHER, self.strategy.group(self.point.place))

    def _costs(
        self, times: Times, reading: Ensemble, of_messages: Messages, gathered: Messages, sent: Sent, learned: Effects
    ) -> taskgraph.ShardedCosts:
        """Of each layer in one pass, of the mean worker and of the slowest one."""
        pace = slowness(learned, waits=True)[..., None] / self.preset.accumulate
        blocks = [sorted(members) for members in sent]
        gathering = replace(learned, beside=learned.gathering, after=learned.gathering)
        return taskgraph.ShardedCosts(
            read=reading,
            copy=times.host_to_device + self.taken_over(learned),
            forward=np.moveaxis(pace * times.forward_steps * learned.forward[:, None], -1, 0),
            backward=np.moveaxis(pace * times.backward_steps * learned.backward[:, None], -1, 0),
            gathers=of_graph(blocks, gathered, gathering)[::-1],
            reduces=of_graph(blocks, of_messages, learned)[::-1],
            update=times.update * learned.update,
        )
