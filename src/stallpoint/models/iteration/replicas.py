"""An iteration of workers that each hold the complete network; subclasses divide it among workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallpoint.base.measured import FULLY_CONNECTED, MATRIX_LAYERS, Measured, Parts, Point
from stallpoint.base.priors import ADDITION_SHARE, GRADIENT_ADDITION
from stallpoint.base.statistics import REPLICATES, Ensemble, generator
from stallpoint.models import taskgraph
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.cluster import Cluster
from stallpoint.models.iteration.curve_points import Predicted
from stallpoint.models.iteration.timeline import Timeline
from stallpoint.models.terms.communication import Communication, all_reduce_parts, all_reduce_seconds, traffic
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.effects import CollectiveTimes, CoRunCost, Effects, Factors, IsolatedTimes, rounds
from stallpoint.models.terms.training_cells import Layers
from stallpoint.strategies.buckets import MergeFunction, block_paths, buckets, message_bytes
from stallpoint.strategies.mg_wfbp import merged_groups
from stallpoint.strategies.options import ALL_GATHER, ALL_REDUCE
from stallpoint.strategies.presets import Preset
from stallpoint.study.workers import Placement

Buckets = Sequence[Sequence[int]]
"""Layers of each message, in the order of sending."""


@dataclass(frozen=True)
class IterationCosts:
    """Costs of one iteration, from which its task graph is built."""

    times: Times
    reading: Ensemble
    """Time to read the mini-batch, s, [1 + REPLICATES]."""
    collectives: CollectiveTimes
    """Collectives that sum gradients, one for each of `buckets`."""
    gathered: CollectiveTimes
    """All-gathers of weights."""
    exchanges: CollectiveTimes
    """Collectives, other than of gradients and weights, for which passes wait."""
    buckets: Buckets
    calibrated: Effects
    """Time that training adds to these isolated times."""


class Replicas:
    """Iterations at one point of a cluster."""

    def __init__(self, cluster: Cluster, point: Point) -> None:
        self.cluster, self.point = cluster, point
        self.preset = cluster.preset(point)
        self.strategy = self.preset.strategy
        self.cuts = cluster.cuts.get(point.network)
        self.prefetch = point.prefetch > 0

    @property
    def layers(self) -> Layers:
        """Return the layers of the network."""
        return self.cluster.compute.layers[self.point.network]

    @property
    def waiting(self) -> str:
        """Return the part of the critical path in which ranks wait for each other."""
        return self.strategy.waiting if self.point.ranks > 1 else "straggling"

    @property
    def is_predictable(self) -> bool:
        """Return whether it is known how workers divide the network."""
        return self.point.ranks == 1 or self.strategy.known(self.point.ranks, self.cuts)

    @property
    def batch(self) -> tuple[int, int]:
        """Return the samples of a worker's mini-batch, and the number of parts that are computed one by one."""
        return self.point.worker_batch, self.preset.accumulate

    @property
    def readers(self) -> tuple[Placement, int]:
        """Return the workers that read concurrently, and the samples of each."""
        return self.point.placement, self.point.worker_batch

    def times(self, without: frozenset[str] = frozenset()) -> Times | None:
        """Return the computing times of a single worker: all parts of its mini-batch, and its share of the update."""
        samples, parts = self.batch
        batch, remainder = divmod(samples, parts)
        times = None if remainder else self.worker_times(batch, without)
        if times is None:
            return None
        if self.preset.activation_checkpointing:
            times = times.with_recomputation(_is_in_block(self.layers))
        found = replace(times.in_parts(parts), update=times.update / self.strategy.shards(self.point.placement))
        if self.preset.accumulate == 1 or self.strategy.in_blocks:
            return found
        sizes = self.layers.gradient_bytes
        return found.with_added_backward((parts - 1) * self._summing_seconds(times.update), sizes / max(1, sizes.sum()))

    def _summing_seconds(self, update: Ensemble) -> Ensemble:
        """Return the seconds to add the gradients of one more mini-batch: two arrays are read and one is written."""
        rate = self.cluster.memory_rates.get(self.point.hardware)
        if rate is not None:
            return np.asarray(3 * self.layers.gradient_bytes.sum() / rate)
        drawn = generator(0, "adding", *self.point.series).standard_normal(REPLICATES)
        return np.asarray(ADDITION_SHARE * update * np.exp(GRADIENT_ADDITION.deviation * np.append(0.0, drawn)))

    def worker_times(self, batch: int, without: frozenset[str]) -> Times | None:
        """Return the times to compute `batch` samples on a worker, not using the cells `without`; None if unknown."""
        point = self.point
        return self.cluster.compute.times(
            point.network, point.hardware, batch, prefetch=point.prefetch, without=without
        )

    def predicted(self, base: Measured, times: Times, reading: Ensemble, calibrated: Effects) -> Predicted:
        """Return the predicted iteration; `base` is the measured point on the fewest workers."""
        layers, preset = self.layers, self.preset
        buckets = (
            self.buckets(times.backward_steps * calibrated.backward[:, None], calibrated)
            if self.point.ranks > 1
            else []
        )
        isolated = self._isolated_times(times, buckets, calibrated.factors)
        reading, slower = self._reading_on_shared_link(base, buckets, reading, calibrated.factors)
        collectives = isolated.collectives.scaled(np.reshape(slower, (-1, 1)))
        exchanges = self.exchanges().scaled(np.reshape(slower, (-1, 1)))
        gathered = self.gathered(buckets)
        timeline = self.timeline(IterationCosts(times, reading, collectives, gathered, exchanges, buckets, calibrated))
        start, end = timeline.start, timeline.end
        isolated_backward = isolated.backward * calibrated.backward
        slowdown = calibrated.backward * np.divide(
            timeline.backward, isolated_backward, out=np.ones_like(isolated_backward), where=isolated_backward > 0
        )
        of_layers = times.layers_forward * calibrated.forward[:, None] + times.layers_backward * slowdown[:, None]
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
                update=times.update * calibrated.update,
                matrix=matrix_seconds(layers, of_layers),
                fully_connected=fully_connected_seconds(layers, of_layers),
            ),
            reading,
            latency_share(
                collectives.followed_by(exchanges),
                np.concatenate([end - start, exchanges.isolated], axis=-1),
                np.concatenate([timeline.lateness, exchanges.isolated], axis=-1),
            ),
            isolated.computing,
            np.asarray(
                isolated.collectives.isolated.sum(-1)
                + self.strategy.gathers * gathered.isolated.sum(-1)
                + exchanges.isolated.sum(-1)
            ),
            calibrated.backward / calibrated.forward if buckets and preset.overlaps else None,
            _layer_table(layers, times, calibrated, slowdown, buckets, start, end),
            waiting=self.waiting,
        )

    def isolated(self, buckets: Buckets, factors: Factors | None = None) -> IsolatedTimes | None:
        """Return the isolated parts; None if computing is unknown. Messages carry given `factors`, else gradients."""
        times = self.times() if self.is_predictable else None
        return None if times is None else self._isolated_times(times, buckets, factors)

    def buckets(self, backward: Ensemble, calibrated: Effects) -> list[list[int]]:
        """Return the layers of each message; if training recorded its buckets of a fixed size, these are returned."""
        if calibrated.buckets is not None and self.preset.grouping == "fused":
            return calibrated.buckets
        sizes = self.summed_bytes()
        merge_layers = self._merge_function(sizes, backward) if self.preset.grouping == "merged" else None
        return buckets(self.preset, sizes, merge_layers, self.layers.names)

    # --- parts that subclasses may override -------------------------------------------------------

    def timeline(self, terms: IterationCosts) -> Timeline:
        """Return the timeline of passes and messages."""
        times, calibrated = terms.times, terms.calibrated
        awaited_seconds = np.zeros(1 + REPLICATES) + calibrated.awaited_seconds(terms.gathered).sum(-1)
        costs = self.costs(terms, awaited_seconds)
        earlier = times.backward * calibrated.backward * (1 - 1 / self.preset.accumulate)
        timeline = timelines.unsharded(
            costs, self.preset, prefetch=self.prefetch, earlier=earlier, forward=times.forward * calibrated.forward
        )
        return replace(
            timeline,
            communication=timeline.communication + awaited_seconds,
            exposed=timeline.exposed + awaited_seconds,
        )

    def costs(self, terms: IterationCosts, awaited_seconds: Ensemble) -> taskgraph.Costs:
        """Return the costs of the mean worker, and of the slowest worker, for which all others wait.

        In these costs, the forward pass includes all passes before the last backward pass, and the update includes the
        `awaited_seconds` of messages.
        """
        times, calibrated = terms.times, terms.calibrated
        factor = slowdowns(calibrated, waits=bool(terms.buckets) and self.strategy.waits)
        backward = times.backward_steps * calibrated.backward[:, None]
        earlier = backward.sum(-1) * (1 - 1 / self.preset.accumulate)
        return taskgraph.Costs(
            read=terms.reading,
            copy=times.host_to_device,
            forward=[factor * (times.forward * calibrated.forward + earlier) + self.handover_seconds(calibrated)],
            backward=np.moveaxis(factor[..., None] * backward / self.preset.accumulate, -1, 0),
            collectives=message_tasks(terms.buckets, terms.collectives, calibrated),
            update=times.update * calibrated.update + awaited_seconds,
        )

    def summed_bytes(self) -> list[int]:
        """Return the bytes of each layer's gradients that workers sum."""
        found: list[int] = self.layers.gradient_bytes.tolist()
        return found

    def summed(self, sizes: Sequence[int]) -> CollectiveTimes:
        """Return the times to sum gradients of `sizes` bytes."""
        return self.collectives(sizes)

    def gathered(self, buckets: Buckets) -> CollectiveTimes:
        """Return the all-gathers of updated weights, as one message."""
        sizes = [sum(self.sizes(buckets))] if self.strategy.gathers and buckets else []
        return self.collectives(sizes, ALL_GATHER)

    def exchanges(self) -> CollectiveTimes:
        """Return no collectives: passes of replicas exchange nothing but gradients and weights."""
        return self.collectives([])

    # --- parts that all subclasses share ---------------------------------------------------------------------------

    def handover_seconds(self, calibrated: Effects) -> Ensemble | float:
        """Return the time to hand over a mini-batch, which prefetching does not hide."""
        return calibrated.waiting if self.prefetch else 0.0

    def sizes(self, buckets: Buckets) -> list[int]:
        """Return the bytes of each message before compression."""
        layer_bytes = self.layers.gradient_bytes
        return [int(layer_bytes[list(members)].sum()) for members in buckets]

    def collectives(
        self, sizes: Sequence[float], operation: str = ALL_REDUCE, placement: Placement | None = None
    ) -> CollectiveTimes:
        """Return the isolated times of messages of `sizes` bytes before compression, among all workers or those of
        `placement`."""
        links, placement = self.cluster.links(self.point, operation), placement or self.point.placement
        round_count = rounds(placement[0] * placement[1])
        if not sizes or links is None:
            unknown = np.full((1 + REPLICATES, len(sizes)), np.nan)
            return CollectiveTimes(unknown, unknown, round_count)
        latency, bandwidth = self._message_parts(links, sizes, placement)
        co_run_cost = None
        co_run_fits = (links.while_computing.longer, links.while_computing.work) if links.while_computing else ()
        if co_run_fits and all(of.at(*placement) is not None for of in co_run_fits):
            co_run_cost = CoRunCost(*(np.add(*self._message_parts(of, sizes, placement)) for of in co_run_fits))
        return CollectiveTimes(latency, latency + bandwidth, round_count, co_run_cost)

    def _message_parts(
        self, links: Communication, sizes: Sequence[float], placement: Placement
    ) -> tuple[Ensemble, Ensemble]:
        """Return the seconds of each message due to latency and due to bandwidth, [1 + REPLICATES, messages]. Before
        compression, messages have `sizes` bytes."""
        preset, fit = self.preset, links.at(*placement)
        ranks = placement[0] * placement[1]
        message_sizes = message_bytes(preset, sizes)
        if fit is None:
            unknown = np.full((1 + REPLICATES, len(sizes)), np.nan)
            return unknown, unknown
        if not preset.segment_bytes:
            return all_reduce_parts(fit, ranks, message_sizes)
        segments, rest = np.divmod(message_sizes, preset.segment_bytes)
        segment, last = (all_reduce_parts(fit, ranks, size) for size in ([preset.segment_bytes], rest))
        latency, bandwidth = (segments * of_one + of_rest for of_one, of_rest in zip(segment, last, strict=True))
        return latency, bandwidth

    def _isolated_times(self, times: Times, buckets: Buckets, factors: Factors | None = None) -> IsolatedTimes:
        sizes = self.sizes(buckets)
        layers, of_layers = self.layers, times.layers_forward + times.layers_backward
        backward = times.backward_steps.sum(-1)
        return IsolatedTimes(
            forward=times.forward,
            backward=backward,
            update=times.update,
            matrix=matrix_seconds(layers, of_layers),
            fully_connected=fully_connected_seconds(layers, of_layers),
            collectives=iteration_times(
                factors.times(sizes, self.collectives) if factors else self.summed(sizes),
                self.preset,
                self.point.ranks,
                times.forward + backward + times.update,
            ),
        )

    def _reading_on_shared_link(
        self, base: Measured, buckets: Buckets, reading: Ensemble, factors: Factors | None
    ) -> tuple[Ensemble, Ensemble | float]:
        """Return t_io and the factor on messages' times; both change if data and gradients share a link."""
        point, links = self.point, self.cluster.links(self.point)
        if point.nodes == 1 or not buckets or links is None or links.over_nodes is None:
            return reading, 1.0
        _, workers = point.placement
        sizes = message_bytes(self.preset, self.sizes(buckets)) * self.strategy.frequency
        sizes = sizes * factors.share if factors else sizes
        gradients = traffic(links.over_nodes.at(workers), point.ranks, sizes)
        return self.cluster.data.sharing_link(base, reading, workers, point.worker_batch, gradients)

    def _merge_function(self, gradient_bytes: Sequence[int], backward: Ensemble) -> MergeFunction | None:
        """Return a function that merges layers into messages by the α-β model of links; None without this model."""
        links = self.cluster.links(self.point)
        fit = links.at(*self.point.placement) if links else None
        if fit is None:
            return None
        total_bytes = sum(gradient_bytes)
        shortest, longest = all_reduce_seconds(fit, self.point.ranks, [1, total_bytes])[0]
        if not np.isfinite([shortest, longest]).all():
            return None
        ready = taskgraph.gradients_ready(backward)[0]

        def merge_layers(order: Sequence[int]) -> list[list[int]]:
            sizes, complete = ([float(of[layer]) for layer in order] for of in (gradient_bytes, ready))
            return merged_groups(sizes, complete, alpha=float(shortest), beta=float(longest - shortest) / total_bytes)

        return merge_layers


def slowdowns(calibrated: Effects, *, waits: bool) -> Ensemble:
    """Return the slowdown of the mean worker, which is 1, and of the slowest worker, [2, 1 + REPLICATES]."""
    return np.stack(np.broadcast_arrays(np.ones(1 + REPLICATES), 1 + calibrated.straggling if waits else 1.0))


def message_tasks(buckets: Buckets, collectives: CollectiveTimes, calibrated: Effects) -> list[taskgraph.MessageTimes]:
    """Return the messages of gradients or weights as tasks of the task graph."""
    found = zip(buckets, *calibrated.collective_seconds(collectives), strict=True)
    return [taskgraph.MessageTimes(tuple(members), *of_message) for members, *of_message in found]


def matrix_seconds(layers: Layers, seconds: Ensemble) -> Ensemble:
    """Return the sum of `seconds` over the layers in `measured.MATRIX_LAYERS`."""
    return np.asarray(seconds[:, np.isin(layers.types, MATRIX_LAYERS)].sum(-1))


def fully_connected_seconds(layers: Layers, seconds: Ensemble) -> Ensemble:
    """Return the sum of `seconds` over the fully-connected layers."""
    return np.asarray(seconds[:, layers.types == FULLY_CONNECTED].sum(-1))


def latency_share(collectives: CollectiveTimes, seconds: Ensemble, lateness: Ensemble) -> Ensemble:
    """Return the latency's share of the exposed communication; each message is weighted by its exposed part.

    `seconds` are the times of the messages in training. `lateness` is how long after the backward pass each message
    ends; a message is exposed for this time at most. Without communication the share is 0.
    """
    exposed_seconds = np.clip(lateness, 0.0, seconds)
    weights = np.where(exposed_seconds.sum(-1, keepdims=True) > 0, exposed_seconds, seconds)
    isolated = collectives.isolated
    shares = np.divide(collectives.latency, isolated, out=np.zeros_like(isolated), where=isolated != 0)
    total = weights.sum(-1)
    share: Ensemble = np.divide((weights * shares).sum(-1), total, out=np.zeros_like(total), where=total != 0)
    return share


def _parts(seconds: Ensemble, *, copy: Ensemble, **known: Ensemble) -> Parts:
    """Return all parts of an iteration from its `known` parts and the `seconds` of the mean and the slowest worker, [2,
    1 + REPLICATES].

    The rest of the mean worker's iteration is the wait for a mini-batch, which ends with the copy to the device. If the
    wait is shorter than the copy, all of it counts as copy.
    """
    waiting = seconds[0] - sum(known[name] for name in ("forward", "backward", "exposed_communication", "update"))
    copied = np.clip(copy, 0.0, np.maximum(waiting, 0.0))
    return Parts(
        iteration_time=seconds[1],
        straggling=seconds[1] - seconds[0],
        data_wait=waiting - copied,
        host_to_device=copied,
        **known,
    )


def _is_in_block(layers: Layers) -> npt.NDArray[np.bool_]:
    """Return for each layer whether its path lies in a block."""
    within = tuple(f"{path}." for path in block_paths(layers.names, layers.gradient_bytes.tolist()) if path)
    return np.array([f"{name}.".startswith(within) for name in layers.names], dtype=np.bool_)


def _layer_table(
    layers: Layers,
    times: Times,
    calibrated: Effects,
    slowdown: Ensemble,
    buckets: Sequence[Sequence[int]],
    start: Ensemble,
    end: Ensemble,
) -> dict[str, object]:
    """Return the predicted columns of layer_times, from the backward `slowdown` and messages' `start` and `end`."""
    message_of = {layer: message for message, members in enumerate(buckets) for layer in members}
    places = range(len(layers.names))
    return {
        "layer_index": places,
        "predicted_forward": times.layers_forward[0] * calibrated.forward[0],
        "predicted_backward": times.layers_backward[0] * slowdown[0],
        **{
            f"predicted_all_reduce_{side}": [at[0, message_of[at_]] if at_ in message_of else np.nan for at_ in places]
            for side, at in (("start", start), ("end", end))
        },
    }


def iteration_times(collectives: CollectiveTimes, preset: Preset, ranks: int, computing: Ensemble) -> CollectiveTimes:
    """Return the times per iteration of the `collectives` among `ranks`, with `computing` seconds in an iteration.

    A synchronous preset sends each collective once. An asynchronous one sends all weights or gradients in one message.
    By the preset's reduction scheme this message takes T, of which α is latency and β·m the rest. With p workers and f
    exchanges in an iteration (1, 1 / period, or for downpour the mean of both), the time is

        averaging      f T
        gossip         f (α k / (2 (p - 1)) + β m k p / (2 (p - 1))) for k = min(2, p - 1) neighbours: an all-reduce
                       around a ring is 2 (p - 1) messages of m / p bytes
        with servers   f (w / p) max((α + k β·m) / w, T - computing / f) for k servers; w senders: p, or p - 1 if k = 1

    The link of each server carries gradients of p - 1 workers in and their weights out; a worker sends nothing to the
    server in its own process. In the maximum, the first term is a worker's own push and pull, as a mean over workers.
    The second term is above 0 if servers are saturated: a worker computes while servers answer the others, and waits if
    they take longer. Limits of this model: docs/models/algorithms.md.
    """
    if preset.synchronous or ranks == 1:
        return collectives
    latency, bandwidth = preset.strategy.exchanged(
        collectives.latency, collectives.isolated - collectives.latency, ranks, computing
    )
    return replace(collectives, latency=latency, isolated=latency + bandwidth, co_run=None)
