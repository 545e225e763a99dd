"""Ranks on two nodes meet over the network that joins them: for real, each in a network namespace and with a name."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import ENVIRONMENT
from meeting_ranks import VALUES

pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
SITES = {
    "IPv4": (["10.7.0.1/24"], ["10.7.0.2/24"]),
    "IPv6 only": (["fd07::1/64"], ["fd07::2/64"]),
    "routed /32": (["10.7.1.1/32"], ["10.7.2.1/32"]),
}
"""Addresses of the interface that joins two nodes, of each."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def nodes(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Two nodes that one link joins, and that each have a bridge of containers with the same address as the other's."""
    names = [f"stallpoint-{os.getpid()}-{rank}" for rank in (0, 1)]
    links = [f"sp{os.getpid()}{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        for name, link, addresses in zip(names, links, SITES[request.param], strict=True):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "docker0", "type", "bridge")
            ip("-n", name, "address", "add", "172.17.0.1/16", "dev", "docker0")
            ip("-n", name, "link", "set", "docker0", "up")
            ip("link", "set", link, "netns", name, "name", "fabric0")
            ip("-n", name, "link", "set", "fabric0", "up")
            for address in addresses:
                ip("-n", name, "address", "add", address, "dev", "fabric0", *(["nodad"] if ":" in address else []))
        for name, others in zip(names, reversed(SITES[request.param]), strict=True):
            for other in others:
                if other.endswith("/32"):
                    ip("-n", name, "route", "add", other, "dev", "fabric0")
        yield names
    finally:
        for words in (["link", "delete", links[0]], *(["netns", "delete", name] for name in names)):
            subprocess.run(["ip", *words], check=False, stderr=subprocess.DEVNULL)


def start(node: str, rank: int, path: Path) -> subprocess.Popen[str]:
    program = f"hostname node{rank}; exec {sys.executable} -m meeting_ranks {rank} {path}"
    return subprocess.Popen(
        ["ip", "netns", "exec", node, "unshare", "--uts", "sh", "-c", program], text=True, stdout=subprocess.PIPE,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip


@pytest.mark.parametrize(
    "nodes",
    ["IPv6 only", pytest.param("IPv4", marks=pytest.mark.night), pytest.param("routed /32", marks=pytest.mark.night)],
    indirect=True,
)
def test_ranks_meet_over_the_link_and_not_at_an_address_that_both_have(nodes: list[str], tmp_path: Path) -> None:
    path = tmp_path / "socket"
    first = start(nodes[0], 0, path)
    assert first.stdout
    assert first.stdout.readline() == "ready\n"
    second = start(nodes[1], 1, path)
    found = [json.loads(process.communicate(timeout=300)[0]) for process in (first, second)]
    for rank in found:
        assert rank["interface"] == "fabric0"
        assert rank["sums"] == [3.0]
        assert rank["bytes"] > 4 * VALUES / 2, "a rank gets half of the sums at least"
    assert found[0]["hosts"] == found[1]["hosts"]
    assert not any(host.startswith("172.") for host in found[0]["hosts"])
