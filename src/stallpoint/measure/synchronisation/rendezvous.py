"""Where ranks meet that know each other through MPI and want to talk by other means (torch.distributed)."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Interface

from stallpoint.measure.world import World

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
"""Linux: the IPv4 address and the netmask of an interface."""


def addresses() -> dict[str, IPv4Interface]:
    """IPv4 addresses of this node by the name of the network interface, the loopback last."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(any_socket, what, request)[20:24])
                    for what in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
            except OSError:  # an interface that is down or has no IPv4 address
                continue
            found[name] = IPv4Interface(f"{address}/{mask}")
    return dict(sorted(found.items(), key=lambda item: item[1].is_loopback))


def common_network(nodes: Sequence[dict[str, IPv4Interface]], *, same_node: bool) -> list[str]:
    """For each rank the name of its interface in the first network that all have; empty where there is none.

    `nodes` are the ranks' `addresses`. Ranks of one node meet on its loopback; ranks of different nodes all have
    one too, but of their own.
    """
    for name, first in nodes[0].items():
        if first.is_loopback != same_node:
            continue
        found = [[name for name, other in node.items() if other.network == first.network] for node in nodes]
        if all(found):
            return [name, *(names[0] for names in found[1:])]
    return []


def interface(world: World) -> tuple[str, str]:
    """Name of this rank's interface to the others, and rank 0's address there (its host name where none is shared)."""
    names, hosts = _meeting(world)
    return names[world.rank] if names else "", hosts[0]


def reachable(world: World) -> list[str]:
    """For each rank the address at which the others reach it (its host name where no network is shared)."""
    return _meeting(world)[1]


def _meeting(world: World) -> tuple[list[str], list[str]]:
    """As `common_network`, and as `reachable`."""
    hosts = world.comm.allgather((socket.gethostname(), addresses()))
    names = common_network([found for _, found in hosts], same_node=len({host for host, _ in hosts}) == 1)
    if not names:
        return [], [host for host, _ in hosts]
    return names, [str(found[name].ip) for name, (_, found) in zip(names, hosts, strict=True)]
