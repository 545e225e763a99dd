"""An iteration through the stages of a pipeline, by the parts of the mean stage; what is left of it is the bubble."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from stallpoint.models import taskgraph
from stallpoint.models.base.measured import Measured
from stallpoint.models.base.parts import Parts
from stallpoint.models.base.statistics import REPLICATES, Ensemble
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.curve import Predicted
from stallpoint.models.iteration.replicas import Replicas, fully_connected_seconds, latency_share, matrix_seconds
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import Effects, IsolatedComputing
from stallpoint.strategies.options import SEND_RECEIVE
from stallpoint.study.workers import Placement


class OfStages(Replicas):
    """See `Replicas`; times are those of all layers for all micro-batches, which the stages share."""

    @property
    def batch(self) -> tuple[int, int]:
        """All samples, in micro-batches."""
        return self.point.global_batch, self.preset.micro_batches

    @property
    def reads(self) -> tuple[Placement, int]:
        """The first worker, all samples."""
        return (1, 1), self.point.global_batch

    def predicted(self, base: Measured, times: Times, reading: Ensemble, learned: Effects) -> Predicted:
        """Messages take what they do on idle workers, among as many as there are. Exposed are those of the stage that
        receives least, as measured."""
        assert self.cuts, "where it is not known how to cut, nothing is predicted"
        layers, stages, count = self.layers, self.point.ranks, self.preset.micro_batches
        starts = self.cuts.starts(stages)
        sizes = [
            self.point.global_batch // count * (self.cuts.activation_bytes[start - 1] or 0) for start in starts[1:]
        ]
        messages = self.messages(sizes, SEND_RECEIVE)
        passes = [times.forward_steps * learned.forward[:, None], times.backward_steps * learned.backward[:, None]]
        forward, backward = (np.add.reduceat(of_layers, starts, axis=-1).T for of_layers in passes)
        update, nothing = times.update * learned.update, np.zeros(1 + REPLICATES)
        weights = np.add.reduceat(layers.gradient_bytes, starts) / max(1, layers.gradient_bytes.sum())
        received = [nothing, *messages.isolated.T, nothing]
        costs = [
            taskgraph.StageCosts(
                forward[place] / count, backward[place] / count, stages * weights[place] * update,
                activations=received[place], gradients=received[place + 1],
            )
            for place in range(stages)
        ]  # fmt: skip
        seconds, waits = timelines.pipelined(reading, times.host_to_device, costs, self.preset, prefetch=self.prefetch)
        exposed = count * np.min(np.add(received[:-1], received[1:]), axis=0)
        known = {
            "data_wait": waits / stages,
            "host_to_device": times.host_to_device / stages,
            "forward": forward.mean(axis=0),
            "backward": backward.mean(axis=0),
            "exposed_communication": exposed,
            "update": update,
        }
        of_layers = times.layers_forward * learned.forward[:, None] + times.layers_backward * learned.backward[:, None]
        isolated = self._isolated(times, [])
        mean_stage = {field.name: getattr(isolated, field.name) / stages for field in fields(IsolatedComputing)}
        return Predicted(
            self.point,
            self.strategy.equation(prefetch=self.prefetch),
            times.source,
            Parts(
                iteration_time=seconds,
                straggling=seconds - sum(known.values()),
                communication=exposed,
                matrix=matrix_seconds(layers, of_layers / stages),
                fully_connected=fully_connected_seconds(layers, of_layers / stages),
                **known,
            ),
            reading,
            latency_share(messages, messages.isolated, messages.isolated),
            IsolatedComputing(**{**mean_stage, "update": isolated.update}),  # which is a share of it already
            2 * count * messages.isolated.sum(-1),
            waiting=self.waiting,
        )
