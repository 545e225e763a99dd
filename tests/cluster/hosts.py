"""The hosts of the test cluster: network namespaces on one bridge, each with its own host name, mounts and shaped link.

Everything has a fixed name or place (`HOME`, `PREFIX`, `PORT_PREFIX`, `BRIDGE`), by which it is found again.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path

HOME = Path("/var/lib/stallpoint-cluster")
LOGS = HOME / "log"
NAMESPACES = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "stallpoint-"  # of namespaces and cgroups
PORT_PREFIX = "stallp-"  # of links; the kernel allows 15 characters in all
BRIDGE = "stallpoint0"
OWN = ("pmix", "local")  # folders in HOME of which each host has one for itself: for PMIx, and its local disk
UNLIMITED = "unlimited"
MTU = 9000  # bytes; cutting messages into packets of 1500 costs a slow node more time than sending them
SHAPER_TIME = 0.002  # s of a link's speed that may pass in one burst
SMALLEST_BURST = 128_000  # bytes: two of the largest segments that the kernel hands over whole
SOCKET_BUFFERS = {  # bytes, by whether links are shaped: least, at the start, most; the kernel's own where they are not
    True: {"tcp_wmem": "4096 32768 65536", "tcp_rmem": "4096 131072 262144"},
    False: {"tcp_wmem": "4096 16384 4194304", "tcp_rmem": "4096 131072 6291456"},
}
SHAPER_QUEUE = "200ms"  # what a link delays before it drops: many senders to one node are no loss
PATIENCE = 1800.0  # s that a command may take, on a machine that may be busy


class ClusterError(RuntimeError):
    """The cluster cannot do what was asked; the message says why and what helps."""


@dataclass(frozen=True)
class Host:
    """One host of the cluster: its name and its address on the bridge."""

    name: str
    address: str

    @property
    def namespace(self) -> str:
        return PREFIX + self.name

    @property
    def port(self) -> str:
        """The bridge's end of the host's link; its other end is the host's eth0."""
        return PORT_PREFIX + self.name

    @property
    def disk(self) -> Path:
        """What belongs to this host alone."""
        return HOME / "hosts" / self.name

    @property
    def cpu_group(self) -> Path:
        """The cgroup that limits the host's CPU time."""
        return CGROUPS / ("" if has_unified_cgroups() else "cpu") / self.namespace


# -- Starting


def make_bridge(address: str) -> None:
    """The cluster's switch, on which this machine has ``address``."""
    run("ip", "link", "add", BRIDGE, "mtu", str(MTU), "type", "bridge")
    run("ip", "address", "add", f"{address}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def connect(host: Host) -> None:
    """Give a host its namespace and its link to the bridge."""
    inside = ("ip", "-netns", host.namespace)
    run("ip", "netns", "add", host.namespace)
    ends = ("mtu", str(MTU), "type", "veth", "peer", "name", "eth0", "mtu", str(MTU), "netns", host.namespace)
    run("ip", "link", "add", host.port, *ends)
    run("ip", "link", "set", host.port, "master", BRIDGE, "up")
    run(*inside, "address", "add", f"{host.address}/24", "dev", "eth0")
    run(*inside, "link", "set", "eth0", "up")
    run(*inside, "link", "set", "lo", "up")
    # A connection that paused while its node computed goes on at the speed it had.
    run("ip", "netns", "exec", host.namespace, "sysctl", "--quiet", "net.ipv4.tcp_slow_start_after_idle=0")
    # Nor does a sender whose socket is full (`SOCKET_BUFFERS`) stand still while a receiver puts off its word (40 ms).
    network = str(ip_interface(f"{host.address}/24").network)
    run(*inside, "route", "change", network, "dev", "eth0", "scope", "link", "src", host.address, "quickack", "1")


def start(host: Host, *daemon: str, before: Sequence[str] = (), **variables: object) -> None:
    """Start a daemon on a host: with its network, host name, shared memory, folders of its `OWN` and CPU time.

    Not ``ip netns exec``: it mounts another /sys, where slurmd finds no cgroups. What the commands `before` mount, the
    daemon and what it starts see, and nobody else.
    """
    for name in OWN:
        (host.disk / name).mkdir(parents=True, exist_ok=True)
    setup = [
        *(f"export {name}='{value}'" for name, value in variables.items()),
        f"hostname {host.name}",
        *(f"mount --bind {host.disk / name} {HOME / name}" for name in OWN),
        "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        *before,
        'exec "$@"',
    ]
    if host.cpu_group.exists():
        setup.insert(0, f"echo $$ >{host.cpu_group}/cgroup.procs")
    enter = ["nsenter", f"--net={NAMESPACES / host.namespace}", "unshare", "--uts", "--mount"]
    try:
        run(*enter, "sh", "-ec", "\n".join(setup), "sh", *daemon)
    except ClusterError as error:
        raise ClusterError(f"{daemon[0]} does not start on {host.name}; see {LOGS} ({error})") from None


def accepts_connections(address: str, port: int) -> bool:
    """Whether a daemon listens there; Slurm's own commands would wait ten seconds for one."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


# -- The speed of a link, also while the cluster runs


def check_rate(text: str) -> str:
    if text != UNLIMITED and not re.fullmatch(r"[1-9]\d*(kbit|mbit|gbit)", text):
        raise ClusterError(f"link speed {text!r}: expected e.g. 100mbit or 1gbit, or {UNLIMITED}")
    return text


def shape_link(node: Host, rate: str) -> None:
    """Limit a node's link in both directions; what stays within a node does not pass it.

    What a program has handed over waits in sockets, as short as a network card's queue: the kernel's own hold whole
    messages, behind which the word that the next one may come waits for tens of milliseconds.
    """
    buffers = (f"net.ipv4.{name}={sizes}" for name, sizes in SOCKET_BUFFERS[rate != UNLIMITED].items())
    run("ip", "netns", "exec", node.namespace, "sysctl", "--quiet", *buffers)
    for where, device in (((), node.port), (("-netns", node.namespace), "eth0")):
        qdisc = ("tc", *where, "qdisc")
        if rate != UNLIMITED:
            burst = max(SMALLEST_BURST, int(bytes_per_second(rate) * SHAPER_TIME))
            shaper = ("tbf", "rate", rate, "burst", str(burst), "latency", SHAPER_QUEUE)
            run(*qdisc, "replace", "dev", device, "root", *shaper)
        elif "tbf" in run(*qdisc, "show", "dev", device):
            run(*qdisc, "delete", "dev", device, "root")


def bytes_per_second(rate: str) -> int:
    return int(rate[:-4]) * {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}[rate[-4:]] // 8


def has_unified_cgroups() -> bool:
    """Whether this machine has version 2 of the cgroups."""
    return (CGROUPS / "cgroup.controllers").exists()


# -- Small helpers


def processes_in(namespace: str) -> list[int]:
    return [int(process) for process in run("ip", "netns", "pids", namespace).split()]


def run(*words: str, timeout: float = PATIENCE) -> str:
    """Run a command and return what it printed; raises `ClusterError` with its complaint where it fails."""
    result = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    if result.returncode:
        raise ClusterError(f"{words[0]} failed: {result.stderr.strip() or f'exit status {result.returncode}'}")
    return result.stdout


def wait_until(done: Callable[[], bool], seconds: float, complaint: str | None = None) -> None:
    """Wait until ``done``, or for so long; then raises `ClusterError` where there is a complaint to make."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            if complaint:
                raise ClusterError(complaint)
            return
        time.sleep(0.2)
