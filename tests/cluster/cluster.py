#!/usr/bin/env python3
"""A real Slurm cluster inside one machine, for the tests: a controller and a few nodes.

Each host of the cluster is a network namespace on one bridge, with its own host name and mounts.
Every process of the cluster, jobs included, lives in one of these namespaces, and everything else
has a fixed name or place; so ``down`` finds all of it again without a list that a crash could spoil.

Needs root, Debian or Ubuntu, and the packages of install.sh; no package of Python's.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import busy

HOME = Path("/var/lib/stallpoint-cluster")
LOGS = HOME / "log"
MUNGE_SOCKET = HOME / "run" / "munge.socket"
SLURM = Path("/etc/slurm")  # the default place: a job step of Snakemake's Slurm executor drops SLURM_CONF
NAMESPACES = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")
CONFIG = Path(__file__).with_name("cluster.toml")
RUNNING = HOME / "cluster.toml"  # the configuration of the cluster that is up
REFERENCE = HOME / "reference"  # what a piece of computing takes at the fastest, for nodes that are kept even
NAP = HOME / "nap.so"  # to be preloaded on nodes with less than a core: see nap.c
BUSY = Path(busy.__file__)

DATABASE = HOME / "database"  # of the accounts; for root alone, its socket included
DATABASE_SOCKET = DATABASE / "socket"
SYSTEM_TABLES = Path("/usr/share/mysql")  # where the package of the database has the SQL that makes them

FILES = ("slurm.conf", "mpi.conf", "cgroup.conf", "slurmdbd.conf")  # in SLURM, written by ``up``
MARKER = "# Written by the test cluster of stallpoint (tests/cluster/cluster.py), which also removes it."
PREFIX = "stallpoint-"  # of namespaces and cgroups
PORT_PREFIX = "stallp-"  # of links; the kernel allows 15 characters in all
BRIDGE = "stallpoint0"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "sinfo", "munged", "ip", "tc", "nsenter", "unshare")
USABLE = {"idle", "mix", "alloc", "comp"}  # states of a node that takes jobs
UNLIMITED = "unlimited"
CONTROLLER_PORT, ACCOUNTS_PORT = 6817, 6819  # Slurm's own defaults
NAME = "stallpoint"  # of the cluster, and of the account that jobs are charged to

SHORTEST_PERIOD = SHORTEST_QUOTA = 1_000  # µs; the kernel's limits
REFERENCE_TIME = 4.0  # s for which to look for it, on all cores together
ROOM = 0.9  # of a core, for nodes that are kept even where it is slow
SHORTEST_SLICE = 100_000  # ns; the kernel's limit
SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}  # number of the system call sched_setattr
MTU = 9000  # bytes; cutting messages into packets of 1500 costs a slow node more time than sending them
SHAPER_TIME = 0.002  # s of a link's speed that may pass in one burst
SMALLEST_BURST = 128_000  # bytes: two of the largest segments that the kernel hands over whole
SOCKET_BUFFERS = {  # bytes, by whether links are shaped: least, at the start, most; the kernel's own where they are not
    True: {"tcp_wmem": "4096 32768 65536", "tcp_rmem": "4096 131072 262144"},
    False: {"tcp_wmem": "4096 16384 4194304", "tcp_rmem": "4096 131072 6291456"},
}
SHAPER_QUEUE = "200ms"  # what a link delays before it drops: many senders to one node are no loss
START_TIME = 30.0  # s until the nodes have to be ready
STOP_TIME = 10.0  # s until the processes have to be gone


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


@dataclass(frozen=True)
class Cluster:
    """The cluster that a file such as cluster.toml describes. Only one can exist at a time."""

    text: str
    network: str
    nodes: tuple[Host, ...]
    cpus: int
    memory_mb: int
    node_cores: str
    even: bool
    """Whether nodes with less than a core compute as fast on a core that is slow just now."""
    node_link: str
    partitions: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path = CONFIG) -> Cluster:
        text = path.read_text()
        table: dict[str, Any] = tomllib.loads(text)
        network, nodes = table["network"], table["nodes"]
        hosts = tuple(Host(name, f"{network}.{11 + index}") for index, name in enumerate(nodes["names"]))
        limits = check_cores(str(nodes["cores"])), nodes.get("even", False), check_rate(nodes["link"])
        return cls(text, network, hosts, nodes["cpus"], nodes["memory_mb"], *limits, table["partitions"])

    @classmethod
    def running(cls) -> Cluster:
        """The cluster that is up; that of `CONFIG` where none is."""
        return cls.read(RUNNING if RUNNING.exists() else CONFIG)

    @property
    def controller(self) -> Host:
        return Host("control", f"{self.network}.2")

    def up(self) -> None:
        """Start the cluster and wait until every node is ready; does nothing where it is up already."""
        if problem := obstacle():
            raise ClusterError(problem)
        if (running := Cluster.running()).is_up():
            if running.text == self.text:
                return
            raise ClusterError(f"a cluster of another configuration is up ({RUNNING}): take it down first")
        self.down()  # what a crash left, if anything
        shutil.rmtree(LOGS, ignore_errors=True)
        for folder in (LOGS, HOME / "state", HOME / "run", HOME / "pmix", SLURM):
            folder.mkdir(parents=True, exist_ok=True)
        RUNNING.write_text(self.text)
        if shutil.which("cc"):
            run("cc", "-shared", "-fPIC", "-O2", "-o", str(NAP), str(Path(__file__).with_name("nap.c")))
        for name, text in slurm_files(self).items():
            (SLURM / name).touch(mode=0o600 if name == "slurmdbd.conf" else 0o644)  # slurmdbd insists
            (SLURM / name).write_text(f"{MARKER}\n{text}")
        make_bridge(f"{self.network}.1")
        start_controller(self.controller)
        for node in self.nodes:
            start_node(node, self.node_cores, self.node_link)
        self.keep_busy(self.node_cores)
        wait_until(self.is_up, START_TIME, f"the nodes are not ready; see {LOGS}")

    def down(self) -> None:
        """Stop the cluster, also what a crash or half an ``up`` left of it; only the logs stay."""
        wait_until(lambda: not signal_processes(signal.SIGTERM), STOP_TIME / 2)
        wait_until(lambda: not signal_processes(signal.SIGKILL), STOP_TIME, "some processes do not end")
        for link in links():
            run("ip", "link", "delete", link)
        for namespace in namespaces():
            run("ip", "netns", "delete", namespace)
        for group in cgroups():
            group.rmdir()
        for path in filter(is_ours, (SLURM / name for name in FILES)):
            path.unlink()
        for path in HOME.glob("*"):
            if path != LOGS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[Cluster]:
        """Up while the block runs; taken down at its end, unless a cluster was up before."""
        was_up = Cluster.running().is_up()
        # Nodes share this machine's cores: ranks that wait leave them to others, also in jobs that inherit this.
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
        try:
            self.up()
            yield self
        finally:
            if not was_up:
                self.down()

    def link(self, rate: str) -> None:
        """Change the speed of every node's link while the cluster runs."""
        for node in self.nodes:
            shape_link(node, check_rate(rate))

    def cores(self, cores: str) -> None:
        """Change every node's CPU time while the cluster runs."""
        for node in self.nodes:
            limit_cores(node, check_cores(cores))
        self.keep_busy(cores)

    def keep_busy(self, cores: str) -> None:
        """Keep this machine's cores busy whenever no node computes, if nodes have a part of them (see busy.py)."""
        ending = set()
        for process in processes_in(self.controller.namespace):
            with contextlib.suppress(OSError):
                if str(BUSY) in Path("/proc", str(process), "cmdline").read_text():
                    # While the machine is busy, one that only fills gaps would not get round to ending.
                    os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))
                    os.kill(process, signal.SIGTERM)
                    ending.add(process)
        wait_until(lambda: ending.isdisjoint(processes_in(self.controller.namespace)), STOP_TIME)
        if cores == UNLIMITED:
            return
        for core in sorted(os.sched_getaffinity(0)):
            files = [quota_file(node.cpu_group) for node in self.nodes if core_of(node) == core]
            even: list[object] = []
            if self.even and files and float(cores) <= 1:
                quota, _ = quota_and_period(float(cores))
                most = max(1.0, ROOM / (float(cores) * len(files)))
                even = [self.reference(), quota, most, *files]
            words = " ".join(f"'{word}'" for word in (sys.executable, BUSY, core, *even))
            start(self.controller, "sh", "-ec", f"{words} </dev/null >/dev/null 2>&1 &")

    def reference(self) -> float:
        """What a piece of computing takes on this machine at its fastest, s: the same as long as the cluster is up."""
        if not REFERENCE.exists():
            cores = os.sched_getaffinity(0)
            found = []
            for core in cores:
                os.sched_setaffinity(0, {core})
                found.append(busy.fastest(REFERENCE_TIME / len(cores)))
            os.sched_setaffinity(0, cores)
            REFERENCE.write_text(str(min(found)))
        return float(REFERENCE.read_text())

    def is_up(self) -> bool:
        """Whether every node answers and takes jobs, and accounts are kept of them."""
        return set(self.states().values()) <= USABLE and self.keeps_accounts()

    def keeps_accounts(self) -> bool:
        return is_ours(SLURM / "slurmdbd.conf") and accepts_connections(self.controller.address, ACCOUNTS_PORT)

    def states(self) -> dict[str, str]:
        """Slurm's word for the state of each node (``idle``, ...); ``gone`` where no controller answers."""
        states = dict.fromkeys((node.name for node in self.nodes), "gone")
        if is_ours(SLURM / "slurm.conf") and accepts_connections(self.controller.address, CONTROLLER_PORT):
            with contextlib.suppress(ClusterError):  # it may end at this very moment
                lines = run("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()
                states.update((node, state) for node, state in map(str.split, lines))
        return states

    def status(self) -> str:
        """The state of the cluster in a few lines."""
        states = self.states()
        kept = self.keeps_accounts()
        word = "up" if kept and set(states.values()) <= USABLE else "down"
        nodes = [f"{node.name:8} {states[node.name]:6} {limits(node)}" for node in self.nodes]
        return "\n".join([f"cluster: {word}", *nodes, f"accounts: {'kept' if kept else 'gone'}", f"logs: {LOGS}"])


# -- May it run here?


def obstacle() -> str | None:
    """Why no cluster can be started here, or None where it can."""
    if os.geteuid() != 0:
        return "the test cluster needs root"
    if not re.search(r"^ID(_LIKE)?=.*(debian|ubuntu)", Path("/etc/os-release").read_text(), re.MULTILINE):
        return "the test cluster needs Debian or Ubuntu"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"{', '.join(missing)} not found: run tests/cluster/install.sh"
    foreign = [str(SLURM / name) for name in FILES if (SLURM / name).exists() and not is_ours(SLURM / name)]
    if foreign:
        return f"{', '.join(foreign)}: not written by the test cluster; this machine seems to have a Slurm of its own"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True)
    return f"no namespaces can be made here: {probe.stderr.strip()}" if probe.returncode else None


def is_ours(path: Path) -> bool:
    return path.is_file() and path.read_text().startswith(MARKER)


def accepts_connections(address: str, port: int) -> bool:
    """Whether a daemon listens there; Slurm's own commands would wait ten seconds for one."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


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


def start_controller(host: Host) -> None:
    """Start munge (the cluster's own, with its own key, for all hosts), the accounts and Slurm's controller."""
    connect(host)
    key = HOME / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    files = {"key": key, "pid": HOME / "run/munged.pid", "log": LOGS / "munged.log", "seed": HOME / "munged.seed"}
    start(host, "munged", f"--socket={MUNGE_SOCKET}", *(f"--{kind}-file={path}" for kind, path in files.items()))
    start_accounts(host)
    start(host, "slurmctld")


def start_accounts(host: Host) -> None:
    """Start Slurm's daemon for accounts, with a database of its own that knows the cluster, an account and root."""
    start_database(host)
    start(host, "slurmdbd", MYSQL_UNIX_PORT=DATABASE_SOCKET)
    answers = partial(accepts_connections, host.address, ACCOUNTS_PORT)
    wait_until(answers, START_TIME, f"slurmdbd does not answer, see {LOGS}: the cluster keeps no accounts")
    known = ["Cluster - {0}", "Parent - root", "Account - {0}", "Parent - {0}", "User - root:DefaultAccount={0}"]
    file = HOME / "accounts.cfg"
    file.write_text("\n".join(known).format(NAME))
    run("sacctmgr", "--immediate", "--quiet", "load", str(file))


def start_database(host: Host) -> None:
    """Start MariaDB with a new, empty database. Root needs no password, nobody else comes in."""
    log = LOGS / "mariadbd.log"
    options = (
        "--no-defaults", "--user=root", f"--datadir={DATABASE}", f"--log-error={log}",
        "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M",
        "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync",
        "--skip-networking", f"--socket={DATABASE_SOCKET}",
    )  # fmt: skip
    DATABASE.mkdir(mode=0o700)
    # As mariadb-install-db does, which is in another package, less the help texts, which take longer than all else.
    tables = "".join(file.read_text() for file in sorted(SYSTEM_TABLES.glob("mysql_system_tables*.sql")))
    script = HOME / "database.sql"
    script.write_text(f"create database mysql;\nuse mysql;\nset @auth_root_socket='root';\n{tables}")
    server = " ".join(("mariadbd", *options))
    try:
        start(host, "sh", "-ec", f"{server} --bootstrap <{script}; {server} </dev/null >/dev/null 2>&1 &")
        # Its socket is there before it has looked at its tables, and may be left alone again.
        wait_until(lambda: "ready for connections" in log.read_text(), START_TIME, "it does not get ready")
    except ClusterError as error:
        raise ClusterError(f"the database of the accounts does not start, see {log} ({error})") from None


def start_node(node: Host, cores: str, link: str) -> None:
    connect(node)
    shape_link(node, link)
    limit_cores(node, UNLIMITED)  # slurmd may start at full speed
    start(node, "slurmd", "-N", node.name)
    limit_cores(node, cores)


def start(host: Host, *daemon: str, **variables: object) -> None:
    """Start a daemon on a host: with its network, host name, shared memory, PMIx folder and CPU time.

    Not ``ip netns exec``: it mounts another /sys, where slurmd finds no cgroups.
    """
    pmix = host.disk / "pmix"
    pmix.mkdir(parents=True, exist_ok=True)
    setup = [
        *(f"export {name}='{value}'" for name, value in variables.items()),
        f"hostname {host.name}",
        f"mount --bind {pmix} {HOME}/pmix",
        "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        'exec "$@"',
    ]
    if host.cpu_group.exists():
        setup.insert(0, f"echo $$ >{host.cpu_group}/cgroup.procs")
    enter = ["nsenter", f"--net={NAMESPACES / host.namespace}", "unshare", "--uts", "--mount"]
    try:
        run(*enter, "sh", "-ec", "\n".join(setup), "sh", *daemon)
    except ClusterError as error:
        raise ClusterError(f"{daemon[0]} does not start on {host.name}; see {LOGS} ({error})") from None


def slurm_files(cluster: Cluster) -> dict[str, str]:
    """The texts of `FILES`, without the marker."""
    settings = {
        "ClusterName": NAME,
        "SlurmctldHost": f"{cluster.controller.name}({cluster.controller.address})",
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={MUNGE_SOCKET}",
        "StateSaveLocation": HOME / "state",
        "SlurmdSpoolDir": HOME / "hosts/%n/spool",
        "SlurmctldPidFile": HOME / "run/slurmctld.pid",
        "SlurmdPidFile": HOME / "run/slurmd-%n.pid",
        "SlurmctldLogFile": LOGS / "slurmctld.log",
        "SlurmdLogFile": LOGS / "slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SlurmdParameters": "config_overrides",  # a node has the CPUs written here, not this machine's
        "ReturnToService": "2",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": cluster.controller.address,
        "AccountingStoragePass": MUNGE_SOCKET,  # it is a socket's name where munge is the authentication
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "0",  # only at its end, so that measurements are left alone
    }
    accounts = {
        "DbdHost": cluster.controller.name,
        "DbdAddr": cluster.controller.address,
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={MUNGE_SOCKET}",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",  # the socket that MYSQL_UNIX_PORT names
        "StorageUser": "root",
        "PidFile": HOME / "run/slurmdbd.pid",
        "LogFile": LOGS / "slurmdbd.log",
    }
    lines, dbd_lines = ([f"{key}={value}" for key, value in table.items()] for table in (settings, accounts))
    size = f"CPUs={cluster.cpus} RealMemory={cluster.memory_mb}"
    lines += [f"NodeName={node.name} NodeAddr={node.address} NodeHostname={node.name} {size}" for node in cluster.nodes]
    default = "YES"
    for name, nodes in cluster.partitions.items():
        lines.append(f"PartitionName={name} Nodes={','.join(nodes)} Default={default} MaxTime=INFINITE State=UP")
        default = "NO"
    mpi = f"PMIxCliTmpDirBase={HOME}/pmix\n"  # each host has its own folder there
    cgroup = "CgroupPlugin=cgroup/v1\n"  # Slurm uses no cgroups here; this plugin alone starts without systemd
    return dict(zip(FILES, ("\n".join(lines) + "\n", mpi, cgroup, "\n".join(dbd_lines) + "\n"), strict=True))


# -- Limits, also while the cluster runs


def check_rate(text: str) -> str:
    if text != UNLIMITED and not re.fullmatch(r"[1-9]\d*(kbit|mbit|gbit)", text):
        raise ClusterError(f"link speed {text!r}: expected e.g. 100mbit or 1gbit, or {UNLIMITED}")
    return text


def check_cores(text: str) -> str:
    if text != UNLIMITED and not (re.fullmatch(r"\d+(\.\d+)?", text) and float(text) >= 0.1):
        raise ClusterError(f"cores {text!r}: expected a number from 0.1, or {UNLIMITED}")
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


def limit_cores(node: Host, cores: str) -> None:
    """Give all processes of a node together the CPU time of ``cores`` cores.

    In periods as short as the kernel allows, so that a node is slow rather than stop-and-go: a message that finds its
    receiver stopped waits for the next period.
    """
    wanted = None if cores == UNLIMITED else float(cores)
    try:
        write_quota(node.cpu_group, wanted)
    except OSError as error:
        if wanted is not None:
            raise ClusterError(f"CPU time cannot be limited here ({error}): use {UNLIMITED} cores") from None
    shared = wanted is not None and wanted <= 1
    bind(node, core_of(node) if shared else None)
    if shared:
        shorten_slices(node)


def write_quota(group: Path, cores: float | None) -> None:
    """Write quota and period in µs (None: no limit), and the largest weight, for version 1 or 2 of the cgroups.

    The weight is for what runs beside the cluster: a node gets its quota however busy the rest of the machine is.
    """
    quota, period = quota_and_period(cores) if cores else (None, 100_000)
    if has_unified_cgroups():
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir(exist_ok=True)
        quota_file(group).write_text(f"{'max' if quota is None else quota} {period}")
        (group / "cpu.weight").write_text("10000")
    else:
        group.mkdir(exist_ok=True)
        quota_file(group).write_text("-1")  # else a shorter period may be refused
        (group / "cpu.cfs_period_us").write_text(str(period))
        quota_file(group).write_text(str(-1 if quota is None else quota))
        (group / "cpu.shares").write_text("262144")


def quota_file(group: Path) -> Path:
    """Where the quota of a cgroup stands; a number alone may be written to it, which leaves the period as it is."""
    return group / ("cpu.max" if has_unified_cgroups() else "cpu.cfs_quota_us")


def quota_and_period(cores: float) -> tuple[int, int]:
    """The shortest there are for so many cores, µs."""
    period = max(SHORTEST_PERIOD, round(SHORTEST_QUOTA / cores))
    return round(cores * period), period


def core_of(node: Host) -> int:
    """The core of this machine on which a node is that has no more than one."""
    machine = sorted(os.sched_getaffinity(0))
    return machine[int(node.address.rsplit(".", 1)[1]) % len(machine)]


def bind(node: Host, core: int | None) -> None:
    """Bind a node's processes, and those they start, to one core of this machine; None: to any.

    The kernel hands a quota out to the cores by slices longer than such a quota: on two cores one thread would get all
    of it in one period, and another in the next.
    """
    cores = os.sched_getaffinity(0) if core is None else {core}
    for thread in threads(node):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cores)


def shorten_slices(node: Host) -> None:
    """Give a node's processes, and those they start, the shortest time slices (Linux 6.12; without effect before).

    Whoever has a shorter slice gets the core at once when it wakes up: a message does not wait until others on the
    core have had theirs, milliseconds at a time.
    """
    if platform.machine() in SET_ATTRIBUTES:
        attributes = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, SHORTEST_SLICE, 0, 0)
        for thread in threads(node):
            ctypes.CDLL(None).syscall(SET_ATTRIBUTES[platform.machine()], thread, attributes, 0)


def threads(node: Host) -> list[int]:
    """Every thread on a node."""
    found = processes_in(node.namespace)
    return [int(thread.name) for process in found for thread in Path("/proc", str(process), "task").glob("*")]


def has_unified_cgroups() -> bool:
    """Whether this machine has version 2 of the cgroups."""
    return (CGROUPS / "cgroup.controllers").exists()


def limits(node: Host) -> str:
    """The limits in force on a node."""
    if not (NAMESPACES / node.namespace).exists():
        return ""
    shaper = re.search(r"tbf .*rate (\S+)", run("tc", "qdisc", "show", "dev", node.port))
    return f"link {shaper[1].lower() if shaper else UNLIMITED}, cores {cores_of(node.cpu_group)}"


def cores_of(group: Path) -> str:
    """The CPU time in force, in cores."""
    files = [quota_file(group), *([] if has_unified_cgroups() else [group / "cpu.cfs_period_us"])]
    words = " ".join(file.read_text() for file in files).split() if group.exists() else ["max"]
    return UNLIMITED if words[0] in ("max", "-1") else f"{int(words[0]) / int(words[1]):.2g}"


# -- What there is of the cluster


def processes() -> list[int]:
    return [process for namespace in namespaces() for process in processes_in(namespace)]


def processes_in(namespace: str) -> list[int]:
    return [int(process) for process in run("ip", "netns", "pids", namespace).split()]


def signal_processes(number: signal.Signals) -> list[int]:
    """Signal every process of the cluster; returns the processes found (none: all have ended)."""
    found = processes()
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return found


def namespaces() -> list[str]:
    return [path.name for path in NAMESPACES.glob(f"{PREFIX}*")]


def links() -> list[str]:
    devices = Path("/sys/class/net")
    return [path.name for pattern in (f"{PORT_PREFIX}*", BRIDGE) for path in devices.glob(pattern)]


def cgroups() -> list[Path]:
    return [path for folder in (CGROUPS, CGROUPS / "cpu") for path in folder.glob(f"{PREFIX}*")]


# -- Small helpers, and the command line


def run(*words: str, timeout: float = START_TIME) -> str:
    """Run a command and return what it printed; raises `ClusterError` with its complaint where it fails."""
    result = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    if result.returncode:
        raise ClusterError(f"{words[0]} failed: {result.stderr.strip() or f'exit status {result.returncode}'}")
    return result.stdout


def queue() -> list[str]:
    """Ids of the jobs that are waiting or running."""
    for _ in range(3):  # a controller that is busy closes connections
        with contextlib.suppress(ClusterError):
            return run("squeue", "--noheader", "--format=%A").split()
        time.sleep(2)
    raise ClusterError("squeue fails three times")


def wait_until(done: Callable[[], bool], seconds: float, complaint: str | None = None) -> None:
    """Wait until ``done``, or for so long; then raises `ClusterError` where there is a complaint to make."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            if complaint:
                raise ClusterError(complaint)
            return
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description="The Slurm test cluster of stallpoint (see README.md beside it).")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it; harmless where it is up")
    up.add_argument("--config", type=Path, default=CONFIG, help="another file like cluster.toml")
    commands.add_parser("down", help="stop it and remove all of it but the logs")
    commands.add_parser("status", help="say what is up; exit status 1 where it is down")
    commands.add_parser("link", help="change the nodes' links").add_argument("rate", help=f"e.g. 100mbit, {UNLIMITED}")
    commands.add_parser("cores", help="change the nodes' CPU time").add_argument("cores", help=f"e.g. 0.5, {UNLIMITED}")
    options = parser.parse_args()
    try:
        return perform(Cluster.read(options.config) if options.command == "up" else Cluster.running(), options)
    except ClusterError as error:
        print(f"cluster.py: {error}", file=sys.stderr)
        return 2


def perform(cluster: Cluster, options: argparse.Namespace) -> int:
    match options.command:
        case "up":
            cluster.up()
        case "down":
            cluster.down()
            return 0
        case "link":
            cluster.link(options.rate)
        case "cores":
            cluster.cores(options.cores)
    status = cluster.status()
    print(status)
    return 0 if status.startswith("cluster: up") else 1


if __name__ == "__main__":
    sys.exit(main())
