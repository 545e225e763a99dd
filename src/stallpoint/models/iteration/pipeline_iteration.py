"""An iteration through pipeline stages. It is split into the parts of the mean stage; the rest is the bubble."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from typing_extensions import override

from stallpoint.base.measured import Measured, Parts
from stallpoint.base.statistics import REPLICATES, Ensemble
from stallpoint.models import taskgraph
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.curve_points import Predicted
from stallpoint.models.iteration.replicas import Replicas, fully_connected_seconds, latency_share, matrix_seconds
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import Effects, IsolatedComputing
from stallpoint.strategies.families.pipeline_family import PipelineOptions
from stallpoint.strategies.options import SEND_RECEIVE
from stallpoint.study.workers import Placement


class PipelineIteration(Replicas):
    """Iterations of a pipeline, whose stages divide the layers. Times are sums over layers and micro-batches."""

    @property
    @override
    def batch(self) -> tuple[int, int]:
        """Return the samples of the global mini-batch, and the number of micro-batches."""
        return self.point.global_batch, self.preset.family(PipelineOptions).micro_batches

    @property
    @override
    def readers(self) -> tuple[Placement, int]:
        """Return the placement of the first worker, which alone reads data, and the number of samples that it reads."""
        return (1, 1), self.point.global_batch

    @override
    def predicted(self, base: Measured, times: Times, reading: Ensemble, calibrated: Effects) -> Predicted:
        """Return the predicted iteration; messages take as long as on idle workers, at the point's worker count.

        Exposed communication is that of the stage that receives for the shortest time, as in measurements.
        """
        assert self.cuts, "where it is not known how to cut, nothing is predicted"
        layers, stage_count, batches = self.layers, self.point.ranks, self.preset.family(PipelineOptions).micro_batches
        starts = self.cuts.starts(stage_count)
        sizes = [
            self.point.global_batch // batches * (self.cuts.activation_bytes[start - 1] or 0) for start in starts[1:]
        ]
        transfers = self.collectives(sizes, SEND_RECEIVE)
        pass_times = [
            times.forward_steps * calibrated.forward[:, None],
            times.backward_steps * calibrated.backward[:, None],
        ]
        forward, backward = (np.add.reduceat(of_layers, starts, axis=-1).T for of_layers in pass_times)
        update, zeros = times.update * calibrated.update, np.zeros(1 + REPLICATES)
        weights = np.add.reduceat(layers.gradient_bytes, starts) / max(1, layers.gradient_bytes.sum())
        receive_seconds = [zeros, *transfers.isolated.T, zeros]
        costs = [
            taskgraph.StageCosts(
                forward[stage] / batches, backward[stage] / batches, stage_count * weights[stage] * update,
                activations=receive_seconds[stage], gradients=receive_seconds[stage + 1],
            )
            for stage in range(stage_count)
        ]  # fmt: skip
        seconds, waits = timelines.pipelined(reading, times.host_to_device, costs, self.preset, prefetch=self.prefetch)
        exposed_seconds = batches * np.min(np.add(receive_seconds[:-1], receive_seconds[1:]), axis=0)
        known = {
            "data_wait": waits / stage_count,
            "host_to_device": times.host_to_device / stage_count,
            "forward": forward.mean(axis=0),
            "backward": backward.mean(axis=0),
            "exposed_communication": exposed_seconds,
            "update": update,
        }
        of_layers = (
            times.layers_forward * calibrated.forward[:, None] + times.layers_backward * calibrated.backward[:, None]
        )
        isolated = self._isolated_times(times, [])
        of_a_stage = {field.name: getattr(isolated, field.name) / stage_count for field in fields(IsolatedComputing)}
        return Predicted(
            self.point,
            self.strategy.equation(prefetch=self.prefetch),
            times.source,
            Parts(
                iteration_time=seconds,
                straggling=seconds - sum(known.values()),
                communication=exposed_seconds,
                matrix=matrix_seconds(layers, of_layers / stage_count),
                fully_connected=fully_connected_seconds(layers, of_layers / stage_count),
                **known,
            ),
            reading,
            latency_share(transfers, transfers.isolated, transfers.isolated),
            IsolatedComputing(**{**of_a_stage, "update": isolated.update}),  # the update is already that of one stage
            2 * batches * transfers.isolated.sum(-1),
            waiting=self.waiting,
        )
