"""Building of a synchronisation from a preset: each choice is one part, and the parts combine freely."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from stallpoint import load
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.synchronisation.compression import reducer
from stallpoint.measure.synchronisation.engine import Engine
from stallpoint.measure.synchronisation.fusion import Fusion
from stallpoint.measure.synchronisation.gradients import Gradients
from stallpoint.measure.synchronisation.interface import Synchronisation, Worker, WorkerPart, unsharded
from stallpoint.measure.synchronisation.message_exchange import Empty, Exchange, ParameterServer, Sum
from stallpoint.strategies.buckets import buckets
from stallpoint.strategies.presets import Preset


class NoExchange(Synchronisation):
    """Synchronisation of one worker, or of workers that do not communicate: gradients stay as they are."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network


def begin(preset: Preset, worker: Worker) -> WorkerPart:
    """Return the part of a `worker` in training by `preset`."""
    if worker.world.size == 1 or not preset.communicates:
        return unsharded(NoExchange(worker.network), worker)
    return communicating(preset, worker)


def communicating(preset: Preset, worker: Worker) -> WorkerPart:
    """Return the part as `begin` does, also for a single worker, which then sends to itself."""
    found: WorkerPart = load(preset.strategy.training)(preset, worker)
    return found


def replicas(preset: Preset, worker: Worker) -> WorkerPart:
    """Return the part of one of several workers that have all layers, and sum their gradients."""
    if preset.backend == "ddp":
        from stallpoint.measure.synchronisation.ddp import DataParallel  # loads slowly

        return DataParallel.begin(preset, worker)
    device, layers = worker.device, worker.layers
    communicates = communicator(preset.backend, preset.scheme, preset.segment_bytes, worker.world, device)
    gradients = Gradients(layers)
    sums = reducer(preset, communicates, gradients.values, device)
    exchange: Exchange = Sum(gradients, sums)
    if worker.empty_messages:
        exchange = Empty(communicates, device)
    elif preset.reduction == "parameter-server":
        exchange = ParameterServer(gradients, communicates, worker.step)
    fusion = Fusion(worker.world, gradients, sums, device, worker.warmup) if preset.grouping == "merged" else _keep
    engine = Engine(
        worker.network,
        gradients,
        exchange,
        buckets(preset, [layer.gradient_bytes for layer in layers]),  # the plan before any measurement
        worker.clock,
        device,
        during_backward=preset.overlaps,
        replan=fusion,
        end=communicates.close,
    )
    return unsharded(engine, worker)


def _keep(_gradient_ready: Sequence[float | None]) -> None:
    """Keep the first plan."""
