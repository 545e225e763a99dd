"""The machine and the software one rank really uses."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
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
from stallpoint.measure.machine.libraries import libraries
from stallpoint.measure.machine.rated_clocks import cpu_clocks
from stallpoint.measure.machine.sensors import gpu_max_clock, kernel_id
from stallpoint.measure.mpi import MPI
from stallpoint.measure.training import precision
from stallpoint.measure.world import World
from stallpoint.study.cells import Cell


def describe(cell: Cell, world: World, memory_of_node: int | None = None) -> dict[str, Any]:
    """This rank's row of `tables.ENVIRONMENTS`, less cell and rank; all ranks call it together.

    A scheduler may have given the cell less than all `memory_of_node`, bytes.
    """
    commit, dirty = _own_git_state()
    device = device_of(cell)
    known = caches(device)
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
        "core_cache_bytes": known.core,
        "cache_bytes": known.largest,
        "memory_bytes": node_memory(),
        "available_memory": available_memory.of_host(
            world.comm.allgather(kernel_id()).count(kernel_id()),
            memory_of_node and memory_of_node // cell.workers_per_node,
        ),
        "gpu_available_memory": available_memory.of_gpu(device),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        **libraries(device),
        "precision_in_force": precision.in_force(cell.precision, device),
        "mpi4py": version("mpi4py"),
        "mpi_library": MPI.Get_library_version().splitlines()[0].rstrip("\0"),
        "mpi_parameters": mpi_parameters.in_force(world.reduction),
        "stallpoint": stallpoint.__version__,
        "git_commit": commit,
        "git_dirty": dirty,
        "slurm_job_id": os.environ.get("SLURM_JOB_ID", ""),
    }


def cpu_model(cpuinfo: str) -> str:
    """Model of the first CPU in the text of /proc/cpuinfo; empty where it names none (as on some ARM kernels)."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return ""


@cache
def _own_git_state() -> tuple[str, bool]:
    """`git_state` of the workflow, asked once by a process: visits are many, and each would wait for two programs."""
    return git_state()


def git_state(folder: Path = Path()) -> tuple[str, bool]:
    """Commit of the repository that holds `folder`, and whether files it tracks were changed since."""
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
    """Host name, or a number that is the same for all ranks of one node."""
    names = world.comm.allgather(socket.gethostname())
    own = names[world.rank]
    return f"node{list(dict.fromkeys(names)).index(own)}" if anonymise else own


def choose_gpu(world: World) -> None:
    """Make one GPU of the node this worker's own; `CannotRun` where there is none or workers would share one."""
    if not torch.cuda.is_available():
        raise CannotRun("no GPU that PyTorch can use (device: cuda)")
    node = world.comm.Split_type(MPI.COMM_TYPE_SHARED)
    torch.cuda.set_device(node.rank % torch.cuda.device_count())
    used = node.allgather(str(torch.cuda.get_device_properties().uuid))
    node.Free()
    if len(set(used)) < len(used):
        raise CannotRun(f"{len(used)} workers on a node with {len(set(used))} GPU(s) they can use (device: cuda)")


def node_memory() -> int:
    """Memory of this node, bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
