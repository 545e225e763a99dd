"""Checks before training, so that no rank is killed for lack of memory or waits forever for another rank."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, cast

import torch

from stallpoint.errors import CannotRun
from stallpoint.measure.machine import available_memory
from stallpoint.measure.world import World
from stallpoint.networks import Network
from stallpoint.networks.description import split_of
from stallpoint.networks.layers import layers
from stallpoint.strategies.presets import preset_from, to_values
from stallpoint.study.kinds.train_kind import TrainCell

COPIES = 3
"""Values that SGD keeps for each weight: weight, gradient and momentum."""


def check(cell: TrainCell, world: World, network: Network, device: torch.device) -> None:
    """Raise `CannotRun` on all ranks if ranks have different presets or training does not fit into memory."""
    replies = world.comm.allgather((cell.preset, memory_problem(cell, network, device)))
    same_preset([preset for preset, _ in replies])
    if reason := next((reason for _, reason in replies if reason), ""):
        raise CannotRun(reason)


def same_preset(presets: Sequence[dict[str, Any]]) -> None:
    """Raise `CannotRun` unless all ranks have the same preset."""
    first, *others = (to_values(preset_from(preset)) for preset in presets)
    for rank, other in enumerate(others, 1):
        for name in sorted(first.keys() | other.keys()):
            if first.get(name) != other.get(name):
                raise CannotRun(
                    f"ranks disagree on the preset: {name} is {first.get(name)} on rank 0 and {other.get(name)} on "
                    f"rank {rank}; all nodes must see the same study and the same stallpoint"
                )


def memory_problem(cell: TrainCell, network: Network, device: torch.device) -> str:
    """Return why a worker's weights, gradients and momenta exceed its memory; empty if they fit."""
    sizes, strategy = _gradient_bytes(cast(Hashable, network)), preset_from(cell.preset).strategy
    shard_counts = cell.ranks > 1 and strategy.divided(cell.placement, sizes, lambda: split_of(network))
    weight_shards, momentum_shards = shard_counts or (1, 1)
    needed = sum(sizes) * ((COPIES - 1) / weight_shards + 1 / momentum_shards)
    limit = available_memory.gpu_memory(device) or available_memory.host_memory(cell.workers_per_node)
    if needed <= limit:
        return ""
    return (
        f"out of memory: weights, gradients and momenta of {network.name} take {needed / 1e9:.3g} GB of each worker, "
        f"which may use {limit / 1e9:.3g} GB; presets fsdp and hsdp shard them over more workers"
    )


@lru_cache
def _gradient_bytes(network: Hashable) -> tuple[int, ...]:
    """Return the bytes of each layer's gradients."""
    return tuple(layer.gradient_bytes for layer in layers(cast(Network, network).sketch()))
