"""The memory that a worker may use: of the machine, of cgroups, of Slurm."""

import os
from pathlib import Path

import pytest
import torch

from stallpoint.measure.machine import available_memory
from stallpoint.slurm.own_job import memory_of_node

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MOUNTS = {
    "cgroup": "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    "cgroup2": "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
}


def machine(root: Path, version: str, limits: dict[str, str]) -> Path:
    """A made-up root with this process in the cgroup job/step, and the limits of some cgroups."""
    (root / "proc/self").mkdir(parents=True)
    line, mount, file = {
        "cgroup": ("4:memory:/job/step", "memory", "memory.limit_in_bytes"),
        "cgroup2": ("0::/job/step", "", "memory.max"),
    }[version]
    (root / "proc/self/cgroup").write_text(f"{line}\n")
    (root / "proc/self/mountinfo").write_text(f"{MOUNTS[version]}\n")
    for group, limit in limits.items():
        folder = root / "sys/fs/cgroup" / mount / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"{limit}\n")
    return root


@pytest.mark.parametrize("version", MOUNTS)
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, MACHINE),
        ({"job": str(2**28), "job/step": str(2**29)}, 2**28),
        ({"job/step": str(2**27)}, 2**27),
        ({"job/step": "max"}, MACHINE),
        ({"job/step": "9223372036854771712"}, MACHINE),
        ({"job/step": str(2 * MACHINE)}, MACHINE),
    ],
)
def test_the_least_limit_counts(version: str, limits: dict[str, str], expected: int, tmp_path: Path) -> None:
    root = machine(tmp_path, version, limits)
    assert available_memory.host_memory(1, root=root) == expected
    assert available_memory.host_memory(4, root=root) == expected // 4
    assert available_memory.host_memory(4, 2**20, root=root) == 2**20
    assert available_memory.host_memory(4, 4 * MACHINE, root=root) == expected // 4


def test_a_cpu_has_no_gpus_memory() -> None:
    assert available_memory.gpu_memory(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("requested", "nodes", "expected"),
    [
        ("cpu=4,mem=8000M,node=2,billing=4", 2, 4000 * 2**20),
        ("mem=1.5G", 1, 3 * 2**29),
        ("cpu=4,node=2", 2, None),
        ("cpu=4,mem=8000M", None, None),
        ("", 1, None),
    ],
)
def test_slurms_memory_is_that_of_a_node(requested: str, nodes: int | None, expected: int | None) -> None:
    assert memory_of_node({"requested": requested, "nodes": nodes}) == expected


def test_outside_slurm_nothing_was_given() -> None:
    assert memory_of_node(None) is None
