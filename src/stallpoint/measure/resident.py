"""Networks that stay in memory between visits, as building a network may take longer than an iteration."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast
from weakref import WeakSet

import torch
from torch import nn

from stallpoint.measure import constants
from stallpoint.networks import Network


@dataclass(frozen=True, eq=False)
class _Resident:
    network: nn.Module
    initial: dict[str, torch.Tensor]
    device: torch.device


_kept: WeakSet[_Resident] = WeakSet()


def network(description: Network, seed: int, device: torch.device) -> nn.Module:
    """Return the network on `device`, with the initial weights and buffers of `seed`, equal on all ranks.

    The next call may return the same module, with its weights reset.
    """
    resident = _built(cast(Hashable, description), seed, device)
    with torch.no_grad():
        for name, values in state(resident.network):
            values.copy_(resident.initial[name])
    return resident.network


def network_bytes(device: torch.device) -> int:
    """Return the bytes that kept networks take on `device`: current and initial values of weights and buffers."""
    return sum(
        values.nbytes + one.initial[name].nbytes
        for one in _kept
        if one.device == device
        for name, values in state(one.network)
    )


@lru_cache(constants.NETWORKS_KEPT)
def _built(known: Hashable, seed: int, device: torch.device) -> _Resident:
    built = cast(Network, known).build(seed).to(device)
    resident = _Resident(built, {name: values.detach().clone() for name, values in state(built)}, device)
    _kept.add(resident)
    return resident


def state(built: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor of each weight and buffer, also of buffers that the network's ``state_dict`` lacks."""
    yield from built.named_parameters()
    yield from built.named_buffers()
