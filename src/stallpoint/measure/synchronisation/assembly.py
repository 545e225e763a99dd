"""From a preset to what does it: each of its choices is one part, and the parts fit together in any combination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from stallpoint.measure.clock import Clock
from stallpoint.measure.synchronisation.asynchronous import Asynchronous
from stallpoint.measure.synchronisation.averaging import Averaging
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.synchronisation.compression import reducer
from stallpoint.measure.synchronisation.downpour import Downpour
from stallpoint.measure.synchronisation.elastic import Elastic
from stallpoint.measure.synchronisation.engine import Engine
from stallpoint.measure.synchronisation.gossip import Gossip
from stallpoint.measure.synchronisation.gradients import Gradients
from stallpoint.measure.synchronisation.interface import Replica, Synchronisation
from stallpoint.measure.synchronisation.merging import Merging
from stallpoint.measure.synchronisation.message_exchange import Empty, Exchange, ParameterServer, Sum
from stallpoint.measure.synchronisation.no_exchange import Alone
from stallpoint.measure.synchronisation.served import Served
from stallpoint.measure.synchronisation.server import MakeOptimiser
from stallpoint.measure.world import World
from stallpoint.networks.layers import Layer
from stallpoint.strategies.messages import messages
from stallpoint.strategies.presets import Preset

if TYPE_CHECKING:
    from stallpoint.measure.synchronisation.fsdp import FullySharded
    from stallpoint.measure.synchronisation.outputs import SplitLayers
    from stallpoint.measure.synchronisation.stages import Stage

SERVED: dict[str, type[Served]] = {"asynchronous": Asynchronous, "downpour": Downpour, "elastic": Elastic}
"""Algorithms with servers."""


def sharded(
    preset: Preset, network: nn.Module, world: World, clock: Clock, device: torch.device, per_node: int
) -> FullySharded | None:
    """What shards the weights of `network` over the workers, `per_node` of which share a node; None: nothing does."""
    if world.size == 1 or not preset.shards_weights:
        return None
    from stallpoint.measure.synchronisation.fsdp import FullySharded  # loads slowly

    return FullySharded(network, world, clock, device, preset, per_node)


def stage(
    preset: Preset,
    network: nn.Module,
    starts: Sequence[int],
    world: World,
    clock: Clock,
    device: torch.device,
    waiting: Callable[[bool], None],
) -> Stage | None:
    """A worker's stage of `network`, whose stages begin with the layers `starts`; None: each worker has all of it."""
    if world.size == 1 or not preset.staged:
        return None
    from stallpoint.measure.synchronisation.stages import Stage  # loads slowly

    return Stage(network, starts, preset.micro_batches, world, clock, device, waiting)


def split(
    preset: Preset,
    network: nn.Module,
    places: Sequence[int],
    world: World,
    clock: Clock,
    device: torch.device,
    waiting: Callable[[bool], None],
) -> SplitLayers | None:
    """What splits the layers of `network` at these `places` over the workers; None: each worker has all of them."""
    if world.size == 1 or not preset.splits_outputs:
        return None
    from stallpoint.measure.synchronisation.outputs import SplitLayers  # loads slowly

    return SplitLayers(network, places, world, clock, device, preset, waiting)


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
    for_server: MakeOptimiser,
    empty_messages: bool = False,
    waiting: Callable[[bool], None] = lambda _: None,
) -> Synchronisation:
    """How the workers of `world` synchronise the `network`, whose `layers` are on `device`.

    `step` updates weights where the preset has that done by one rank, and `for_server` makes what updates the share of
    a server; plans that need measured times are made after `warmup` iterations. With `empty_messages` every message
    carries one value, and no gradients. `waiting` is told when a rank begins and ends to wait in the middle of
    computing. What shards weights is another network, which `sharded` makes, and `stage` a part of it; of what `split`
    makes these are the layers that all workers have.
    """
    if world.size == 1 or not preset.communicates:
        return Alone(network)
    return communicating(
        preset, network, layers, world, clock, device, step,
        warmup=warmup, for_server=for_server, empty_messages=empty_messages, waiting=waiting,
    )  # fmt: skip


def communicating(
    preset: Preset,
    network: nn.Module,
    layers: Sequence[Layer],
    world: World,
    clock: Clock,
    device: torch.device,
    step: Callable[[list[nn.Parameter]], None],
    *,
    warmup: int,
    for_server: MakeOptimiser,
    empty_messages: bool = False,
    waiting: Callable[[bool], None] = lambda _: None,
) -> Synchronisation:
    """As `start`, whatever the number of workers: one alone sends to itself what it would send to others."""
    replica = Replica(network, layers, world, clock)
    if preset.backend == "ddp":
        if preset.sharding == "optimiser":
            from stallpoint.measure.synchronisation.zero import ShardedOptimiser

            return ShardedOptimiser(replica, device, preset, waiting)
        from stallpoint.measure.synchronisation.ddp import DataParallel  # loads slowly

        return DataParallel(replica, device, preset, waiting)
    if preset.served:
        return SERVED[preset.algorithm](replica, preset, for_server)
    if preset.algorithm == "gossip":
        return Gossip(replica, preset)
    communicates = communicator(preset.backend, preset.scheme, preset.segment_bytes, world, device)
    if preset.algorithm == "averaging":
        return Averaging(replica, preset, communicates)
    gradients = Gradients(layers)
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
