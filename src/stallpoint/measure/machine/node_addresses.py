"""Network interfaces of a node, and the interfaces by which ranks on several nodes reach each other."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, IPv6Interface, ip_network
from pathlib import Path
from typing import TypeAlias

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
"""Linux' requests for an interface's IPv4 address and netmask."""
_IPV6 = Path("/proc/net/if_inet6")
"""Linux' list of IPv6 addresses; a line has address, index, prefix length, scope and flags in hex, and the name."""
Interface: TypeAlias = IPv4Interface | IPv6Interface
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
"""Variables by which a site names the interfaces for connections between ranks."""
NCCL_PATHS = {
    "NCCL_IB_DISABLE": "InfiniBand and RoCE: all that crosses nodes goes by IP sockets",
    "NCCL_P2P_DISABLE": "NVLink and PCIe between GPUs of a node",
    "NCCL_SHM_DISABLE": "shared memory between processes of a node",
}
"""Path of NCCL that each variable switches off, unless the variable is 0."""


def addresses() -> dict[str, Interface]:
    """Return the address of each network interface of this node, by name: IPv4 addresses first, then IPv6 addresses of
    interfaces without IPv4, then the loopback."""
    ipv6 = _ipv6(_IPV6.read_text() if _IPV6.exists() else "")
    found: dict[str, Interface] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(any_socket, what, request)[20:24])
                    for what in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
                found[name] = IPv4Interface(f"{address}/{mask}")
            except OSError:  # the interface has no IPv4 address
                if name in ipv6:
                    found[name] = ipv6[name]
    return dict(sorted(found.items(), key=lambda item: (item[1].is_loopback, item[1].version)))


def _ipv6(text: str) -> dict[str, IPv6Interface]:
    """Return each interface's first address that is not link-local; `text` is the content of the file `_IPV6`."""
    found: dict[str, IPv6Interface] = {}
    for fields in map(str.split, text.splitlines()):
        address = IPv6Interface((bytes.fromhex(fields[0]), int(fields[2], 16)))
        if not address.ip.is_link_local:
            found.setdefault(fields[5], address)
    return found


def allowed_interfaces(found: Mapping[str, Interface], variables: Mapping[str, str]) -> dict[str, Interface]:
    """Return the interfaces that the site's variables allow; all interfaces if no variable is set.

    The variable `GLOO` lists names. The variable `NCCL` lists prefixes of names; a leading ``=`` makes them whole
    names, a leading ``^`` excludes them (NCCL's documentation, Environment Variables).
    """
    if gloo := variables.get(GLOO):
        names = gloo.split(",")
        return {name: one for name, one in found.items() if name in names}
    nccl = variables.get(NCCL, "")
    if not nccl:
        return dict(found)
    excluded, wanted = nccl.startswith("^"), nccl.lstrip("^")
    whole, patterns = wanted.startswith("="), wanted.lstrip("=").split(",")
    matches = {name for name in found if any(name == one if whole else name.startswith(one) for one in patterns)}
    return {name: one for name, one in found.items() if (name in matches) != excluded}


def allow_only(names: str) -> dict[str, str]:
    """Return variables that allow only the interfaces `names` (separated by commas); empty without names."""
    return {GLOO: names, NCCL: f"={names}"} if names else {}


def address_family(network: str) -> str:
    """Return ``IPv4`` or ``IPv6`` for a network such as ``10.1.0.0/16``; other texts are returned unchanged."""
    return f"IPv{ip_network(network).version}" if "/" in network else network


def common_network(nodes: Sequence[Mapping[str, Interface]], *, same_node: bool) -> list[str]:
    """Return each node's interface, by name, in the first network that all have; empty if a node has no interface.

    `nodes` has the `addresses` of each node. Ranks of one node use its loopback. An address that two nodes have (of
    bridges of containers, say) is ignored: it leads to no other node. Nodes may have no network in common (a netmask of
    /32, a network for each rack): then each node takes its first address that no other node has.
    """
    owners = Counter(one.ip for node in nodes for one in node.values())
    candidates = [
        {name: one for name, one in node.items() if one.is_loopback == same_node and (same_node or owners[one.ip] == 1)}
        for node in nodes
    ]
    for name, first in candidates[0].items():
        found = [[name for name, other in node.items() if other.network == first.network] for node in candidates]
        if all(found):
            return [name, *(names[0] for names in found[1:])]
    return [next(iter(node)) for node in candidates] if all(candidates) and not same_node else []
