"""Network interfaces of a node, and by which of them ranks on several nodes reach each other."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface

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


def chosen(found: Mapping[str, IPv4Interface], variables: Mapping[str, str]) -> dict[str, IPv4Interface]:
    """Interfaces that the site's variables allow; all of them where the variables say nothing.

    `GLOO_SOCKET_IFNAME` lists names. `NCCL_SOCKET_IFNAME` lists beginnings of names; names behind ``=``; and what is
    excluded behind ``^`` (NCCL's documentation, Environment Variables).
    """
    if gloo := variables.get("GLOO_SOCKET_IFNAME"):
        names = gloo.split(",")
        return {name: one for name, one in found.items() if name in names}
    nccl = variables.get("NCCL_SOCKET_IFNAME", "")
    if not nccl:
        return dict(found)
    excluded, wanted = nccl.startswith("^"), nccl.lstrip("^")
    exactly, parts = wanted.startswith("="), wanted.lstrip("=").split(",")
    matched = {name for name in found if any(name == one if exactly else name.startswith(one) for one in parts)}
    return {name: one for name, one in found.items() if (name in matched) != excluded}


def common_network(nodes: Sequence[Mapping[str, IPv4Interface]], *, same_node: bool) -> list[str]:
    """For each node the name of its interface in the first network that all have; empty where there is none.

    `nodes` are the nodes' `addresses`. Ranks of one node meet on its loopback. An address that two nodes have (bridges
    of containers and virtual machines) leads to neither of them from the other. Where no network is shared, as with a
    netmask of /32 or racks with networks of their own, each node takes its first address that no other node has.
    """
    counts = Counter(one.ip for node in nodes for one in node.values())
    own = [
        {name: one for name, one in node.items() if one.is_loopback == same_node and (same_node or counts[one.ip] == 1)}
        for node in nodes
    ]
    for name, first in own[0].items():
        found = [[name for name, other in node.items() if other.network == first.network] for node in own]
        if all(found):
            return [name, *(names[0] for names in found[1:])]
    return [next(iter(node)) for node in own] if all(own) and not same_node else []
