"""The clock a CPU is sold with and the highest it reaches, as the machine tells them (Shi et al., Table II and III)."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq")


def cpu_clocks(cpu_model: str, cpufreq: Path = _CPUFREQ) -> dict[str, float | None]:
    """Columns of `tables.ENVIRONMENTS`, Hz; None where neither the kernel nor the model's name tells.

    Intel's driver gives the clock without turbo as ``base_frequency``; older models bear it in their name.
    """
    named = re.search(r"@ *([\d.]+) *GHz", cpu_model)
    nominal = float(named[1]) * 1e9 if named else _kilohertz(cpufreq / "base_frequency")
    return {"cpu_nominal_clock": nominal, "cpu_max_clock": _kilohertz(cpufreq / "cpuinfo_max_freq")}


def _kilohertz(file: Path) -> float | None:
    with suppress(OSError, ValueError):
        return float(file.read_text()) * 1e3
    return None
