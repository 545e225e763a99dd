"""The cores that may be computed with: of the affinity mask, of cgroups' quotas."""

import os
from pathlib import Path

import pytest

from stallpoint.measure.machine.usable_cores import quota_of_cgroups, usable_cores

VERSIONS = {
    "cgroup": ("4:cpu:/job/step", "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", "cpu"),
    "cgroup2": ("0::/job/step", "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", ""),
}
MASK = len(os.sched_getaffinity(0))


def machine(root: Path, version: str, quotas: dict[str, int]) -> Path:
    """A made-up root with this process in the cgroup job/step, and the quotas of some cgroups, in µs of 100,000."""
    group, mount, below = VERSIONS[version]
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"{group}\n")
    (root / "proc/self/mountinfo").write_text(f"{mount}\n")
    for name, limit in quotas.items():
        folder = root / "sys/fs/cgroup" / below / name
        folder.mkdir(parents=True, exist_ok=True)
        if version == "cgroup2":
            (folder / "cpu.max").write_text(f"{limit if limit > 0 else 'max'} 100000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{limit}\n")
            (folder / "cpu.cfs_period_us").write_text("100000\n")
    return root


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("quotas", "allowed", "cores"),
    [
        ({}, None, MASK),
        ({"job": -1, "job/step": -1}, None, MASK),
        ({"job": 150_000, "job/step": 800_000_000}, 1.5, 1),
        ({"job/step": 20_000}, 0.2, 1),
        ({"job": 800_000_000}, 8000, MASK),
    ],
)
def test_the_least_quota_counts(
    tmp_path: Path, version: str, quotas: dict[str, int], allowed: float | None, cores: int
) -> None:
    root = machine(tmp_path, version, quotas)
    assert (quota_of_cgroups(root), usable_cores(root)) == (allowed, cores)


@pytest.mark.usefixtures("one_core")
def test_the_mask_counts() -> None:
    assert usable_cores() == 1
