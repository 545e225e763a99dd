"""Description of a rank's machine and software: the table ``environments``."""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import stallpoint
from stallpoint.errors import CannotRun
from stallpoint.measure.device import device_of
from stallpoint.measure.jobs import mpi_parameters
from stallpoint.measure.machine import available_memory
from stallpoint.measure.machine.caches import caches
from stallpoint.measure.machine.node_addresses import address_family
from stallpoint.measure.machine.sensors import gpu_max_clock, kernel_id
from stallpoint.measure.mpi import MPI
from stallpoint.measure.synchronisation.rendezvous import network_of_ranks
from stallpoint.measure.training import precision
from stallpoint.measure.world import World
from stallpoint.study.cells import Cell


def describe(cell: Cell, world: World, memory_of_node: int | None = None) -> dict[str, Any]:
    """Return this rank's row of `tables.ENVIRONMENTS`, without cell and rank; called on all ranks.

    `memory_of_node` is the scheduler's memory limit for the node, bytes.
    """
    commit, dirty = _own_git_state()
    device = device_of(cell)
    cache_sizes = caches(device)
    interface, network = network_of_ranks(world)
    cpu = cpu_model(Path("/proc/cpuinfo").read_text())
    return {
        "node": _node_name(world, cell.anonymise),
        "device": cell.device,
        "cpu_model": cpu or platform.machine(),
        "gpu_model": torch.cuda.get_device_name() if cell.device == "cuda" else "",
        **cpu_clocks(cpu),
        "gpu_max_clock": gpu_max_clock(torch.cuda.current_device()) if cell.device == "cuda" else None,
        "cores_available": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
        "core_cache_bytes": cache_sizes.core,
        "cache_bytes": cache_sizes.largest,
        "memory_bytes": node_memory(),
        "available_memory": available_memory.host_memory(
            world.comm.allgather(kernel_id()).count(kernel_id()),
            memory_of_node and memory_of_node // cell.workers_per_node,
        ),
        "gpu_available_memory": available_memory.gpu_memory(device),
        "kernel": operating_system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **libraries(device),
        "precision_in_force": precision.in_force(cell.precision, device),
        "mpi4py": version("mpi4py"),
        "mpi_library": MPI.Get_library_version().splitlines()[0].rstrip("\0"),
        "mpi_parameters": mpi_parameters.in_force(world.reduction),
        "interface": interface,
        "subnet": address_family(network) if cell.anonymise else network,
        "stallpoint": stallpoint.__version__,
        "git_commit": commit,
        "git_dirty": dirty,
        "slurm_job_id": os.environ.get("SLURM_JOB_ID", ""),
    }


def operating_system() -> str:
    """Return the names of distribution (if known) and kernel: ``Debian GNU/Linux 12 (bookworm), Linux 6.1.0``."""
    kernel = f"{platform.system()} {platform.release()}"
    with suppress(OSError, KeyError):
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    return kernel


def cpu_model(cpuinfo: str) -> str:
    """Return the model of the first CPU in the text of /proc/cpuinfo; empty if unnamed (as on some ARM kernels)."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return ""


@cache
def _own_git_state() -> tuple[str, bool]:
    """Return `git_state` of the working directory. A process asks only once, since each call runs git twice."""
    return git_state()


def git_state(folder: Path = Path()) -> tuple[str, bool]:
    """Return the commit of the repository that holds `folder`, and whether tracked files differ from the commit."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return "", False


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def _node_name(world: World, anonymise: bool) -> str:
    """Return the host name. If `anonymise`, return ``node0``, ``node1``, ... instead, equal for all ranks of a node."""
    names = world.comm.allgather(socket.gethostname())
    name = names[world.rank]
    return f"node{list(dict.fromkeys(names)).index(name)}" if anonymise else name


def choose_gpu(world: World) -> None:
    """Choose a GPU of the node for this worker; `CannotRun` if there is no GPU, or if workers would share a GPU."""
    if not torch.cuda.is_available():
        raise CannotRun("no GPU that PyTorch can use (device: cuda)")
    node = world.comm.Split_type(MPI.COMM_TYPE_SHARED)
    torch.cuda.set_device(node.rank % torch.cuda.device_count())
    gpu_ids = node.allgather(str(torch.cuda.get_device_properties().uuid))
    node.Free()
    if len(set(gpu_ids)) < len(gpu_ids):
        raise CannotRun(f"{len(gpu_ids)} workers on a node with {len(set(gpu_ids))} GPU(s) they can use (device: cuda)")


def node_memory() -> int:
    """Return the memory of this node, bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq")


def cpu_clocks(cpu_model: str, cpufreq: Path = _CPUFREQ) -> dict[str, float | None]:
    """Return the columns of `tables.ENVIRONMENTS` with the CPU's clocks, Hz; None if unknown.

    The nominal clock (without turbo) is in the names of older models, else in ``base_frequency`` of Intel's driver.
    """
    match = re.search(r"@ *([\d.]+) *GHz", cpu_model)
    clock = float(match[1]) * 1e9 if match else _kilohertz(cpufreq / "base_frequency")
    return {"cpu_nominal_clock": clock, "cpu_max_clock": _kilohertz(cpufreq / "cpuinfo_max_freq")}


def _kilohertz(file: Path) -> float | None:
    with suppress(OSError, ValueError):
        return float(file.read_text()) * 1e3
    return None


_DRIVER = Path("/proc/driver/nvidia/version")
_BACKENDS: Any = torch.backends
_NCCL: Any = torch.cuda.nccl


def libraries(device: torch.device) -> dict[str, Any]:
    """Return the columns of `tables.ENVIRONMENTS` that describe libraries. On a CPU, columns about a GPU's libraries
    are empty or False."""
    gpu, config = device.type == "cuda", torch.__config__.show()
    nccl = gpu and torch.distributed.is_available() and torch.distributed.is_nccl_available()
    cudnn, onednn = _BACKENDS.cudnn, _BACKENDS.mkldnn
    return {
        "cuda": torch.version.cuda or "" if gpu else "",
        "cudnn": cudnn_version(cudnn.version()) if gpu else "",
        "nccl": ".".join(map(str, _NCCL.version())) if nccl else "",
        "driver": driver_version(_DRIVER.read_text()) if gpu and _DRIVER.exists() else "",
        "blas": blas(config),
        "onednn": _first_match(r"(?:MKL-DNN|oneDNN) v(\S+)", config),
        "cudnn_in_force": gpu and cudnn.is_available() and bool(cudnn.enabled),
        "onednn_in_force": not gpu and onednn.is_available() and bool(onednn.enabled),
    }


def cudnn_version(number: int | None) -> str:
    """Return cuDNN's version as text: ``9.1.2`` for the number 90102, ``8.9.7`` for 8907 (versions before 9)."""
    if number is None:
        return ""
    unit = 10_000 if number >= 90_000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def driver_version(text: str) -> str:
    """Return the driver's version, such as ``535.54.03``, from the text of /proc/driver/nvidia/version."""
    return _first_match(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s", text)


def blas(config: str) -> str:
    """Return the BLAS library, such as ``mkl 2024.2``, from PyTorch's build configuration; only MKL has a version."""
    name = _first_match(r"BLAS_INFO=([^,\s]+)", config)
    version = _first_match(r"Math Kernel Library Version (\d+(?:\.\d+)*)", config) if name == "mkl" else ""
    return f"{name} {version}".strip()


def _first_match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""
