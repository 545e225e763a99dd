"""Training iterations, with the times of their phases and layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from stallpoint.errors import CannotRun
from stallpoint.measure import agreement, resident, synchronisation
from stallpoint.measure.clock import Mark, clock_for, host_mark, union_length
from stallpoint.measure.device import device_of
from stallpoint.measure.machine.peak_memory import PeakMemory
from stallpoint.measure.machine.sensors import Sensors, between
from stallpoint.measure.mpi import MPI
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.synchronisation import Gathered, Received, Transfer, Worker
from stallpoint.measure.synchronisation.delayed import Delays
from stallpoint.measure.synchronisation.interface import parameters
from stallpoint.measure.training import allocator
from stallpoint.measure.training.gradient_norms import GradientNorms
from stallpoint.measure.training.input_pipeline import (
    DevicePrefetch,
    FixedMiniBatch,
    InputPipeline,
    MiniBatch,
    NothingToRead,
)
from stallpoint.measure.training.layer_timing import Instrumentation, LayerTimer
from stallpoint.measure.training.optimisers import Adagrad, Optimiser, Sgd, local, restore
from stallpoint.measure.training.passes import Ends, Passes, Recomputation
from stallpoint.measure.training.precision import forward_context, loss_scale
from stallpoint.measure.world import World
from stallpoint.networks import network_of
from stallpoint.networks.inputs import Inputs
from stallpoint.networks.layers import layers
from stallpoint.records.tables import INSTRUMENTATION, ITERATIONS, LAYERS, PEAK_MEMORY, PHASES, STALENESS
from stallpoint.storage import Storage
from stallpoint.storage.tensors import OneBatch
from stallpoint.strategies.families.servers_family import server_optimiser
from stallpoint.strategies.options import DelayOptions
from stallpoint.strategies.presets import Preset, preset_from
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.text import Progress


@dataclass(frozen=True)
class Iteration:
    """Measurements of one iteration on one rank: columns of `ITERATIONS`, and columns of `LAYERS` as lists."""

    phases: dict[str, float]
    layers: dict[str, Sequence[Any]]
    marks: int
    """See `LayerTimes.marks`."""


@dataclass(frozen=True)
class TrainingChange:
    """A change of training that leaves out a part of each step, to measure the part's cost."""

    empty_messages: bool = False
    """Whether messages carry no gradients."""
    pipeline: type[InputPipeline] = InputPipeline
    update: bool = True
    """Whether weights are updated."""


UNCHANGED = TrainingChange()


class Trainer:
    """One worker's training of `network`, which is changed in place; a context manager.

    All ranks must have the same weights. Gradients are synchronised by `preset`. A preset that plans its messages does
    so after the first `warmup` iterations. `per_node` consecutive ranks share a node. `change` excludes a part of
    training. `optimiser` is called like `Sgd`. `norms` collects norms of the gradients. `division` has the positions of
    layers that are split over ranks or begin a pipeline stage. In a pipeline only the first rank needs mini-batches.
    """

    def __init__(
        self,
        network: nn.Module,
        world: World,
        preset: Preset,
        device: torch.device,
        *,
        precision: str = "float32",
        warmup: int = 1,
        per_node: int = 1,
        change: TrainingChange = UNCHANGED,
        optimiser: Callable[..., Optimiser] = Sgd,
        norms: GradientNorms | None = None,
        division: Sequence[int] = (),
    ) -> None:
        self._network = network.to(device)
        self._world = world
        self._device = device
        self._clock = clock_for(device)
        scale = loss_scale(precision)

        def for_server(parameters: Sequence[nn.Parameter]) -> Optimiser:
            if server_optimiser(preset) == "adagrad":
                # This function uses only what is set above: the server may call it before the rest is set.
                return Adagrad(parameters, optimiser([], loss_scale=scale).step_size, loss_scale=scale)
            return optimiser(parameters, loss_scale=scale)

        worker = Worker(
            self._network, layers(self._network), world, self._clock, device, self._step_of, for_server, self._waiting,
            warmup=warmup, per_node=per_node, division=division, empty_messages=change.empty_messages,
        )  # fmt: skip
        self._part = part = synchronisation.begin(preset, worker)
        self._synchronisation, self._network, self._layers = part.synchronisation, part.network, part.layers
        self._parameters = parameters(part.trained)
        own = preset.own
        self._delays = Delays(self._layers, own.blocks) if isinstance(own, DelayOptions) and own.delays else None
        # Recomputation is set up before `LayerTimer`, so that it counts for the layers' backward passes.
        self._recomputation = Recomputation(self._network, self._layers) if preset.activation_checkpointing else None
        self._optimiser = optimiser(self._synchronisation.share(self._parameters), loss_scale=scale)
        self._update = change.update
        self._norms = norms
        ready = self._ready if norms else self._synchronisation.ready
        self._timer = LayerTimer(part.trained, self._clock, ready, part.layers)
        in_precision = forward_context(precision, device)
        self._passes = Passes(self._clock, self._timer, in_precision, scale, world.size, preset.accumulate)

    @property
    def copied(self) -> bool:
        """Whether the trained network is a copy of the given one."""
        return self._part.copied

    def begin(self, step: int) -> None:
        """Set the number of the next step, from 0; without a call, every step counts as the first."""
        self._optimiser.begin(step)

    def step(self, next_batch: Callable[[], MiniBatch]) -> Iteration:
        """Do one iteration, from waiting for its mini-batch to the updated weights."""
        mark = self._clock.mark
        self._clock.start()
        batch = next_batch()
        load_end = mark()
        inputs, labels = (part.to(self._device, non_blocking=True) for part in (batch.inputs, batch.labels))
        copy_end = mark()
        losses, passes = self._synchronisation.passes(self._passes, inputs, labels)
        self._timer.check_gradients()
        self._synchronisation.finish()
        sum_end = mark()
        self._timer.passed(*passes[-1])
        if self._norms:
            self._norms.summed()
        if self._update and not self._synchronisation.updates:
            if self._delays:
                self._delays.swap()
            self._synchronisation.update(self._optimiser.step, self._parameters)
        update_end = mark()
        self._synchronisation.updated()
        exchange_end = mark()
        self._clock.wait()

        times = self._timer.times()
        transfers, gathered = self._synchronisation.transfers(), self._synchronisation.gathered()
        received = self._synchronisation.received()
        self._synchronisation.clear()
        self._synchronisation.learn(times.gradient_ready)
        phases = self._phases([load_end, copy_end], passes, [sum_end, update_end, exchange_end], times.waits, received)
        all_transfers: list[Transfer | Gathered | Received] = [
            *transfers.values(),
            *chain.from_iterable(gathered.values()),
            *received,
        ]
        columns = self._phase_columns(batch, losses, phases, all_transfers)
        return Iteration(columns, times.columns(transfers, gathered), times.marks)

    def _phases(
        self,
        starts: list[Mark],
        passes: list[Ends],
        stops: list[Mark],
        waits: Sequence[tuple[float, float]],
        received: Sequence[Received],
    ) -> dict[str, float]:
        """Return the time of each of `PHASES`, s. A wait for a collective, in any phase, is exposed communication.

        A wait for another pipeline stage is in no phase: it is bubble, the time of an iteration outside all phases.
        """
        begins, pass_ends, ends = ([self._clock.seconds(at) for at in of] for of in (starts, [*chain(*passes)], stops))

        def wait_within(start: float, stop: float) -> float:
            return sum(until - since for since, until in waits if start <= since < stop)

        phases = dict.fromkeys(PHASES, 0.0)
        phases["data_wait"], phases["host_to_device"] = begins[0], begins[1] - begins[0]
        for index, (start, stop) in enumerate(pairwise([begins[1], *pass_ends])):
            phases["backward" if index % 2 else "forward"] += stop - start - wait_within(start, stop)
        phases["update"] = ends[1] - ends[0] - wait_within(ends[0], ends[1])
        exchange = ends[2] - ends[1]  # weights are exchanged after the update
        bubble = sum(one.start - one.since for one in received)
        phases["exposed_communication"] = ends[0] - pass_ends[-1] + wait_within(begins[1], ends[1]) + exchange - bubble
        return phases | {"iteration_time": ends[2]}

    @property
    def tensors(self) -> dict[str, Iterable[torch.Tensor]]:
        """Return the tensors of training by kind. Gradients are freed: parameters of the same size stand for them."""
        return {
            "weights": map(local, (*self._network.parameters(), *self._network.buffers())),
            "gradients": map(local, self._parameters),
            "optimiser": self._optimiser.state,
        }

    @contextmanager
    def for_evaluation(self) -> Iterator[nn.Module]:
        """Yield the network for an evaluation: in evaluation mode, without gradients, with the trained weights."""
        modes = [(module, module.training) for module in self._network.modules()]
        self._network.eval()
        with torch.no_grad(), self._passes.in_precision, self._synchronisation.consensus():
            yield self._network
        for module, training in modes:
            module.training = training
        self._timer.forget()

    def state(self) -> dict[str, Any]:
        """Return the worker's state without the network's weights, for a checkpoint."""
        return {
            "optimiser": [values.to("cpu", copy=True) for values in self._optimiser.state],
            "synchronisation": self._synchronisation.state(),
            "delayed": self._delays.state if self._delays else [],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        restore(self._optimiser, state["optimiser"])
        self._synchronisation.restore(state["synchronisation"])
        if self._delays:
            self._delays.restore(state["delayed"])

    def staleness(self) -> dict[str, Sequence[int]]:
        """Return columns of `tables.STALENESS` for the updates of this rank's server."""
        rows = self._synchronisation.staleness()
        columns = {name: [row[index] for row in rows] for index, name in enumerate(("update", "worker", "staleness"))}
        return {"server": [self._world.rank] * len(rows), **columns}

    def check_weights(self) -> None:
        """Raise `ArithmeticError` unless all ranks hold the same weights, as after synchronous training.

        Up to 1000 values of each parameter are compared, with a tolerance, as CPUs may round differently. Sharded
        weights are compared among ranks with the same shard; layers split over ranks are not compared.
        """
        values = [local(weights.detach()).flatten() for weights in self._part.shared]
        smallest = torch.cat([part[:: 1 + len(part) // 1000] for part in values]).cpu().numpy()
        largest = smallest.copy()
        comm = self._world.comm.Split(self._world.rank % self._synchronisation.shards, self._world.rank)
        comm.Allreduce(MPI.IN_PLACE, smallest, MPI.MIN)
        comm.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
        comm.Free()
        if not np.allclose(smallest, largest, rtol=1e-4, atol=1e-8):
            raise ArithmeticError("the ranks' weights differ after training: not all gradients were summed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # After an error a rank must not wait: other ranks may have ended, and it would wait forever.
        self._synchronisation.close(wait=error is None)
        self._timer.remove()
        if self._recomputation:
            self._recomputation.remove()
        for weights in self._parameters:
            weights.grad = None

    def _ready(self, layer: int) -> None:
        assert self._norms
        self._norms.ready(layer)
        self._synchronisation.ready(layer)

    def _step_of(self, parameters: list[nn.Parameter]) -> None:
        self._optimiser.step(parameters)

    def _waiting(self, begins: bool) -> None:
        self._timer.waiting(begins)

    def _phase_columns(
        self,
        batch: MiniBatch,
        losses: Sequence[torch.Tensor],
        phases: dict[str, float],
        transfers: Sequence[Transfer | Gathered | Received],
    ) -> dict[str, float]:
        return {
            **phases,
            "read": batch.read,
            "decode": batch.decode,
            "communication": union_length((one.start, one.end) for one in transfers),
            "loss": sum(loss.item() for loss in losses) / len(losses),
        }


def measure(cell: TrainCell, world: World, recorder: Recorder) -> None:
    """Train for ``cell.warmup + cell.iterations`` iterations and record each of them, with its layers."""
    instrumentation = Instrumentation()
    for number_columns, iteration, sensor_columns in iterations(cell, world, recorder):
        recorder.add(ITERATIONS, **number_columns, **iteration.phases, **sensor_columns)
        recorder.add(LAYERS, **{name: number_columns[name] for name in ("iteration", "warmup")}, **iteration.layers)
        if not number_columns["warmup"]:
            instrumentation.add(iteration.phases, iteration.layers, iteration.marks)
    recorder.add(INSTRUMENTATION, **instrumentation.row(device_of(cell)))


def timed_preset(cell: TrainCell) -> Preset:
    """Return the cell's preset without the warm-up of sparse gradients, which would last longer than a visit."""
    return replace(preset_from(cell.preset), sparse_warmup=0)


def iterations(
    cell: TrainCell, world: World, recorder: Recorder, change: TrainingChange = UNCHANGED
) -> Iterator[tuple[dict[str, Any], Iteration, dict[str, Any]]]:
    """Train with `change`. For each iteration yield columns (number, warm-up, start), measurements, sensor readings.

    Each visit begins with the same weights. It reads the samples that follow the samples of the previous visit. Raises
    `CannotRun` if a loss is not finite, and `ArithmeticError` if synchronous ranks end with different weights: in both
    cases the times are worthless.
    """
    allocator.keep_freed()
    network = network_of(cell.network, cell.own_network)
    preset, device = timed_preset(cell), device_of(cell)
    torch.manual_seed(cell.seed + world.rank)  # each worker has a seed of its own, so that dropout differs
    agreement.check(cell, world, network, device)
    count = cell.warmup + cell.iterations
    first = (recorder.visit - 1) * count
    division = preset.strategy.division(network, world.size) if world.size > 1 else ()
    first_reads = preset.strategy.first_reads and world.size > 1
    trained = resident.network(network, cell.seed, device)
    peak = PeakMemory(device)
    with (
        _pipeline(change.pipeline, cell, world, network.takes, first, device, first_reads=first_reads) as pipeline,
        on_device(pipeline, use_prefetch=preset.device_prefetch and cell.prefetch > 0, device=device) as next_batch,
        Trainer(
            trained, world, preset, device,
            precision=cell.precision, warmup=cell.warmup, per_node=cell.workers_per_node, change=change,
            division=division,
        ) as trainer,
        Sensors(gpu=device.index, others=not cell.shared_cpus) as sensors,
    ):  # fmt: skip
        recorder.excluded_samples = pipeline.excluded
        progress = Progress("iteration", [1] * count, silent=world.rank > 0)
        world.comm.Barrier()
        recorder.begin()
        begin_mark = host_mark()
        for iteration in range(count):
            start = (host_mark() - begin_mark) * 1e-9
            first_reading = sensors.read()
            step = trainer.step(next_batch)
            sensor_columns = between(first_reading, sensors.read())
            recorder.measuring += step.phases["iteration_time"]
            number_columns = {"iteration": first + iteration, "warmup": iteration < cell.warmup, "start": start}
            yield number_columns, step, sensor_columns
            if not math.isfinite(step.phases["loss"]):
                raise CannotRun(f"the loss of iteration {iteration} is {step.phases['loss']}: training diverges")
            progress.tell(iteration + 1)
        recorder.add(PEAK_MEMORY, **peak.row(trainer.tensors, kept=not trainer.copied))
        recorder.add(STALENESS, **trainer.staleness())
        if preset.communicates and preset.synchronous and not change.empty_messages:
            trainer.check_weights()


@contextmanager
def on_device(
    pipeline: InputPipeline | NothingToRead, *, use_prefetch: bool, device: torch.device
) -> Iterator[Callable[[], MiniBatch]]:
    """Yield a function that returns the next mini-batch. With `use_prefetch`, a thread copies it in advance."""
    if not use_prefetch or device.type == "cpu":  # on a CPU there is nothing to copy
        yield pipeline.next_batch
        return
    with closing(DevicePrefetch(pipeline.next_batch, device)) as prefetch:
        yield prefetch.next_batch


def _pipeline(
    kind: type[InputPipeline],
    cell: TrainCell,
    world: World,
    takes: Inputs,
    begin: int,
    device: torch.device,
    *,
    first_reads: bool,
) -> InputPipeline | NothingToRead:
    """Return this rank's input pipeline. With `first_reads` the first rank reads for all ranks, others read nothing."""
    if first_reads and world.rank:
        return NothingToRead()
    storage = Storage(cell.storage, Path(cell.storage_path), cell.storage_format)
    if storage.kind is OneBatch and kind is InputPipeline:
        kind = FixedMiniBatch
    return kind(
        storage,
        takes=takes,
        batch=cell.global_batch if first_reads else cell.worker_batch,
        rank=world.rank,
        ranks=1 if first_reads else world.size,
        prefetch=cell.prefetch,
        readers=cell.readers,
        seed=cell.seed,
        begin=begin,
        pinned=device.type == "cuda",
    )
