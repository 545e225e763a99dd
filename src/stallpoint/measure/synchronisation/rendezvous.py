"""Addresses at which the ranks of an MPI job reach each other without MPI (for torch.distributed)."""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from stallpoint.measure.machine.node_addresses import GLOO, NCCL, addresses, chosen, common_network
from stallpoint.measure.world import World

_SITES = {name: os.environ.get(name, "") for name in (GLOO, NCCL)}
"""The site's settings, read before a process group sets `GLOO` for the ranks of one visit."""


class _Rank(NamedTuple):
    """Address of a rank for the others: interface and network are empty without a common network."""

    interface: str
    host: str
    network: str


def interface(world: World) -> tuple[str, str]:
    """Return this rank's interface to the others for Gloo, and rank 0's address (its host name without a common
    network).

    Gloo's interfaces named by the site have priority.
    """
    ranks = _meeting(world)
    return _SITES[GLOO] or ranks[world.rank].interface, ranks[0].host


def reachable(world: World) -> list[str]:
    """Return the address at which others reach each rank (its host name without a common network)."""
    return [rank.host for rank in _meeting(world)]


def network_of_ranks(world: World) -> tuple[str, str]:
    """Return this rank's interface to the others and the network there, such as ``ib0`` and ``10.1.0.0/16``.

    Both are empty for a single rank, and without a common network.
    """
    own = _meeting(world)[world.rank]
    return (own.interface, own.network) if world.size > 1 else ("", "")


def _meeting(world: World) -> list[_Rank]:
    """Return the address of each rank for the others."""
    found = addresses()
    ranks = world.comm.allgather((socket.gethostname(), found, chosen(found, _SITES)))
    same_node = len({host for host, *_ in ranks}) == 1
    nodes = {host: everything if same_node else allowed for host, everything, allowed in ranks}
    names = dict(zip(nodes, common_network(list(nodes.values()), same_node=same_node), strict=False))
    if not names:
        return [_Rank("", host, "") for host, *_ in ranks]
    met = {host: nodes[host][name] for host, name in names.items()}
    return [_Rank(names[host], str(met[host].ip), str(met[host].network)) for host, *_ in ranks]
