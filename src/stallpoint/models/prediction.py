"""Iterations as the DAG model predicts them, from layer times, the communication fit and the storage's records.

A curve is predicted by one model at all node counts, from all cells. Beside it every measured point is predicted
without its own cells: errors are those of such predictions. Intervals say what the uncertainty of these inputs does;
whether the model itself holds is what the comparison with measured cells shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, Protocol, TypeAlias, cast

import numpy as np
import pandas as pd

from stallpoint.merging import merged
from stallpoint.messages import Merge, message_bytes, messages
from stallpoint.models import contention, taskgraph
from stallpoint.models.communication import (
    Communication,
    Scheme,
    all_reduce_parts,
    all_reduce_seconds,
    scheme_of,
    traffic,
)
from stallpoint.models.compute import Layers, Times
from stallpoint.models.contention import Alone, Effects, Messages, Together
from stallpoint.models.link import Traffic
from stallpoint.models.measured import FULLY_CONNECTED, MATRIX_LAYERS, SERIES, Measured, Point, kept
from stallpoint.models.statistics import REPLICATES, Ensemble, columns, groups
from stallpoint.presets import Preset

SCALINGS = ("strong", "weak")
_PREDICTED = ("data", "forward", "backward", "communication", "exposed_communication", "update", "straggling")
_MEASURED = {"data": "data_wait"}

Basis: TypeAlias = Literal["measured", "predicted"]


@dataclass(frozen=True)
class Isolated:
    """Computing at the b of a point, on one rank and without communication; ensembles, s."""

    forward: Ensemble
    backward: Ensemble
    matrix: Ensemble
    """Forward and backward of the layers in `MATRIX_LAYERS`."""
    fully_connected: Ensemble
    """Of the fully-connected ones among them."""
    backward_over_forward: Ensemble
    """How much more other ranks slow down the backward than the forward pass, beside which nothing is sent."""
    overlaps: bool
    """Whether messages go beside the backward pass."""


@dataclass(frozen=True)
class Predicted:
    """A point as predicted; not a number where a part of the model was not measured."""

    point: Point
    equation: str
    compute_source: str
    times: Mapping[str, Ensemble]
    """Seconds: data (t_io), host_to_device, forward, backward, communication, exposed_communication, update,
    iteration_time; matrix and fully-connected, as in `Measured.times`. And ``latency_share``: what of the exposed
    communication is latency (of all communication, where none is exposed); ``isolated_communication``: what the
    messages take on idle workers, s."""
    layers: pd.DataFrame | None
    """The columns of layer_predictions for each layer, without uncertainty."""
    left_out: frozenset[str]
    """Cells of this point that calibrated nothing; empty where none of the point's cells did."""
    isolated: Isolated | None = None
    """None where computing at this b is not known."""


@dataclass(frozen=True)
class ScalingCurve:
    """One scaling curve: points measured and predicted, by node count; the fewest nodes are measured."""

    measured: Mapping[int, Measured]
    predicted: Mapping[int, Predicted]
    """By one model for all node counts, from all cells."""
    held_out: Mapping[int, Predicted] = field(default_factory=dict)
    """Measured points, each predicted without its own cells."""

    @property
    def base(self) -> int:
        """The fewest nodes, to which speedups refer."""
        return min(self.measured)

    @property
    def strong(self) -> bool:
        """Whether the global mini-batch is split (strong scaling) or grows (weak)."""
        return self.measured[self.base].point.scaling == "strong"

    @property
    def known(self) -> list[int]:
        """Node counts whose iteration time is known, rising; none where that on the fewest nodes is not."""
        if not _known(self.measured[self.base]):
            return []
        usable = _known(self.predicted[self.base])
        predicted = (nodes for nodes, point in self.predicted.items() if usable and _known(point))
        return sorted({*(nodes for nodes, point in self.measured.items() if _known(point)), *predicted})

    def basis(self, nodes: int) -> Basis:
        """``measured`` where `nodes` were measured, else ``predicted``."""
        return "measured" if nodes in self.measured and _known(self.measured[nodes]) else "predicted"

    def at(self, nodes: int) -> Measured | Predicted:
        """The point at `nodes`, measured where it was."""
        return self.measured[nodes] if self.basis(nodes) == "measured" else self.predicted[nodes]

    def speedup(self, nodes: int, basis: str) -> Ensemble:
        """Throughput at `nodes` over that at the fewest; `basis` is ``measured`` or ``predicted``."""
        points: Mapping[int, Measured | Predicted] = self.measured if basis == "measured" else self.predicted
        here, base = points[nodes], points[self.base]
        larger = here.point.global_batch / base.point.global_batch
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(larger * base.times["iteration_time"] / here.times["iteration_time"])


def _known(point: Measured | Predicted) -> bool:
    seconds = point.times["iteration_time"]
    return bool((np.isfinite(seconds) & (seconds > 0)).all())


class LayerTimes(Protocol):
    """Computing times at any b; `stallpoint.models.compute.Compute` has those measured."""

    @property
    def layers(self) -> Mapping[str, Layers]:
        """Layers by network."""
        ...

    def times(
        self, network: str, hardware: str, batch: int, *, prefetch: int, without: Collection[str] = ()
    ) -> Times | None:
        """As `Compute.times`."""
        ...


class DataTimes(Protocol):
    """t_io at any b; `stallpoint.models.data.TrainingData` has what was measured."""

    def seconds(self, measured: Measured, ranks: int, batch: int, *, without: Collection[str] = ()) -> Ensemble:
        """As `TrainingData.seconds`."""
        ...

    def beside_gradients(
        self, measured: Measured, alone: Ensemble, ranks_per_node: int, batch: int, traffic: Traffic | None
    ) -> tuple[Ensemble, Ensemble | float]:
        """As `TrainingData.beside_gradients`."""
        ...


class LearnedEffects(Protocol):
    """What training at a point takes beyond its parts alone; `stallpoint.models.contention.Contention` learns it."""

    def __call__(self, point: Point, held_out: bool = False) -> Effects:
        """As `Contention.effects`."""
        ...


def no_effects(point: Point, held_out: bool = False) -> Effects:
    """Nothing is known to take longer in training."""
    return contention.NONE


class Model:
    """The DAG model with everything that was measured for it."""

    def __init__(
        self,
        compute: LayerTimes,
        communication: Mapping[Scheme, Communication],
        data: DataTimes,
        presets: Mapping[str, Preset],
        effects: LearnedEffects = no_effects,
    ) -> None:
        """`effects` says what training at a point takes beyond its parts alone."""
        self._compute, self._communication, self._data, self._presets = compute, communication, data, presets
        self._effects = effects

    def curves(self, points: Sequence[Measured], nodes: Iterable[int], *, held_out: bool = True) -> list[ScalingCurve]:
        """Every scaling curve among `points`, predicted at its own node counts and at `nodes` beyond the fewest.

        Strong scaling leaves out node counts that do not divide the global mini-batch. With `held_out` each measured
        point is also predicted without its own cells.
        """
        series: dict[tuple[str | int, ...], dict[int, Measured]] = {}
        for measured in [*self._bases(points), *points]:
            if measured.point.scaling in SCALINGS:
                series.setdefault(measured.point.series, {})[measured.point.nodes] = measured
        return [self._curve(dict(sorted(at.items())), nodes, held_out) for at in series.values()]

    def _bases(self, points: Sequence[Measured]) -> Iterator[Measured]:
        """Of presets that do not communicate the points on one rank, where others were measured: all do the same."""
        scaling = [one for one in points if one.point.scaling in SCALINGS]
        quiet = {one.point.series: one.point.sync for one in scaling if not self._presets[one.point.sync].communicates}
        for one, (series, sync) in product(scaling, quiet.items()):
            twin = replace(one.point, sync=sync)
            alike = self._presets[sync].device_prefetch == self._presets[one.point.sync].device_prefetch
            if one.point.ranks == 1 and alike and twin.series == series:
                yield replace(one, point=twin)

    def _curve(self, measured: dict[int, Measured], nodes: Iterable[int], held_out: bool) -> ScalingCurve:
        base = min(measured)
        wanted = sorted({*measured, *(n for n in nodes if n > base)})
        points = {n: measured[n].point if n in measured else _elsewhere(measured[base].point, n) for n in wanted}
        predicted = {n: self._predict(point, measured) for n, point in points.items() if point is not None}
        without = {n: self._hold_out(here, measured) for n, here in measured.items()} if held_out else {}
        return ScalingCurve(measured, predicted, without)

    def _predict(self, point: Point, curve: Mapping[int, Measured]) -> Predicted:
        """Predict from all cells."""
        return self._predict_without(point, curve, frozenset(), held_out=False)

    def _hold_out(self, here: Measured, curve: Mapping[int, Measured]) -> Predicted:
        """Predict from other cells; on one rank without any, from other repeats of the same cell."""
        point = here.point
        own = frozenset(here.cells) if point.ranks == 1 else frozenset()
        prediction = self._predict_without(point, curve, own, held_out=True)
        if len(own) < 2 or not np.isnan(prediction.times["iteration_time"]).any():
            return prediction
        first = frozenset({min(own)})
        prediction = self._predict_without(point, curve, first, held_out=True)
        return replace(prediction, compute_source=f"{prediction.compute_source}, other repeats", left_out=first)

    def _predict_without(
        self, point: Point, curve: Mapping[int, Measured], cells: frozenset[str], *, held_out: bool
    ) -> Predicted:
        times = self._compute.times(
            point.network, point.hardware, point.worker_batch, prefetch=point.prefetch, without=cells
        )
        base = curve[min(curve)]
        t_io = self._data.seconds(base, point.ranks, point.worker_batch, without=cells) + np.zeros(1 + REPLICATES)
        if times is None:
            unknown = np.full(1 + REPLICATES, np.nan)
            equation = taskgraph.equation(self._presets[point.sync], prefetch=point.prefetch > 0)
            more = ("host_to_device", "matrix", FULLY_CONNECTED, "iteration_time", "latency_share")
            names = (*_PREDICTED, *more, "isolated_communication")
            return Predicted(point, equation, "not measured", dict.fromkeys(names, unknown), None, frozenset())
        effects = self._effects(point, held_out) if point.ranks > 1 else contention.NONE
        return self._assemble(point, base, times, t_io, effects)

    def _assemble(self, point: Point, base: Measured, times: Times, t_io: Ensemble, effects: Effects) -> Predicted:
        layers = self._compute.layers[point.network]
        preset = self._presets[point.sync]
        backward = times.backward_steps * effects.backward[:, None]
        whole, forward = backward.sum(-1), times.forward * effects.forward
        update = times.update * effects.update
        sent = self._sent(point, backward, effects) if point.ranks > 1 else []
        sizes = [int(layers.gradient_bytes[members].sum()) for members in sent]
        t_io, slower = self._beside_gradients(point, base, preset, sizes, t_io)
        isolated_messages = self._messages(point, sizes)
        messages = isolated_messages.slowed(np.reshape(slower, (-1, 1)))
        # Reading ahead hides the reading, not that a mini-batch is taken over.
        taken = effects.waiting if point.prefetch else 0.0
        # The mean worker, and the slowest one, whom all wait for that send anything.
        slowest = 1 + effects.straggling if sent else 1.0
        pace = np.stack(np.broadcast_arrays(np.ones(1 + REPLICATES), slowest))
        costs = taskgraph.Costs(
            read=t_io,
            copy=times.host_to_device,
            forward=[pace * forward + taken],
            backward=np.moveaxis(pace[..., None] * backward, -1, 0),
            messages=[
                taskgraph.Message(tuple(members), *of_message)
                for members, *of_message in zip(sent, *effects.of_messages(messages, point.ranks), strict=True)
            ],
            update=update,
        )
        schedule = taskgraph.schedule(taskgraph.iteration_tasks(costs, preset, prefetch=point.prefetch > 0))
        seconds = schedule.end["update of 1"] - schedule.end["update of 0"]
        begin = schedule.start[f"backward {len(layers.names)} of 1"][0]
        ended = schedule.end["backward 1 of 1"][0] - begin
        start, end = (
            np.stack([at[f"{message.name} of 1"][0] for message in costs.messages], axis=-1) - begin[:, None]
            if sent
            else np.empty((1 + REPLICATES, 0))
            for at in (schedule.start, schedule.end)
        )
        seconds_sent = end - start
        exposed = np.maximum(end[..., -1] - ended, 0.0) if sent else np.zeros(1 + REPLICATES)
        slowed = effects.backward * np.divide(ended, whole, out=np.ones_like(whole), where=whole > 0)
        of_layers = times.layers_forward * effects.forward[:, None] + times.layers_backward * slowed[:, None]
        matrix, fully_connected = np.isin(layers.types, MATRIX_LAYERS), layers.types == FULLY_CONNECTED
        alone = times.layers_forward + times.layers_backward
        isolated = Isolated(
            times.forward,
            times.backward_steps.sum(-1),
            alone[:, matrix].sum(-1),
            alone[:, fully_connected].sum(-1),
            effects.backward / effects.forward,
            bool(sent) and preset.overlaps,
        )
        parts = {
            "data": t_io,
            "host_to_device": times.host_to_device,
            "forward": forward,
            "backward": ended,
            "communication": seconds_sent.sum(-1),
            "exposed_communication": exposed,
            "update": update,
            "straggling": seconds[1] - seconds[0],
            "iteration_time": seconds[1],
            "matrix": of_layers[:, matrix].sum(-1),
            FULLY_CONNECTED: of_layers[:, fully_connected].sum(-1),
            "latency_share": _latency_share(messages, seconds_sent, end - ended[:, None]),
            "isolated_communication": isolated_messages.alone.sum(-1),
        }
        of_layer = {layer: message for message, members in enumerate(sent) for layer in members}
        table = pd.DataFrame({
            "layer_index": range(len(layers.names)),
            "layer": layers.names,
            "layer_type": layers.types,
            "gradient_bytes": layers.gradient_bytes,
            "predicted_forward": times.layers_forward[0] * effects.forward[0],
            "predicted_backward": times.layers_backward[0] * slowed[0],
            **{
                f"predicted_all_reduce_{side}": [
                    at[0, of_layer[layer]] if layer in of_layer else np.nan for layer in range(len(layers.names))
                ]
                for side, at in (("start", start), ("end", end))
            },
        })  # fmt: skip
        equation = taskgraph.equation(preset, prefetch=point.prefetch > 0)
        return Predicted(point, equation, times.source, parts, table, frozenset(), isolated)

    def _beside_gradients(
        self, point: Point, base: Measured, preset: Preset, sizes: Sequence[int], t_io: Ensemble
    ) -> tuple[Ensemble, Ensemble | float]:
        """t_io, and the factor on messages, when data and gradients share a link."""
        links = self._links(point)
        if point.nodes == 1 or not sizes or links is None:
            return t_io, 1.0
        sent = traffic(links.over_nodes, point.ranks, message_bytes(preset, sizes))
        return self._data.beside_gradients(base, t_io, point.ranks // point.nodes, point.worker_batch, sent)

    def alone(self, point: Point, sent: Sequence[Sequence[int]]) -> Alone | None:
        """What the parts of `point` take if nothing slows them down; None where computing was not measured."""
        times = self._compute.times(point.network, point.hardware, point.worker_batch, prefetch=point.prefetch)
        if times is None:
            return None
        of_layer = self._compute.layers[point.network].gradient_bytes
        sizes = [int(of_layer[list(members)].sum()) for members in sent]
        return Alone(times.forward, times.backward_steps.sum(-1), times.update, self._messages(point, sizes))

    def _sent(self, point: Point, backward: Ensemble, effects: Effects) -> list[list[int]]:
        """Layers of each message; groups of a fixed size are those that were seen."""
        preset = self._presets[point.sync]
        if effects.sent is not None and preset.grouping == "fused":
            return effects.sent
        sizes = self._compute.layers[point.network].gradient_bytes.tolist()
        return messages(preset, sizes, self._merge(point, sizes, backward))

    def _merge(self, point: Point, gradient_bytes: Sequence[int], backward: Ensemble) -> Merge | None:
        """What merges layers by the α-β model of this point; None where its links are not known."""
        links = self._links(point)
        if links is None:
            return None
        whole = sum(gradient_bytes)
        least, most = all_reduce_seconds(links.at(point.nodes), point.ranks, [1, whole])[0]
        if not np.isfinite([least, most]).all():
            return None
        ready = taskgraph.gradients_ready(backward)[0]

        def merge(order: Sequence[int]) -> list[list[int]]:
            sizes, complete = ([float(of[layer]) for layer in order] for of in (gradient_bytes, ready))
            return merged(sizes, complete, alpha=float(least), beta=float(most - least) / whole)

        return merge

    def _links(self, point: Point) -> Communication | None:
        """What is known of all-reduces of the point's scheme on its hardware; None where none was measured."""
        return self._communication.get(scheme_of(point.hardware, self._presets[point.sync]))

    def _messages(self, point: Point, sizes: Sequence[int]) -> Messages:
        """What is measured without training of messages of `sizes` bytes before compression."""
        links, preset = self._links(point), self._presets[point.sync]
        if not sizes or links is None:
            unknown = np.full((1 + REPLICATES, len(sizes)), np.nan)
            return Messages(unknown, unknown)
        latency, bandwidth = _message_parts(links, point, preset, sizes)
        together = None
        if links.while_computing:
            both = links.while_computing.longer, links.while_computing.work
            together = Together(*(np.add(*_message_parts(of, point, preset, sizes)) for of in both))
        return Messages(latency, latency + bandwidth, together)


def _message_parts(
    links: Communication, point: Point, preset: Preset, sizes: Sequence[int]
) -> tuple[Ensemble, Ensemble]:
    """Latency and bandwidth of each message, of `sizes` bytes before compression, [1 + REPLICATES, messages]."""
    fit = links.at(point.nodes)
    whole = message_bytes(preset, sizes)
    if not preset.segment_bytes:
        return all_reduce_parts(fit, point.ranks, whole)
    segments, rest = np.divmod(whole, preset.segment_bytes)
    segment, last = (all_reduce_parts(fit, point.ranks, size) for size in ([preset.segment_bytes], rest))
    latency, bandwidth = (segments * of_one + of_rest for of_one, of_rest in zip(segment, last, strict=True))
    return latency, bandwidth


def _latency_share(messages: Messages, seconds: Ensemble, late: Ensemble) -> Ensemble:
    """What of the exposed communication is latency, each message by the part of it that is exposed.

    `seconds` is what the messages take in training. `late` says how long after the backward pass each message ends:
    what is exposed of it lies before that end. Nothing communicated has no latency.
    """
    exposed = np.clip(late, 0.0, seconds)
    counted = np.where(exposed.sum(-1, keepdims=True) > 0, exposed, seconds)
    of_message = np.divide(
        messages.latency, messages.alone, out=np.zeros_like(messages.alone), where=messages.alone != 0
    )
    total = counted.sum(-1)
    share: Ensemble = np.divide((counted * of_message).sum(-1), total, out=np.zeros_like(total), where=total != 0)
    return share


def _elsewhere(point: Point, nodes: int) -> Point | None:
    """The point of the same series at another node count; None where the mini-batch cannot be split so."""
    ranks = nodes * point.ranks // point.nodes
    if point.scaling == "weak":
        return replace(point, nodes=nodes, ranks=ranks, global_batch=point.worker_batch * ranks)
    if point.global_batch % ranks:
        return None
    return replace(point, nodes=nodes, ranks=ranks, worker_batch=point.global_batch // ranks)


def predictions(curves: Iterable[ScalingCurve], steps: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of the predictions table; `steps` as `measured.over_ranks` gives them."""
    return [_row(curve, nodes, steps) for curve in curves for nodes in curve.predicted]


def _row(curve: ScalingCurve, nodes: int, steps: pd.DataFrame) -> dict[str, object]:
    predicted, measured = curve.predicted[nodes], curve.measured.get(nodes)
    seconds = predicted.times["iteration_time"]
    unknown = np.full(1 + REPLICATES, np.nan)
    row: dict[str, Any] = {
        **predicted.point.labels("ranks", "global_batch", "worker_batch"),
        "equation": predicted.equation,
        "extrapolated": measured is None,
        "compute_source": predicted.compute_source,
        **{f"predicted_{name}": float(predicted.times[name][0]) for name in _PREDICTED},
        **columns("predicted_iteration", seconds),
        **columns("predicted_speedup", curve.speedup(nodes, "predicted")),
    }
    for name in _PREDICTED:
        column = _MEASURED.get(name, name)
        if name != "straggling":  # as measured it is what is left of the iteration: see critical_path
            row[f"measured_{name}"] = float(measured.times[column][0]) if measured else np.nan
    row |= columns("measured_iteration", measured.times["iteration_time"] if measured else unknown)
    row |= columns("measured_speedup", curve.speedup(nodes, "measured") if measured else unknown)
    held_out = curve.held_out.get(nodes)
    row |= columns("held_out_iteration", held_out.times["iteration_time"] if held_out else unknown)
    reference = _reference(held_out, measured, steps)
    row["error"] = row["held_out_iteration"] / reference - 1 if reference > 0 else np.nan
    return row


def _reference(predicted: Predicted | None, measured: Measured | None, steps: pd.DataFrame) -> float:
    """Measured iteration time to compare with: that of the cells that did not take part in the prediction."""
    if measured is None or predicted is None:
        return float("nan")
    if not predicted.left_out:
        return float(measured.times["iteration_time"][0])
    return float(steps.loc[steps["cell"].isin(list(predicted.left_out)), "iteration_time"].mean())


def layer_predictions(
    curves: Iterable[ScalingCurve], iterations: pd.DataFrame, layers: pd.DataFrame
) -> list[dict[str, object]]:
    """Rows of the layer_predictions table: every layer of every measured point."""
    measured = _measured_layers(iterations, layers)
    return [row for curve in curves for row in _layer_rows(curve, measured)]


def _layer_rows(curve: ScalingCurve, measured: Mapping[Any, pd.DataFrame]) -> Iterator[dict[str, object]]:
    for predicted in curve.held_out.values():
        key = (*predicted.point.series, predicted.point.nodes)
        if predicted.layers is not None and key in measured:
            table = predicted.layers.join(measured[key], on="layer_index").assign(**predicted.point.labels("ranks"))
            yield from cast("list[dict[str, object]]", table.to_dict("records"))


def _measured_layers(iterations: pd.DataFrame, layers: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """Medians of rank 0 for each layer of each point; all-reduces since the start of the backward pass."""
    steps = kept(iterations)
    begin = steps[["data_wait", "host_to_device", "forward"]].sum(axis=1).rename("begin")
    steps = pd.concat([steps[["cell", "rank", "iteration"]], begin], axis=1)
    rows = kept(layers)
    rows = rows[(rows["rank"] == 0) & rows["scaling"].isin(SCALINGS)].merge(steps, on=["cell", "rank", "iteration"])
    key = [*SERIES, "nodes"]
    values = rows[[*key, "layer_index"]].assign(
        measured_forward=rows["forward"],
        measured_backward=rows["backward"],
        measured_all_reduce_start=rows["all_reduce_start"] - rows["begin"],
        measured_all_reduce_end=rows["all_reduce_end"] - rows["begin"],
    )
    medians = values.groupby([*key, "layer_index"]).median().reset_index()
    return {point: rows.set_index("layer_index").drop(columns=key) for point, rows in groups(medians, key)}
