"""An iteration of workers that all have the whole network; what divides it says what differs (`of_shards`, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from stallpoint.models import taskgraph
from stallpoint.models.base.measured import FULLY_CONNECTED, MATRIX_LAYERS, Measured, Point
from stallpoint.models.base.parts import Parts
from stallpoint.models.base.statistics import REPLICATES, Ensemble
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.cluster import Cluster
from stallpoint.models.iteration.curve import Predicted
from stallpoint.models.iteration.timeline import Timeline
from stallpoint.models.terms import exchanges
from stallpoint.models.terms.communication import Communication, all_reduce_parts, all_reduce_seconds, traffic
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import CoRunCost, Effects, IsolatedTimes, Messages, rounds
from stallpoint.models.terms.trainings import Layers
from stallpoint.strategies.buckets import Merge, block_paths, buckets, message_bytes
from stallpoint.strategies.mg_wfbp import merged
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE
from stallpoint.study.workers import Placement

Sent = Sequence[Sequence[int]]
"""Layers of each message, in the order of sending."""


class Replicas:
    """Iterations at one point, as a cluster is."""

    def __init__(self, cluster: Cluster, point: Point) -> None:
        self.cluster, self.point = cluster, point
        self.preset = cluster.preset(point)
        self.strategy = self.preset.strategy
        self.cuts = cluster.cuts.get(point.network)
        self.prefetch = point.prefetch > 0

    @property
    def layers(self) -> Layers:
        """Of the network."""
        return self.cluster.compute.layers[self.point.network]

    @property
    def waiting(self) -> str:
        """The part of the critical path that ranks wait for each other."""
        return self.strategy.waiting if self.point.ranks > 1 else "straggling"

    @property
    def predictable(self) -> bool:
        """Whether the model knows what the preset does, and where the network is divided."""
        return self.preset.predictable and (self.point.ranks == 1 or self.strategy.known(self.point.ranks, self.cuts))

    @property
    def batch(self) -> tuple[int, int]:
        """The samples that are computed one part after the other, and in how many parts."""
        return self.point.worker_batch, self.preset.accumulate

    @property
    def reads(self) -> tuple[Placement, int]:
        """Who reads at once, and how many samples each."""
        return self.point.place, self.point.worker_batch

    def times(self, without: frozenset[str] = frozenset()) -> Times | None:
        """What one worker alone computes of an iteration: all parts of its mini-batch, and its share of the update."""
        whole, parts = self.batch
        batch, rest = divmod(whole, parts)
        times = None if rest else self.of_one(batch, without)
        if times is None:
            return None
        if self.preset.activation_checkpointing:
            times = times.recomputing(_in_blocks(self.layers))
        return replace(times.in_parts(parts), update=times.update / self.strategy.shards(self.point.place))

    def of_one(self, batch: int, without: frozenset[str]) -> Times | None:
        """What one worker computes with `batch` samples, as measured `without` some cells; None where nobody knows."""
        point = self.point
        return self.cluster.compute.times(
            point.network, point.hardware, batch, prefetch=point.prefetch, without=without
        )

    def predicted(self, base: Measured, times: Times, reading: Ensemble, learned: Effects) -> Predicted:
        """The iteration, of which `base` was measured on the fewest workers."""
        layers, preset = self.layers, self.preset
        sent = self.sent(times.backward_steps * learned.backward[:, None], learned) if self.point.ranks > 1 else []
        isolated = self._isolated(times, sent)
        reading, slower = self._beside_gradients(base, sent, reading)
        of_messages = isolated.messages.slowed(np.reshape(slower, (-1, 1)))
        exchanged = self.exchanged().slowed(np.reshape(slower, (-1, 1)))
        gathered = self.gathered(sent)
        timeline = self.timeline(times, reading, of_messages, gathered, exchanged, sent, learned)
        start, end = timeline.start, timeline.end
        whole = isolated.backward * learned.backward
        slowed = learned.backward * np.divide(timeline.backward, whole, out=np.ones_like(whole), where=whole > 0)
        of_layers = times.layers_forward * learned.forward[:, None] + times.layers_backward * slowed[:, None]
        return Predicted(
            self.point,
            self.strategy.equation(prefetch=self.prefetch),
            times.source,
            _parts(
                timeline.seconds,
                copy=times.host_to_device,
                forward=timeline.forward,
                backward=timeline.backward,
                communication=timeline.communication,
                exposed_communication=timeline.exposed,
                update=times.update * learned.update,
                matrix=matrix_seconds(layers, of_layers),
                fully_connected=fully_connected_seconds(layers, of_layers),
            ),
            reading,
            latency_share(
                of_messages.and_then(exchanged),
                np.concatenate([end - start, exchanged.isolated], axis=-1),
                np.concatenate([timeline.late, exchanged.isolated], axis=-1),
            ),
            isolated.computing,
            np.asarray(
                isolated.messages.isolated.sum(-1)
                + self.strategy.gathers * gathered.isolated.sum(-1)
                + exchanged.isolated.sum(-1)
            ),
            learned.backward / learned.forward if sent and preset.overlaps else None,
            _layer_table(layers, times, learned, slowed, sent, start, end),
            waiting=self.waiting,
        )

    def isolated(self, sent: Sent) -> IsolatedTimes | None:
        """What the parts take if nothing slows them down; None where computing was not measured."""
        times = self.times() if self.predictable else None
        return None if times is None else self._isolated(times, sent)

    def sent(self, backward: Ensemble, learned: Effects) -> list[list[int]]:
        """Layers of each message; groups of a fixed size are those that were seen."""
        if learned.sent is not None and self.preset.grouping == "fused":
            return learned.sent
        sizes = self.summed_bytes()
        return buckets(self.preset, sizes, self._merge(sizes, backward), self.layers.names)

    # --- what a strategy may do otherwise -------------------------------------------------------

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
        """When the passes and messages run."""
        after_update = np.zeros(1 + REPLICATES) + learned.waited_for(gathered).sum(-1)
        costs = self.costs(times, reading, of_messages, sent, learned, after_update)
        earlier = times.backward * learned.backward * (1 - 1 / self.preset.accumulate)
        timeline = timelines.whole(
            costs, self.preset, prefetch=self.prefetch, earlier=earlier, forward=times.forward * learned.forward
        )
        return replace(
            timeline,
            communication=timeline.communication + after_update,
            exposed=timeline.exposed + after_update,
        )

    def costs(
        self,
        times: Times,
        reading: Ensemble,
        of_messages: Messages,
        sent: Sent,
        learned: Effects,
        after_update: Ensemble,
    ) -> taskgraph.Costs:
        """Of the mean worker, and of the slowest one, whom all wait for where they wait.

        All parts of a mini-batch but the last are computed before the last one's forward pass; what is sent
        `after_update` counts as a part of that.
        """
        pace = slowness(learned, waits=bool(sent) and self.strategy.waits)
        backward = times.backward_steps * learned.backward[:, None]
        earlier = backward.sum(-1) * (1 - 1 / self.preset.accumulate)
        return taskgraph.Costs(
            read=reading,
            copy=times.host_to_device,
            forward=[pace * (times.forward * learned.forward + earlier) + self.taken_over(learned)],
            backward=np.moveaxis(pace[..., None] * backward / self.preset.accumulate, -1, 0),
            messages=of_graph(sent, of_messages, learned),
            update=times.update * learned.update + after_update,
        )

    def summed_bytes(self) -> list[int]:
        """Bytes of each layer's gradients that workers bring together."""
        found: list[int] = self.layers.gradient_bytes.tolist()
        return found

    def summed(self, sizes: Sequence[int]) -> Messages:
        """What brings gradients of `sizes` bytes together."""
        return self.messages(sizes)

    def gathered(self, sent: Sent) -> Messages:
        """All-gathers of weights: of shares that were updated, of all in one."""
        sizes = [sum(self.sizes(sent))] if self.strategy.gathers and sent else []
        return self.messages(sizes, ALL_GATHER)

    def exchanged(self) -> Messages:
        """What passes wait for beside gradients and weights: nothing."""
        return self.messages([])

    # --- what all need --------------------------------------------------------------------------

    def taken_over(self, learned: Effects) -> Ensemble | float:
        """Taking over a mini-batch: reading ahead hides the reading, and not that."""
        return learned.waiting if self.prefetch else 0.0

    def sizes(self, sent: Sent) -> list[int]:
        """Bytes of each message before compression."""
        of_layer = self.layers.gradient_bytes
        return [int(of_layer[list(members)].sum()) for members in sent]

    def messages(self, sizes: Sequence[int], operation: str = ALL_REDUCE, place: Placement | None = None) -> Messages:
        """What is measured without training of messages of `sizes` bytes before compression, among all workers or those
        of `place`."""
        links, place = self.cluster.links(self.point, operation), place or self.point.place
        in_rounds = rounds(place[0] * place[1])
        if not sizes or links is None:
            unknown = np.full((1 + REPLICATES, len(sizes)), np.nan)
            return Messages(unknown, unknown, in_rounds)
        latency, bandwidth = self._message_parts(links, sizes, place)
        co_run = None
        both = (links.while_computing.longer, links.while_computing.work) if links.while_computing else ()
        if both and all(of.at(*place) is not None for of in both):
            co_run = CoRunCost(*(np.add(*self._message_parts(of, sizes, place)) for of in both))
        return Messages(latency, latency + bandwidth, in_rounds, co_run)

    def _message_parts(self, links: Communication, sizes: Sequence[int], place: Placement) -> tuple[Ensemble, Ensemble]:
        """Latency and bandwidth of each message, of `sizes` bytes before compression, [1 + REPLICATES, messages]."""
        preset, fit = self.preset, links.at(*place)
        ranks = place[0] * place[1]
        whole = message_bytes(preset, sizes)
        if fit is None:
            unknown = np.full((1 + REPLICATES, len(sizes)), np.nan)
            return unknown, unknown
        if not preset.segment_bytes:
            return all_reduce_parts(fit, ranks, whole)
        segments, rest = np.divmod(whole, preset.segment_bytes)
        segment, last = (all_reduce_parts(fit, ranks, size) for size in ([preset.segment_bytes], rest))
        latency, bandwidth = (segments * of_one + of_rest for of_one, of_rest in zip(segment, last, strict=True))
        return latency, bandwidth

    def _isolated(self, times: Times, sent: Sent) -> IsolatedTimes:
        layers, of_layers = self.layers, times.layers_forward + times.layers_backward
        backward = times.backward_steps.sum(-1)
        return IsolatedTimes(
            forward=times.forward,
            backward=backward,
            update=times.update,
            matrix=matrix_seconds(layers, of_layers),
            fully_connected=fully_connected_seconds(layers, of_layers),
            messages=exchanges.of_iteration(
                self.summed(self.sizes(sent)), self.preset, self.point.ranks, times.forward + backward + times.update
            ),
        )

    def _beside_gradients(self, base: Measured, sent: Sent, reading: Ensemble) -> tuple[Ensemble, Ensemble | float]:
        """t_io, and the factor on messages, when data and gradients share a link."""
        point, links = self.point, self.cluster.links(self.point)
        if point.nodes == 1 or not sent or links is None or links.over_nodes is None:
            return reading, 1.0
        _, workers = point.place
        sizes = message_bytes(self.preset, self.sizes(sent)) * self.strategy.frequency
        gradients = traffic(links.over_nodes.at(workers), point.ranks, sizes)
        return self.cluster.data.beside_gradients(base, reading, workers, point.worker_batch, gradients)

    def _merge(self, gradient_bytes: Sequence[int], backward: Ensemble) -> Merge | None:
        """What merges layers by the α-β model of this point; None where its links are not known."""
        links = self.cluster.links(self.point)
        fit = links.at(*self.point.place) if links else None
        if fit is None:
            return None
        whole = sum(gradient_bytes)
        least, most = all_reduce_seconds(fit, self.point.ranks, [1, whole])[0]
        if not np.isfinite([least, most]).all():
            return None
        ready = taskgraph.gradients_ready(backward)[0]

        def merge(order: Sequence[int]) -> list[list[int]]:
            sizes, complete = ([float(of[layer]) for layer in order] for of in (gradient_bytes, ready))
            return merged(sizes, complete, alpha=float(least), beta=float(most - least) / whole)

        return merge


def slowness(learned: Effects, *, waits: bool) -> Ensemble:
    """Of the mean worker and of the slowest, [2, 1 + REPLICATES]."""
    return np.stack(np.broadcast_arrays(np.ones(1 + REPLICATES), 1 + learned.straggling if waits else 1.0))


def of_graph(sent: Sent, of_messages: Messages, learned: Effects) -> list[taskgraph.Message]:
    """Messages as tasks."""
    found = zip(sent, *learned.of_messages(of_messages), strict=True)
    return [taskgraph.Message(tuple(members), *of_message) for members, *of_message in found]


def matrix_seconds(layers: Layers, seconds: Ensemble) -> Ensemble:
    """Of the layers in `measured.MATRIX_LAYERS`, of the `seconds` of each layer."""
    return np.asarray(seconds[:, np.isin(layers.types, MATRIX_LAYERS)].sum(-1))


def fully_connected_seconds(layers: Layers, seconds: Ensemble) -> Ensemble:
    """Of fully-connected layers, of the `seconds` of each layer."""
    return np.asarray(seconds[:, layers.types == FULLY_CONNECTED].sum(-1))


def latency_share(messages: Messages, seconds: Ensemble, late: Ensemble) -> Ensemble:
    """What of the exposed communication is latency, each message by the part of it that is exposed.

    `seconds` is what the messages take in training. `late` says how long after the backward pass each message ends:
    what is exposed of it lies before that end. Nothing communicated has no latency.
    """
    exposed = np.clip(late, 0.0, seconds)
    counted = np.where(exposed.sum(-1, keepdims=True) > 0, exposed, seconds)
    isolated = messages.isolated
    of_message = np.divide(messages.latency, isolated, out=np.zeros_like(isolated), where=isolated != 0)
    total = counted.sum(-1)
    share: Ensemble = np.divide((counted * of_message).sum(-1), total, out=np.zeros_like(total), where=total != 0)
    return share


def _parts(seconds: Ensemble, *, copy: Ensemble, **known: Ensemble) -> Parts:
    """The iteration of the mean and of the slowest worker, `seconds` [2, 1 + REPLICATES], by its `known` parts.

    What is left of the mean worker's is the wait for a mini-batch. It ends with the copy: what is shorter than the
    copy is all copy.
    """
    left = seconds[0] - sum(known[name] for name in ("forward", "backward", "exposed_communication", "update"))
    copied = np.clip(copy, 0.0, np.maximum(left, 0.0))
    return Parts(
        iteration_time=seconds[1],
        straggling=seconds[1] - seconds[0],
        data_wait=left - copied,
        host_to_device=copied,
        **known,
    )


def _in_blocks(layers: Layers) -> npt.NDArray[np.bool_]:
    """Which layers are in a block, by their paths."""
    within = tuple(f"{path}." for path in block_paths(layers.names, layers.gradient_bytes.tolist()) if path)
    return np.array([f"{name}.".startswith(within) for name in layers.names], dtype=np.bool_)


def _layer_table(
    layers: Layers,
    times: Times,
    learned: Effects,
    slowed: Ensemble,
    sent: Sequence[Sequence[int]],
    start: Ensemble,
    end: Ensemble,
) -> dict[str, object]:
    """The columns of layer_predictions; the backward pass is `slowed`, messages go from `start` to `end`."""
    of_layer = {layer: message for message, members in enumerate(sent) for layer in members}
    places = range(len(layers.names))
    return {
        "layer_index": places,
        "layer": layers.names,
        "layer_type": layers.types,
        "gradient_bytes": layers.gradient_bytes,
        "predicted_forward": times.layers_forward[0] * learned.forward[0],
        "predicted_backward": times.layers_backward[0] * slowed[0],
        **{
            f"predicted_all_reduce_{side}": [at[0, of_layer[at_]] if at_ in of_layer else np.nan for at_ in places]
            for side, at in (("start", start), ("end", end))
        },
    }
