"""From a preset to what does it: each of its choices is one part, and the parts fit together in any combination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from stallpoint.measure.clock import Clock
from stallpoint.measure.synchronisation.alone import Alone
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.synchronisation.compression import reducer
from stallpoint.measure.synchronisation.engine import Engine
from stallpoint.measure.synchronisation.exchange import Empty, Exchange, ParameterServer, Sum
from stallpoint.measure.synchronisation.gradients import Gradients
from stallpoint.measure.synchronisation.interface import Synchronisation
from stallpoint.measure.synchronisation.merging import Merging
from stallpoint.measure.world import World
from stallpoint.messages import messages
from stallpoint.networks.layers import Layer
from stallpoint.presets import Preset

if TYPE_CHECKING:
    from stallpoint.measure.synchronisation.fsdp import FullySharded


def sharded(
    preset: Preset, network: nn.Module, world: World, clock: Clock, device: torch.device, per_node: int
) -> FullySharded | None:
    """What shards the weights of `network` over the workers, `per_node` of which share a node; None: nothing does."""
    if world.size == 1 or not preset.shards_weights:
        return None
    from stallpoint.measure.synchronisation.fsdp import FullySharded  # loads slowly

    return FullySharded(network, world, clock, device, preset, per_node)


def start(
    preset: Preset,
    network: nn.Module,
    layers: Sequence[Layer],
    world: World,
    clock: Clock,
    device: torch.device,
    step: Callable[[list[nn.Parameter]], None],
    *,
    warmup: int,
    empty_messages: bool = False,
    waiting: Callable[[bool], None] = lambda _: None,
) -> Synchronisation:
    """How the workers of `world` synchronise the `network`, whose `layers` are on `device`.

    `step` updates weights where the preset has that done by one rank; plans that need measured times are
    made after `warmup` iterations. With `empty_messages` every message carries one value, and no gradients. `waiting`
    is told when a rank begins and ends to wait in the middle of computing. What shards weights is another network,
    which `sharded` makes.
    """
    if world.size == 1 or not preset.communicates:
        return Alone(network)
    if preset.backend == "ddp":
        if preset.sharding == "optimiser":
            from stallpoint.measure.synchronisation.zero import ShardedOptimiser

            return ShardedOptimiser(network, layers, world, clock, device, preset, waiting)
        from stallpoint.measure.synchronisation.ddp import DataParallel  # loads slowly

        return DataParallel(network, layers, world, clock, device, preset, waiting)
    gradients = Gradients(layers)
    communicates = communicator(preset.backend, preset.scheme, preset.segment_bytes, world, device)
    sums = reducer(preset, communicates, gradients.values, device)
    exchange: Exchange = Sum(gradients, sums)
    if empty_messages:
        exchange = Empty(communicates, device)
    elif preset.reduction == "parameter-server":
        exchange = ParameterServer(gradients, communicates, step)
    merging = Merging(world, gradients, sums, device, warmup) if preset.grouping == "merged" else _keep
    return Engine(
        network,
        gradients,
        exchange,
        messages(preset, [layer.gradient_bytes for layer in layers]),  # before anything was measured
        clock,
        device,
        during_backward=preset.overlaps,
        replan=merging,
        end=communicates.close,
    )


def _keep(_gradient_ready: Sequence[float | None]) -> None:
    """Keep the first plan."""
