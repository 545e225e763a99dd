"""Iterations as the DAG model predicts them, from layer times, the communication fit and the storage's records.

A curve is predicted by one model at all node counts, from all cells. Beside it every measured point is predicted
without its own cells: errors are those of such predictions. Intervals say what the uncertainty of these inputs does;
whether the model itself holds is what the comparison with measured cells shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from stallpoint.models import taskgraph
from stallpoint.models.base.measured import FULLY_CONNECTED, MATRIX_LAYERS, Measured, Point
from stallpoint.models.base.parts import UNKNOWN_PARTS, Parts
from stallpoint.models.base.statistics import REPLICATES, Ensemble
from stallpoint.models.iteration import timeline as timelines
from stallpoint.models.iteration.cluster import SCALINGS, Cluster
from stallpoint.models.iteration.curve import Predicted, ScalingCurve
from stallpoint.models.terms import effects, exchanges
from stallpoint.models.terms.communication import Communication, all_reduce_parts, all_reduce_seconds, traffic
from stallpoint.models.terms.compute import Times
from stallpoint.models.terms.contention import Contention
from stallpoint.models.terms.effects import CoRunCost, Effects, IsolatedComputing, IsolatedTimes, Messages, rounds
from stallpoint.models.terms.pace import Pace
from stallpoint.models.terms.trainings import Layers, Trainings
from stallpoint.strategies.messages import Merge, block_paths, message_bytes, messages
from stallpoint.strategies.mg_wfbp import merged
from stallpoint.strategies.presets import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND_RECEIVE, Preset
from stallpoint.study.workers import Place, counts, curves_of, place_of


def learning(cluster: Cluster, points: Sequence[Measured], trainings: Trainings, pace: Pace, seed: int) -> Cluster:
    """`cluster` with the effects that its training cells show."""
    whole = [one for one in points if not (cluster.staged(one.point) or cluster.splits(one.point))]
    sending = [one for one in whole if cluster.communicates(one.point) and not one.composed]
    isolated = DagModel(cluster).isolated

    def reading(measured: Measured) -> Ensemble:
        return cluster.data.seconds(measured, measured.point.place, measured.point.worker_batch)

    seen = Contention(sending, trainings, cluster.presets, isolated, reading, pace, seed)
    return replace(cluster, effects=seen.effects)


class DagModel:
    """The DAG model of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """`cluster`: what is known of it, and how training differs there from its isolated parts."""
        self._cluster = cluster

    def curves(self, points: Sequence[Measured], nodes: Iterable[int], *, held_out: bool = True) -> list[ScalingCurve]:
        """Every scaling curve among `points` (`workers.curves_of`), predicted at its own worker counts, and beyond the
        fewest on `nodes` full nodes and inside a node (`workers.counts`).

        Strong scaling leaves out counts that do not divide the global mini-batch. With `held_out` each measured point
        is also predicted without its own cells.
        """
        nodes = list(nodes)
        return [
            self.curve(measured, counts(nodes, measured[0].point.workers_per_node), held_out=held_out)
            for measured in self.points_of_curves(points)
        ]

    def points_of_curves(self, points: Sequence[Measured]) -> list[list[Measured]]:
        """The `points` of each scaling curve, by rising workers; those inside a node may be of several."""
        series: dict[tuple[str | int, ...], dict[Place, Measured]] = {}
        for measured in [*self._bases(points), *points]:
            if measured.point.scaling in SCALINGS:
                series.setdefault(measured.point.placeless, {})[measured.point.place] = measured
        return [
            [at[place].on_curve(per_node) for place in places]
            for at in series.values()
            for per_node, places in curves_of(at).items()
        ]

    def _bases(self, points: Sequence[Measured]) -> Iterator[Measured]:
        """Of presets that do not communicate the points on one rank, where others were measured: all do the same."""
        presets = self._cluster.presets
        scaling = [one for one in points if one.point.scaling in SCALINGS]
        quiet = {one.point.placeless: one.point.sync for one in scaling if not self._cluster.communicates(one.point)}
        for one, (series, sync) in product(scaling, quiet.items()):
            twin = replace(one.point, sync=sync)
            alike = presets[sync].device_prefetch == presets[one.point.sync].device_prefetch
            if one.point.ranks == 1 and alike and twin.placeless == series:
                yield replace(one, point=twin)

    def curve(self, points: Sequence[Measured], ranks: Iterable[int], *, held_out: bool = True) -> ScalingCurve:
        """The one curve of `points`, by rising workers, predicted there and for as many workers as one of `ranks`."""
        measured = {one.point.ranks: one for one in points}
        base = min(measured)
        wanted = sorted({*measured, *(n for n in ranks if n > base)})
        places = {n: measured[n].point if n in measured else _elsewhere(measured[base].point, n) for n in wanted}
        predicted = {n: self._predict(point, measured) for n, point in places.items() if point is not None}
        seen = {n: here for n, here in measured.items() if held_out and not here.composed}
        without = {n: self._hold_out(here, measured) for n, here in seen.items()}
        return ScalingCurve(measured, predicted, without)

    def _predict(self, point: Point, curve: Mapping[int, Measured]) -> Predicted:
        """Predict from all cells."""
        return self._predict_without(point, curve, frozenset(), held_out=False)

    def _hold_out(self, here: Measured, curve: Mapping[int, Measured]) -> Predicted:
        """Predict from other cells; on one rank without any, from other repeats of the same cell."""
        point = here.point
        own = frozenset(here.cells) if point.ranks == 1 else frozenset()
        prediction = self._predict_without(point, curve, own, held_out=True)
        if len(own) < 2 or not np.isnan(prediction.parts.iteration_time).any():
            return prediction
        first = frozenset({min(own)})
        prediction = self._predict_without(point, curve, first, held_out=True)
        return replace(prediction, compute_source=f"{prediction.compute_source}, other repeats", left_out=first)

    def _predict_without(
        self, point: Point, curve: Mapping[int, Measured], cells: frozenset[str], *, held_out: bool
    ) -> Predicted:
        times = self._times(point, cells)
        if times is None or not self._predictable(point):
            equation = taskgraph.equation(self._cluster.preset(point), prefetch=point.prefetch > 0)
            why = "not measured" if self._predictable(point) else "preset not predicted"
            return Predicted(point, equation, why, UNKNOWN_PARTS, staged=self._cluster.staged(point))
        base, staged = curve[min(curve)], self._cluster.staged(point)
        read = ((1, 1), point.global_batch) if staged else (point.place, point.worker_batch)
        reading = self._cluster.data.seconds(base, *read, without=cells)
        learned = self._cluster.effects(point, held_out) if point.ranks > 1 else effects.NONE
        if staged:
            return self._through_stages(point, times, reading + np.zeros(1 + REPLICATES), learned)
        return self._assemble(point, base, times, reading + np.zeros(1 + REPLICATES), learned)

    def _times(self, point: Point, without: frozenset[str] = frozenset()) -> Times | None:
        """What one worker alone computes of an iteration: all parts of its mini-batch, and its share of the update.

        Of a pipeline all layers for all micro-batches, which its stages share. Of split layers the largest share, with
        the samples of all workers; where their times at B are not known, they grow with the samples.
        """
        preset, prefetch = self._cluster.preset(point), point.prefetch
        whole, parts = point.worker_batch, preset.accumulate
        if self._cluster.staged(point):
            whole, parts = point.global_batch, preset.micro_batches
        batch, rest = divmod(whole, parts)
        if rest:
            return None
        times = self._cluster.compute.times(point.network, point.hardware, batch, prefetch=prefetch, without=without)
        if times is None:
            return None
        if preset.activation_checkpointing:
            times = times.recomputing(_in_blocks(self._layers(point)))
        if shares := self._shares_of_outputs(point):
            everyone = self._cluster.compute.times(
                point.network, point.hardware, point.global_batch, prefetch=prefetch, without=without
            )
            times = times.with_shares(everyone or times.scaled(point.ranks), shares)
            return replace(times, update=times.update * self._kept(point, shares))
        return replace(times.in_parts(parts), update=times.update / preset.shards(*point.place))

    def _shares_of_outputs(self, point: Point) -> dict[int, float]:
        """What the worker with most outputs has of those of each split layer; empty where none is split."""
        cuts = self._cluster.cuts.get(point.network)
        split = cuts.split if cuts and self._cluster.splits(point) else {}
        return {layer: -(-outputs // point.ranks) / outputs for layer, outputs in split.items()}

    def _kept(self, point: Point, shares: Mapping[int, float]) -> float:
        """The part of all weights that a worker has with these shares of layers."""
        sizes = self._layers(point).gradient_bytes
        return 1 - float(sum(sizes[layer] * (1 - share) for layer, share in shares.items()) / max(1, sizes.sum()))

    def _layers(self, point: Point) -> Layers:
        return self._cluster.compute.layers[point.network]

    def _assemble(self, point: Point, base: Measured, times: Times, reading: Ensemble, learned: Effects) -> Predicted:
        layers, preset = self._layers(point), self._cluster.preset(point)
        sent = self._sent(point, times.backward_steps * learned.backward[:, None], learned) if point.ranks > 1 else []
        isolated = self._isolated(point, times, sent)
        reading, slower = self._beside_gradients(point, base, sent, reading)
        messages = isolated.messages.slowed(np.reshape(slower, (-1, 1)))
        exchanged = self._exchanged(point).slowed(np.reshape(slower, (-1, 1)))
        gathered = self._gathered(point, sent)
        waits, prefetch = bool(sent) and preset.waits, point.prefetch > 0
        after_update = np.zeros(1 + REPLICATES)
        if sent and preset.shards_weights:
            of_shards = _sharded_costs(point, preset, times, reading, messages, gathered, sent, learned)
            order = range(len(sent) - 1, -1, -1)
            timeline = timelines.sharded(of_shards, preset, prefetch=prefetch, sent=order)
        else:
            after_update = after_update + learned.waited_for(gathered).sum(-1)
            costs = _costs(point, preset, times, reading, messages, sent, learned, after_update, waits=waits)
            if self._cluster.splits(point):
                costs = self._gathering(costs, point, times, learned, learned.waited_for(exchanged))
                timeline = timelines.split(costs, preset, prefetch=prefetch)
            else:
                earlier = times.backward * learned.backward * (1 - 1 / preset.accumulate)
                timeline = timelines.whole(
                    costs, preset, prefetch=prefetch, earlier=earlier, forward=times.forward * learned.forward
                )
        start, end = timeline.start, timeline.end
        whole = isolated.backward * learned.backward
        slowed = learned.backward * np.divide(timeline.backward, whole, out=np.ones_like(whole), where=whole > 0)
        of_layers = times.layers_forward * learned.forward[:, None] + times.layers_backward * slowed[:, None]
        return Predicted(
            point,
            taskgraph.equation(preset, prefetch=prefetch),
            times.source,
            _parts(
                timeline.seconds,
                copy=times.host_to_device,
                forward=timeline.forward,
                backward=timeline.backward,
                communication=timeline.communication + after_update,
                exposed_communication=timeline.exposed + after_update,
                update=times.update * learned.update,
                matrix=_of_matrices(layers, of_layers),
                fully_connected=_of_fully_connected(layers, of_layers),
            ),
            reading,
            _latency_share(
                messages.and_then(exchanged),
                np.concatenate([end - start, exchanged.isolated], axis=-1),
                np.concatenate([timeline.late, exchanged.isolated], axis=-1),
            ),
            isolated.computing,
            np.asarray(
                isolated.messages.isolated.sum(-1)
                + preset.gathers * gathered.isolated.sum(-1)
                + exchanged.isolated.sum(-1)
            ),
            learned.backward / learned.forward if sent and preset.overlaps else None,
            _layer_table(layers, times, learned, slowed, sent, start, end),
        )

    def _gathering(
        self, costs: taskgraph.Costs, point: Point, times: Times, learned: Effects, exchanged: Ensemble
    ) -> taskgraph.Costs:
        """`costs` of a worker that gathers what split layers take: `exchanged` as `_exchanged` has the messages."""
        forward = _pace(learned, waits=True)[..., None] * times.forward_steps * learned.forward[:, None]
        taking = self._cluster.cuts[point.network].gathered
        gathers, scatters = np.split(exchanged.T, 2)
        return replace(
            costs,
            copy=times.host_to_device + _taken(point, learned),
            forward=np.moveaxis(forward, -1, 0),
            gathered=dict(zip(taking, zip(gathers, scatters, strict=True), strict=True)),
        )

    def _through_stages(self, point: Point, times: Times, reading: Ensemble, learned: Effects) -> Predicted:
        """A pipeline's iteration, by the parts of the mean stage; what is left of it is the bubble.

        Messages take what they do on idle workers, among as many as there are. Exposed are those of the stage that
        receives least, as measured.
        """
        layers, preset, stages = self._layers(point), self._cluster.preset(point), point.ranks
        cuts, prefetch = self._cluster.cuts[point.network], point.prefetch > 0
        starts, count = cuts.starts(stages), preset.micro_batches
        sizes = [point.global_batch // count * (cuts.handed_on[start - 1] or 0) for start in starts[1:]]
        messages = self._messages(point, sizes, SEND_RECEIVE)
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
        seconds, waits = timelines.pipelined(reading, times.host_to_device, costs, preset, prefetch=prefetch)
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
        isolated = self._isolated(point, times, [])
        mean_stage = {field.name: getattr(isolated, field.name) / stages for field in fields(IsolatedComputing)}
        return Predicted(
            point,
            taskgraph.equation(preset, prefetch=prefetch),
            times.source,
            Parts(
                iteration_time=seconds,
                straggling=seconds - sum(known.values()),
                communication=exposed,
                matrix=_of_matrices(layers, of_layers / stages),
                fully_connected=_of_fully_connected(layers, of_layers / stages),
                **known,
            ),
            reading,
            _latency_share(messages, messages.isolated, messages.isolated),
            IsolatedComputing(**{**mean_stage, "update": isolated.update}),  # which is a share of it already
            2 * count * messages.isolated.sum(-1),
            staged=True,
        )

    def _beside_gradients(
        self, point: Point, base: Measured, sent: Sequence[Sequence[int]], reading: Ensemble
    ) -> tuple[Ensemble, Ensemble | float]:
        """t_io, and the factor on messages, when data and gradients share a link."""
        links = self._cluster.links(point)
        if point.nodes == 1 or not sent or links is None or links.over_nodes is None:
            return reading, 1.0
        _, workers = point.place
        preset = self._cluster.preset(point)
        sizes = message_bytes(preset, self._sizes(point, sent)) * exchanges.share(preset)
        gradients = traffic(links.over_nodes.at(workers), point.ranks, sizes)
        return self._cluster.data.beside_gradients(base, reading, workers, point.worker_batch, gradients)

    def isolated(self, point: Point, sent: Sequence[Sequence[int]]) -> IsolatedTimes | None:
        """What the parts of `point` take if nothing slows them down; None where computing was not measured.

        Passes beside which weights are gathered are as long as the graph has them, so that what gathers are known to
        take from computing is not learned once more.
        """
        times = self._times(point) if self._predictable(point) else None
        if times is None:
            return None
        isolated, preset = self._isolated(point, times, sent), self._cluster.preset(point)
        if not (sent and preset.shards_weights):
            return isolated
        gathered, reading = self._gathered(point, sent), np.zeros(1 + REPLICATES)
        known = effects.AS_CO_RUN if gathered.co_run else effects.NONE
        costs = _sharded_costs(point, preset, times, reading, isolated.messages, gathered, sent, known)
        passes = timelines.sharded(costs, preset, prefetch=True, sent=[])
        return replace(isolated, forward=passes.forward, backward=passes.backward, gathered=gathered)

    def _predictable(self, point: Point) -> bool:
        """Whether the model knows what the point's preset does, and where its stages or split layers are."""
        cuts = self._cluster.cuts.get(point.network)
        if self._cluster.staged(point) and not (cuts and point.ranks <= cuts.most_stages):
            return False
        if self._cluster.splits(point) and not (cuts and cuts.split):
            return False
        return self._cluster.preset(point).predictable

    def _isolated(self, point: Point, times: Times, sent: Sequence[Sequence[int]]) -> IsolatedTimes:
        layers, of_layers = self._layers(point), times.layers_forward + times.layers_backward
        backward = times.backward_steps.sum(-1)
        messages = exchanges.of_iteration(
            self._summed(point, self._sizes(point, sent)),
            self._cluster.preset(point),
            point.ranks,
            times.forward + backward + times.update,
        )
        return IsolatedTimes(
            forward=times.forward,
            backward=backward,
            update=times.update,
            matrix=_of_matrices(layers, of_layers),
            fully_connected=_of_fully_connected(layers, of_layers),
            messages=messages,
        )

    def _exchanged(self, point: Point) -> Messages:
        """Where outputs are split: the all-gathers of what layers take, then the reduce-scatters of its gradients."""
        sizes: list[int] = []
        if self._cluster.splits(point):
            sizes = [point.global_batch * size for size in self._cluster.cuts[point.network].gathered.values()]
        gathers, scatters = (self._messages(point, sizes, operation) for operation in (ALL_GATHER, REDUCE_SCATTER))
        return gathers.and_then(scatters)

    def _sizes(self, point: Point, sent: Sequence[Sequence[int]]) -> list[int]:
        """Bytes of each message before compression."""
        of_layer = self._layers(point).gradient_bytes
        return [int(of_layer[list(members)].sum()) for members in sent]

    def _sent(self, point: Point, backward: Ensemble, learned: Effects) -> list[list[int]]:
        """Layers of each message; groups of a fixed size are those that were seen."""
        preset = self._cluster.preset(point)
        if learned.sent is not None and preset.grouping == "fused":
            return learned.sent
        split = self._shares_of_outputs(point)
        sizes = [0 if at in split else size for at, size in enumerate(self._layers(point).gradient_bytes.tolist())]
        return messages(preset, sizes, self._merge(point, sizes, backward), self._layers(point).names)

    def _merge(self, point: Point, gradient_bytes: Sequence[int], backward: Ensemble) -> Merge | None:
        """What merges layers by the α-β model of this point; None where its links are not known."""
        links = self._cluster.links(point)
        fit = links.at(*point.place) if links else None
        if fit is None:
            return None
        whole = sum(gradient_bytes)
        least, most = all_reduce_seconds(fit, point.ranks, [1, whole])[0]
        if not np.isfinite([least, most]).all():
            return None
        ready = taskgraph.gradients_ready(backward)[0]

        def merge(order: Sequence[int]) -> list[list[int]]:
            sizes, complete = ([float(of[layer]) for layer in order] for of in (gradient_bytes, ready))
            return merged(sizes, complete, alpha=float(least), beta=float(most - least) / whole)

        return merge

    def _summed(self, point: Point, sizes: Sequence[int]) -> Messages:
        """What brings gradients of `sizes` bytes together; where nodes have copies of sharded weights, in two steps."""
        preset, (nodes, _) = self._cluster.preset(point), point.place
        if not preset.shards_weights:
            return self._messages(point, sizes)
        shards = self._messages(point, sizes, REDUCE_SCATTER, self._shards(point))
        if preset.sharding == "node" and nodes > 1:
            # Each worker of a node sends its share; together these are the message, over the link of the node.
            return shards + self._messages(point, sizes, ALL_REDUCE, (nodes, 1))
        return shards

    def _gathered(self, point: Point, sent: Sequence[Sequence[int]]) -> Messages:
        """All-gathers of the weights of each message; of shares that were updated, of all in one."""
        preset, sizes = self._cluster.preset(point), self._sizes(point, sent)
        if not preset.gathers or not sent:
            sizes = []
        elif not preset.shards_weights:
            sizes = [sum(sizes)]
        return self._messages(point, sizes, ALL_GATHER, self._shards(point))

    def _shards(self, point: Point) -> Place:
        """Where the ranks are that have all weights together."""
        nodes, workers = point.place
        return (1, workers) if self._cluster.preset(point).sharding == "node" else (nodes, workers)

    def _messages(
        self, point: Point, sizes: Sequence[int], operation: str = ALL_REDUCE, place: Place | None = None
    ) -> Messages:
        """What is measured without training of messages of `sizes` bytes before compression, among all workers or those
        of `place`."""
        links, place = self._cluster.links(point, operation), place or point.place
        in_rounds = rounds(place[0] * place[1])
        if not sizes or links is None:
            unknown = np.full((1 + REPLICATES, len(sizes)), np.nan)
            return Messages(unknown, unknown, in_rounds)
        latency, bandwidth = self._message_parts(links, point, sizes, place)
        co_run = None
        both = (links.while_computing.longer, links.while_computing.work) if links.while_computing else ()
        if both and all(of.at(*place) is not None for of in both):
            co_run = CoRunCost(*(np.add(*self._message_parts(of, point, sizes, place)) for of in both))
        return Messages(latency, latency + bandwidth, in_rounds, co_run)

    def _message_parts(
        self, links: Communication, point: Point, sizes: Sequence[int], place: Place
    ) -> tuple[Ensemble, Ensemble]:
        """Latency and bandwidth of each message, of `sizes` bytes before compression, [1 + REPLICATES, messages]."""
        preset, fit = self._cluster.preset(point), links.at(*place)
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


def _costs(
    point: Point,
    preset: Preset,
    times: Times,
    reading: Ensemble,
    messages: Messages,
    sent: Sequence[Sequence[int]],
    learned: Effects,
    after_update: Ensemble,
    *,
    waits: bool,
) -> taskgraph.Costs:
    """Of the mean worker, and of the slowest one, whom all wait for where one `waits`.

    All parts of a mini-batch but the last are computed before the last one's forward pass; what is sent `after_update`
    counts as a part of that.
    """
    pace = _pace(learned, waits=waits)
    backward = times.backward_steps * learned.backward[:, None]
    earlier = backward.sum(-1) * (1 - 1 / preset.accumulate)
    return taskgraph.Costs(
        read=reading,
        copy=times.host_to_device,
        forward=[pace * (times.forward * learned.forward + earlier) + _taken(point, learned)],
        backward=np.moveaxis(pace[..., None] * backward / preset.accumulate, -1, 0),
        messages=_of_graph(sent, messages, learned),
        update=times.update * learned.update + after_update,
    )


def _sharded_costs(
    point: Point,
    preset: Preset,
    times: Times,
    reading: Ensemble,
    messages: Messages,
    gathered: Messages,
    sent: Sequence[Sequence[int]],
    learned: Effects,
) -> taskgraph.ShardedCosts:
    """The same of sharded weights: of each layer in one pass."""
    pace = _pace(learned, waits=True)[..., None] / preset.accumulate
    blocks = [sorted(members) for members in sent]
    return taskgraph.ShardedCosts(
        read=reading,
        copy=times.host_to_device + _taken(point, learned),
        forward=np.moveaxis(pace * times.forward_steps * learned.forward[:, None], -1, 0),
        backward=np.moveaxis(pace * times.backward_steps * learned.backward[:, None], -1, 0),
        gathers=_of_graph(blocks, gathered, replace(learned, beside=learned.gathering, after=learned.gathering))[::-1],
        reduces=_of_graph(blocks, messages, learned)[::-1],
        update=times.update * learned.update,
    )


def _pace(learned: Effects, *, waits: bool) -> Ensemble:
    """Of the mean worker and of the slowest, [2, 1 + REPLICATES]."""
    return np.stack(np.broadcast_arrays(np.ones(1 + REPLICATES), 1 + learned.straggling if waits else 1.0))


def _taken(point: Point, learned: Effects) -> Ensemble | float:
    """Taking over a mini-batch: reading ahead hides the reading, and not that."""
    return learned.waiting if point.prefetch else 0.0


def _of_graph(sent: Sequence[Sequence[int]], messages: Messages, learned: Effects) -> list[taskgraph.Message]:
    of_messages = zip(sent, *learned.of_messages(messages), strict=True)
    return [taskgraph.Message(tuple(members), *of_message) for members, *of_message in of_messages]


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


def _of_matrices(layers: Layers, seconds: Ensemble) -> Ensemble:
    return np.asarray(seconds[:, np.isin(layers.types, MATRIX_LAYERS)].sum(-1))


def _of_fully_connected(layers: Layers, seconds: Ensemble) -> Ensemble:
    return np.asarray(seconds[:, layers.types == FULLY_CONNECTED].sum(-1))


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


def _latency_share(messages: Messages, seconds: Ensemble, late: Ensemble) -> Ensemble:
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


def _elsewhere(point: Point, ranks: int) -> Point | None:
    """The point of the same curve at another number of workers; None where the mini-batch cannot be split so."""
    nodes, _ = place_of(ranks, point.workers_per_node)
    if point.scaling == "weak":
        return replace(point, nodes=nodes, ranks=ranks, global_batch=point.worker_batch * ranks)
    if point.global_batch % ranks:
        return None
    return replace(point, nodes=nodes, ranks=ranks, worker_batch=point.global_batch // ranks)
