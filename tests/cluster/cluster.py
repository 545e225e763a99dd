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
import struct
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import busy
import storage_node
from hosts import (
    BRIDGE,
    CGROUPS,
    HOME,
    LOGS,
    NAMESPACES,
    OWN,
    PORT_PREFIX,
    PREFIX,
    UNLIMITED,
    ClusterError,
    Host,
    accepts_connections,
    check_rate,
    connect,
    has_unified_cgroups,
    make_bridge,
    processes_in,
    run,
    shape_link,
    start,
    wait_until,
)

MUNGE_SOCKET = HOME / "run" / "munge.socket"
SLURM = Path("/etc/slurm")  # the default place: a job step of Snakemake's Slurm executor drops SLURM_CONF
CONFIG = Path(__file__).with_name("cluster.toml")
RUNNING = HOME / "cluster.toml"  # the configuration of the cluster that is up
REFERENCE = HOME / "reference"  # what a piece of computing takes at the fastest, for nodes that are kept even
NAP = HOME / "nap.so"  # to be preloaded on nodes with less than a core: see nap.c
BUSY = Path(busy.__file__)

DATABASE = HOME / "database"  # of the accounts; for root alone, its socket included
DATABASE_SOCKET = DATABASE / "socket"
SYSTEM_TABLES = Path("/usr/share/mysql")  # where the package of the database has the SQL that makes them

FILES = ("slurm.conf", "mpi.conf", "cgroup.conf", "gres.conf", "slurmdbd.conf")  # in SLURM, written by ``up``
MARKER = "# Written by the test cluster of stallpoint (tests/cluster/cluster.py), which also removes it."
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "sinfo", "munged", "ip", "tc", "nsenter", "unshare")
USABLE = {"idle", "mix", "alloc", "comp"}  # states of a node that takes jobs
CONTROLLER_PORT, ACCOUNTS_PORT = 6817, 6819  # Slurm's own defaults
NAME = "stallpoint"  # of the cluster, and of the account that jobs are charged to

SHORTEST_PERIOD = SHORTEST_QUOTA = 1_000  # µs; the kernel's limits
REFERENCE_TIME = 4.0  # s for which to look for it, on all cores together
ROOM = 0.9  # of a core, for nodes that are kept even where it is slow
SHORTEST_SLICE = 100_000  # ns; the kernel's limit
SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}  # number of the system call sched_setattr
START_TIME = 300.0  # s until the nodes have to be ready, on a machine that may be busy
END_TIME = 5.0  # s in which processes that are told to end may do so themselves
STOP_TIME = 120.0  # s until those that are killed have to be gone


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
    storage_link: str | None = None
    """Speed of the storage node's link; None: there is no such node."""

    @classmethod
    def read(cls, path: Path = CONFIG) -> Cluster:
        text = path.read_text()
        table: dict[str, Any] = tomllib.loads(text)
        network, nodes = table["network"], table["nodes"]
        hosts = tuple(Host(name, f"{network}.{11 + index}") for index, name in enumerate(nodes["names"]))
        limits = check_cores(str(nodes["cores"])), nodes.get("even", False), check_rate(nodes["link"])
        storage = check_rate(table["storage"]["link"]) if "storage" in table else None
        return cls(text, network, hosts, nodes["cpus"], nodes["memory_mb"], *limits, table["partitions"], storage)

    @classmethod
    def running(cls) -> Cluster:
        """The cluster that is up; that of `CONFIG` where none is."""
        return cls.read(RUNNING if RUNNING.exists() else CONFIG)

    @property
    def controller(self) -> Host:
        return Host("control", f"{self.network}.2")

    @property
    def storage(self) -> Host | None:
        """The storage node, where there is one."""
        return Host(storage_node.NAME, f"{self.network}.3") if self.storage_link else None

    def up(self) -> None:
        """Start the cluster and wait until every node is ready; does nothing where it is up already."""
        if problem := obstacle() or (self.storage and storage_node.obstacle()):
            raise ClusterError(problem)
        if (running := Cluster.running()).is_up():
            if running.text == self.text:
                return
            raise ClusterError(f"a cluster of another configuration is up ({RUNNING}): take it down first")
        self.down()  # what a crash left, if anything
        shutil.rmtree(LOGS, ignore_errors=True)
        for folder in (LOGS, HOME / "state", HOME / "run", *(HOME / name for name in OWN), SLURM):
            folder.mkdir(parents=True, exist_ok=True)
        RUNNING.write_text(self.text)
        if shutil.which("cc"):
            run("cc", "-shared", "-fPIC", "-O2", "-o", str(NAP), str(Path(__file__).with_name("nap.c")))
        for name, text in slurm_files(self).items():
            (SLURM / name).touch(mode=0o600 if name == "slurmdbd.conf" else 0o644)  # slurmdbd insists
            (SLURM / name).write_text(f"{MARKER}\n{text}")
        make_bridge(f"{self.network}.1")
        start_controller(self.controller)
        mounting: Sequence[str] = ()
        if self.storage and self.storage_link:
            connect(self.storage)
            storage_node.serve(self.storage)
            shape_link(self.storage, self.storage_link)
            mounting = storage_node.mounting(self.storage)
        for node in self.nodes:
            start_node(node, self.node_cores, self.node_link, mounting)
        self.keep_busy(self.node_cores)
        wait_until(self.is_up, START_TIME, f"the nodes are not ready; see {LOGS}")

    def down(self) -> None:
        """Stop the cluster, also what a crash or half an ``up`` left of it; only the logs stay."""
        wait_until(lambda: not signal_processes(signal.SIGTERM), END_TIME)
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
        """Change the speed of every node's link while the cluster runs, the storage node's too."""
        for host in (*self.nodes, *([self.storage] if self.storage else [])):
            shape_link(host, check_rate(rate))

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
        """Whether every node answers and takes jobs, accounts are kept of them, and the volume is served, if any."""
        served = self.storage is None or storage_node.is_served(self.storage)
        return set(self.states().values()) <= USABLE and self.keeps_accounts() and served

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
        lines = [f"cluster: {'up' if self.is_up() else 'down'}"]
        lines += [f"{node.name:8} {states[node.name]:6} {limits(node)}" for node in self.nodes]
        if self.storage:
            word = "served" if storage_node.is_served(self.storage) else "gone"
            lines += [f"{self.storage.name:8} {word:6} {limits(self.storage)}, on the nodes {storage_node.VOLUME}"]
        return "\n".join([*lines, f"accounts: {'kept' if self.keeps_accounts() else 'gone'}", f"logs: {LOGS}"])


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


# -- Starting


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


def start_node(node: Host, cores: str, link: str, mounting: Sequence[str]) -> None:
    connect(node)
    shape_link(node, link)
    limit_cores(node, UNLIMITED)  # slurmd may start at full speed
    start(node, "slurmd", "-N", node.name, before=mounting)
    limit_cores(node, cores)


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
        "GresTypes": "gpu",  # two on each node, counted and given away; no GPU is behind them
        "SlurmdParameters": "config_overrides",  # a node has the CPUs written here, not this machine's
        "SchedulerParameters": "batch_sched_delay=0",  # else a job waits up to 3 s for others to be scheduled with
        "ReturnToService": "2",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": cluster.controller.address,
        "AccountingStorageTRES": "gres/gpu",
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
    size = f"CPUs={cluster.cpus} RealMemory={cluster.memory_mb} Gres=gpu:2"
    lines += [f"NodeName={node.name} NodeAddr={node.address} NodeHostname={node.name} {size}" for node in cluster.nodes]
    default = "YES"
    for name, nodes in cluster.partitions.items():
        lines.append(f"PartitionName={name} Nodes={','.join(nodes)} Default={default} MaxTime=INFINITE State=UP")
        default = "NO"
    mpi = f"PMIxCliTmpDirBase={HOME}/pmix\n"  # each host has its own folder there
    cgroup = "CgroupPlugin=cgroup/v1\n"  # Slurm uses no cgroups here; this plugin alone starts without systemd
    gres = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"  # Slurm asks for a device of each
    return dict(zip(FILES, ("\n".join(lines) + "\n", mpi, cgroup, gres, "\n".join(dbd_lines) + "\n"), strict=True))


# -- Limits, also while the cluster runs


def check_cores(text: str) -> str:
    if text != UNLIMITED and not (re.fullmatch(r"\d+(\.\d+)?", text) and float(text) >= 0.1):
        raise ClusterError(f"cores {text!r}: expected a number from 0.1, or {UNLIMITED}")
    return text


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
    """Write quota and period in µs (None: no limit), and the weight, for version 1 or 2 of the cgroups.

    A node with a quota gets it however busy the rest of the machine is; one without leaves the others their share, as
    ranks that wait in a loop would take all there is.
    """
    quota, period = quota_and_period(cores) if cores else (None, 100_000)
    if has_unified_cgroups():
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir(exist_ok=True)
        quota_file(group).write_text(f"{'max' if quota is None else quota} {period}")
        (group / "cpu.weight").write_text("10000" if cores else "100")
    else:
        group.mkdir(exist_ok=True)
        quota_file(group).write_text("-1")  # else a shorter period may be refused
        (group / "cpu.cfs_period_us").write_text(str(period))
        quota_file(group).write_text(str(-1 if quota is None else quota))
        (group / "cpu.shares").write_text("262144" if cores else "1024")


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


def queue() -> list[str]:
    """Ids of the jobs that are waiting or running."""
    for _ in range(3):  # a controller that is busy closes connections
        with contextlib.suppress(ClusterError):
            return run("squeue", "--noheader", "--format=%A").split()
        time.sleep(2)
    raise ClusterError("squeue fails three times")


def main() -> int:
    parser = argparse.ArgumentParser(description="The Slurm test cluster of stallpoint (see README.md beside it).")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it; harmless where it is up")
    up.add_argument("--config", type=Path, default=CONFIG, help="another file like cluster.toml")
    commands.add_parser("down", help="stop it and remove all of it but the logs")
    commands.add_parser("status", help="say what is up; exit status 1 where it is down")
    commands.add_parser("link", help="change all links, the storage node's too").add_argument(
        "rate", help=f"e.g. 100mbit, {UNLIMITED}"
    )
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
