"""Addresses by which the ranks of an MPI job reach each other without MPI, as torch.distributed does."""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from stallpoint.measure.machine.node_addresses import GLOO, NCCL, addresses, allowed_interfaces, common_network
from stallpoint.measure.world import World

_SITES = {name: os.environ.get(name, "") for name in (GLOO, NCCL)}
"""The site's settings, read before a process group sets the variable `GLOO` for the ranks of one visit."""


class _Rank(NamedTuple):
    """Address of a rank for the other ranks. Without a common network, only `host` is set, to a host name."""

    interface: str
    host: str
    network: str


def interface(world: World) -> tuple[str, str]:
    """Return the interface by which Gloo reaches other ranks, and the address of rank 0.

    A site may set the interface by the variable `GLOO`. Without a common network, the address is rank 0's host name.
    """
    ranks = _addresses_of_ranks(world)
    return _SITES[GLOO] or ranks[world.rank].interface, ranks[0].host


def reachable(world: World) -> list[str]:
    """Return each rank's address for the other ranks; without a common network, each rank's host name."""
    return [rank.host for rank in _addresses_of_ranks(world)]


def network_of_ranks(world: World) -> tuple[str, str]:
    """Return this rank's interface to other ranks, and its network, such as ``ib0`` and ``10.1.0.0/16``.

    Both are empty for a single rank, and without a common network.
    """
    own = _addresses_of_ranks(world)[world.rank]
    return (own.interface, own.network) if world.size > 1 else ("", "")


def _addresses_of_ranks(world: World) -> list[_Rank]:
    found = addresses()
    ranks = world.comm.allgather((socket.gethostname(), found, allowed_interfaces(found, _SITES)))
    same_node = len({host for host, *_ in ranks}) == 1
    nodes = {host: everything if same_node else allowed for host, everything, allowed in ranks}
    names = dict(zip(nodes, common_network(list(nodes.values()), same_node=same_node), strict=False))
    if not names:
        return [_Rank("", host, "") for host, *_ in ranks]
    links = {host: nodes[host][name] for host, name in names.items()}
    return [_Rank(names[host], str(links[host].ip), str(links[host].network)) for host, *_ in ranks]
