"""Assembly of a synchronisation from a preset: each choice of a preset is one part, and the parts combine freely.

For merged gradients (MG-WFBP), the job plans which layers share a message, from measured times of messages and layers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from stallpoint import load
from stallpoint.measure import constants
from stallpoint.measure.device import synchronize
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.synchronisation.compression import Reducer, reducer
from stallpoint.measure.synchronisation.engine import EmptyMessages, Engine, Exchange, ParameterServer, Sum
from stallpoint.measure.synchronisation.gradients import Gradients
from stallpoint.measure.synchronisation.interface import Synchronisation, Worker, WorkerPart, unsharded
from stallpoint.measure.synchronisation.streams import stream_for
from stallpoint.measure.world import World
from stallpoint.strategies.buckets import buckets
from stallpoint.strategies.mg_wfbp import merged_groups
from stallpoint.strategies.presets import Preset


class NoExchange(Synchronisation):
    """Synchronisation without communication, of one worker or of independent workers: gradients stay as they are."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network


def begin(preset: Preset, worker: Worker) -> WorkerPart:
    """Return the synchronisation of a `worker` by `preset`."""
    if worker.world.size == 1 or not preset.communicates:
        return unsharded(NoExchange(worker.network), worker)
    return communicating(preset, worker)


def communicating(preset: Preset, worker: Worker) -> WorkerPart:
    """Return the synchronisation of a `worker` by `preset`. Unlike with `begin`, a single worker sends to itself."""
    found: WorkerPart = load(preset.strategy.training)(preset, worker)
    return found


def replicas(preset: Preset, worker: Worker) -> WorkerPart:
    """Return the synchronisation of a worker in data parallelism, where each has all layers and sums gradients."""
    if preset.backend == "ddp":
        from stallpoint.measure.synchronisation.ddp import DataParallel  # imported only here, as the import takes long

        return DataParallel.begin(preset, worker)
    device, layers = worker.device, worker.layers
    transport = communicator(preset.backend, preset.scheme, preset.segment_bytes, worker.world, device)
    gradients = Gradients(layers)
    sums = reducer(preset, transport, gradients.values, device)
    exchange: Exchange = Sum(gradients, sums)
    if worker.empty_messages:
        exchange = EmptyMessages(transport, device)
    elif preset.reduction == "parameter-server":
        exchange = ParameterServer(gradients, transport, worker.step)
    fusion = Fusion(worker.world, gradients, sums, device, worker.warmup) if preset.grouping == "merged" else _no_replan
    engine = Engine(
        worker.network,
        gradients,
        exchange,
        buckets(preset, [layer.gradient_bytes for layer in layers]),  # this plan is the first; `fusion` may replace it
        worker.clock,
        device,
        during_backward=preset.overlaps,
        replan=fusion,
        end=transport.close,
    )
    return unsharded(engine, worker)


def _no_replan(_gradient_ready: Sequence[float | None]) -> None:
    """Return no new plan: the first plan stays."""


class Fusion:
    """Planner of merged gradients, which plans once after the warm-up; until then each layer has its own message.

    Rank 0 plans for all ranks. For each layer it takes the time at which its gradients were complete: the median over
    the warm-up iterations, of which the first counts only if there is no other. The time of a message of m bytes is
    α + β·m; `calibrated` measures α (s) and β (s/B) with the preset's reduction.
    """

    def __init__(self, world: World, gradients: Gradients, reducer: Reducer, device: torch.device, warmup: int) -> None:
        self._world, self._gradients = world, gradients
        self._seen: list[Sequence[float | None]] = []
        self._wanted = max(1, warmup)
        self._alpha, self._beta = calibrated(
            lambda size: _seconds(world, reducer, torch.zeros(size // 4, device=device)), 4 * gradients.values
        )

    def __call__(self, gradient_ready: Sequence[float | None]) -> list[list[int]] | None:
        """Return the plan once, when the warm-up has ended; else None."""
        if len(self._seen) == self._wanted:
            return None
        self._seen.append(gradient_ready)
        if len(self._seen) < self._wanted:
            return None
        plan: list[list[int]] = self._world.comm.bcast(self._plan() if self._world.rank == 0 else None)
        return plan

    def _plan(self) -> list[list[int]]:
        order = self._gradients.order
        later = self._seen[1:] or self._seen
        ready = [statistics.median(times[layer] or 0.0 for times in later) for layer in order]
        sizes = [self._gradients.bytes_of(layer) for layer in order]
        groups = merged_groups(sizes, ready, self._alpha, self._beta)
        return [[order[position] for position in group] for group in groups]


def calibrated(seconds: Callable[[int], float], largest: int) -> tuple[float, float]:
    """Return α in s and β in s/B, such that a message of m bytes takes α + β·m. `seconds` times a message of m bytes.

    The time of a small message is nearly all latency. The size of another message is multiplied by 4 until the
    message takes `LATENCIES` times as long, or has `largest` bytes.
    """
    size = first = min(constants.LATENCY_BYTES, largest)
    first_time = last_time = seconds(first)
    while size < largest and last_time < constants.LATENCIES * first_time:
        size = min(4 * size, largest)
        last_time = seconds(size)
    beta = max(0.0, last_time - first_time) / max(1, size - first)
    return max(0.0, first_time - beta * first), beta


def _seconds(world: World, reducer: Reducer, values: torch.Tensor) -> float:
    """Return the median time of a few messages with `values`, s. All ranks return rank 0's median."""
    synchronize(values.device)  # the stream of communication does not wait for the stream that writes `values`
    times, stream = [], stream_for(values.device)
    for _ in range(1 + constants.CALIBRATION_SAMPLES):
        world.comm.Barrier()
        begin = time.perf_counter()
        with stream.entered():
            reducer.sum(values, 0)
        stream.drain()
        times.append(time.perf_counter() - begin)
    return float(world.comm.bcast(statistics.median(times[1:])))
