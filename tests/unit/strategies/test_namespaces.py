"""Ranks on two nodes meet over the network that joins them: for real, each in a network namespace and with a name."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from launching import ENVIRONMENT
from meeting_ranks import VALUES
from nightly import by_day

from stallpoint.measure.machine.node_addresses import allow_only

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
FABRICS = {
    "IPv4": {"fabric0": ("10.7.0.1/24", "10.7.0.2/24")},
    "IPv6 only": {"fabric0": ("fd07::1/64", "fd07::2/64")},
    "routed /32": {"fabric0": ("10.7.1.1/32", "10.7.2.1/32")},
    "the second, by the profile, with IPv6": {
        "fabric0": ("10.7.0.1/24", "10.7.0.2/24"),
        "fabric1": ("fd08::1/64", "fd08::2/64"),
    },
}
"""Interfaces that join two nodes, and their addresses on each."""
MET = {
    "IPv4": ("fabric0", ["10.7.0.0/24", "10.7.0.0/24"]),
    "IPv6 only": ("fabric0", ["fd07::/64", "fd07::/64"]),
    "routed /32": ("fabric0", ["10.7.1.1/32", "10.7.2.1/32"]),
    "the second, by the profile, with IPv6": ("fabric1", ["fd08::/64", "fd08::/64"]),
}
"""Where ranks meet, and the network that each of them then records."""


@dataclass(frozen=True)
class Site:
    """Two nodes, each a network namespace."""

    nodes: list[str]
    interface: str
    networks: list[str]
    variables: dict[str, str]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Two nodes with links between them, and each with a bridge of containers that has the same address on both."""
    names = [f"stallpoint-{os.getpid()}-{rank}" for rank in (0, 1)]
    fabrics, (interface, networks) = FABRICS[request.param], MET[request.param]
    links = {fabric: [f"sp{os.getpid()}{end}{fabric[-1]}" for end in "ab"] for fabric in fabrics}
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "docker0", "type", "bridge")
            ip("-n", name, "address", "add", "172.17.0.1/16", "dev", "docker0")
            ip("-n", name, "link", "set", "docker0", "up")
        for fabric, addresses in fabrics.items():
            ip("link", "add", links[fabric][0], "type", "veth", "peer", "name", links[fabric][1])
            for name, link, address in zip(names, links[fabric], addresses, strict=True):
                ip("link", "set", link, "netns", name, "name", fabric)
                ip("-n", name, "link", "set", fabric, "up")
                ip("-n", name, "address", "add", address, "dev", fabric, *(["nodad"] if ":" in address else []))
            for name, other in zip(names, reversed(addresses), strict=True):
                if other.endswith("/32"):
                    ip("-n", name, "route", "add", other, "dev", fabric)
        yield Site(names, interface, networks, allow_only(interface) if len(fabrics) > 1 else {})
    finally:
        for words in (*(["link", "delete", first] for first, _ in links.values()),
                      *(["netns", "delete", name] for name in names)):  # fmt: skip
            subprocess.run(["ip", *words], check=False, stderr=subprocess.DEVNULL)


def start(site: Site, rank: int, path: Path) -> subprocess.Popen[str]:
    program = f"hostname node{rank}; exec {sys.executable} -m meeting_ranks {rank} {path}"
    modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        ["ip", "netns", "exec", site.nodes[rank], "unshare", "--uts", "sh", "-c", program],
        env={**ENVIRONMENT, **site.variables, **modules, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize(
    "site", by_day(FABRICS, lambda name: name == "the second, by the profile, with IPv6"), indirect=True
)
def test_ranks_meet_over_the_link_and_not_at_an_address_that_both_have(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    first = start(site, 0, path)
    assert first.stdout
    assert first.stdout.readline() == "ready\n"
    second = start(site, 1, path)
    found = [json.loads(process.communicate(timeout=300)[0]) for process in (first, second)]
    for rank in found:
        assert rank["interface"] == site.interface
        assert rank["sums"] == [3.0]
        assert rank["bytes"] > 4 * VALUES / 2, "a rank gets half of the sums at least"
    assert [rank["subnet"] for rank in found] == site.networks
    assert found[0]["hosts"] == found[1]["hosts"]
    assert not any(host.startswith("172.") for host in found[0]["hosts"])
