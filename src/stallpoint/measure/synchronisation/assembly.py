"""From a preset to what does it: each of its choices is one part, and the parts fit together in any combination."""

from __future__ import annotations

from collections.abc import Sequence

from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.synchronisation.compression import reducer
from stallpoint.measure.synchronisation.engine import Engine
from stallpoint.measure.synchronisation.gradients import Gradients
from stallpoint.measure.synchronisation.interface import Part, Worker, whole
from stallpoint.measure.synchronisation.merging import Merging
from stallpoint.measure.synchronisation.message_exchange import Empty, Exchange, ParameterServer, Sum
from stallpoint.measure.synchronisation.no_exchange import Alone
from stallpoint.strategies.messages import messages
from stallpoint.strategies.presets import Preset
from stallpoint.strategies.strategy import load


def begin(preset: Preset, worker: Worker) -> Part:
    """The part of a `worker` in training as `preset` says."""
    if worker.world.size == 1 or not preset.communicates:
        return whole(Alone(worker.network), worker)
    return communicating(preset, worker)


def communicating(preset: Preset, worker: Worker) -> Part:
    """As `begin`, whatever the number of workers: one alone sends to itself what it would send to others."""
    found: Part = load(preset.strategy.training)(preset, worker)
    return found


def replicas(preset: Preset, worker: Worker) -> Part:
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
    merging = Merging(worker.world, gradients, sums, device, worker.warmup) if preset.grouping == "merged" else _keep
    engine = Engine(
        worker.network,
        gradients,
        exchange,
        messages(preset, [layer.gradient_bytes for layer in layers]),  # before anything was measured
        worker.clock,
        device,
        during_backward=preset.overlaps,
        replan=merging,
        end=communicates.close,
    )
    return whole(engine, worker)


def _keep(_gradient_ready: Sequence[float | None]) -> None:
    """Keep the first plan."""
