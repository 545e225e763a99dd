"""Number of cores that this process and its children may use at once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from stallpoint.measure.machine.sensors import groups


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of CPUs in the affinity mask, or the smaller number that a quota of the cgroups allows."""
    mask = len(os.sched_getaffinity(0))
    allowed = quota_of_cgroups(root)
    return mask if allowed is None else max(1, min(mask, int(allowed)))


def quota_of_cgroups(root: Path = Path("/")) -> float | None:
    """Return the number of CPUs that the smallest quota of this process's cgroups allows; None without a quota."""
    found = []
    for folders in groups(root, "cpu"):
        for folder in folders:
            with suppress(OSError, ValueError, ZeroDivisionError):
                if (file := folder / "cpu.max").exists():
                    limit, period = file.read_text().split()
                else:
                    limit, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                if limit != "max" and int(limit) > 0:
                    found.append(int(limit) / int(period))
    return min(found, default=None)
