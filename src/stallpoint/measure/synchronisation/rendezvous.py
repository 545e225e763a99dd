"""Addresses at which the ranks of an MPI job can reach each other by other means (torch.distributed)."""

from __future__ import annotations

import os
import socket

from stallpoint.measure.machine.node_addresses import addresses, chosen, common_network
from stallpoint.measure.world import World


def interface(world: World) -> tuple[str, str]:
    """Return this rank's interface to the others, and rank 0's address there (its host name if none is shared)."""
    names, hosts = _meeting(world)
    return names[world.rank] if names else "", hosts[0]


def reachable(world: World) -> list[str]:
    """Return for each rank the address at which the others reach it (its host name if no network is shared)."""
    return _meeting(world)[1]


def _meeting(world: World) -> tuple[list[str], list[str]]:
    """Return for each rank its interface (none if no network is shared), and the addresses of `reachable`."""
    found = addresses()
    ranks = world.comm.allgather((socket.gethostname(), found, chosen(found, os.environ)))
    same_node = len({host for host, *_ in ranks}) == 1
    nodes = {host: everything if same_node else allowed for host, everything, allowed in ranks}
    names = dict(zip(nodes, common_network(list(nodes.values()), same_node=same_node), strict=False))
    if not names:
        return [], [host for host, *_ in ranks]
    return [names[host] for host, *_ in ranks], [str(nodes[host][names[host]].ip) for host, *_ in ranks]
