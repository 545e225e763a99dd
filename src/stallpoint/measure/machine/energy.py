"""Energy of a node's processors, memory and GPUs, by counters that are read before and after measuring.

Counters of processors and memory are Linux' RAPL (``Documentation/power/powercap``). Packages and DRAM are added up;
cores and graphics are parts of a package, and ``psys`` contains packages. Counters wrap around at
``max_energy_range_uj``, and on most sites only root may read them. Counters of GPUs are NVML's. Fans, disks, network
and losses are excluded.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from stallpoint.measure.machine.sensors import kernel_id, nvml_of

POWERCAP = Path("sys/class/powercap")
_COUNTED = re.compile(r"package-\d+(-die-\d+)?|dram")
_MAX_WATTS = 1000.0
"""Upper bound of a zone's power, W: counters are read twice in the shortest time in which they could wrap around."""


class _Zone:
    """A zone of RAPL, and the energy that it has counted since this object was made."""

    def __init__(self, folder: Path) -> None:
        self.range = int((folder / "max_energy_range_uj").read_text())
        if self.range <= 0:
            raise ValueError(f"max_energy_range_uj is {self.range}")
        self.joules = 0.0
        self._file = folder / "energy_uj"
        self._before = int(self._file.read_text())

    def read(self) -> None:
        """Add the energy used since the last reading."""
        count = int(self._file.read_text())
        self.joules += ((count - self._before) % self.range) * 1e-6
        self._before = count


class EnergyMeter:
    """Meter of the energy of the node and of this worker's GPU; a context manager that counts while it is entered.

    `root` is the folder that holds sys. `gpu` is the number of a CUDA device; None without a GPU.
    """

    def __init__(self, root: Path = Path("/"), *, gpu: int | None = None) -> None:
        self._zones: dict[str, _Zone] = {}
        self._failed: list[str] = []
        for folder in sorted((root / POWERCAP).glob("intel-rapl:*")):  # folders of AMD's processors have this name, too
            name = folder.name
            try:
                name = (folder / "name").read_text().strip()
                if _COUNTED.fullmatch(name):
                    self._zones[f"{folder.name} {name}"] = _Zone(folder)
            except (OSError, ValueError) as error:
                self._fail(f"{folder.name} {name}", error)
        self._has_gpu, self._gpu = gpu is not None, _gpu_energy(gpu)
        span = min((zone.range for zone in self._zones.values()), default=0)
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._reader = threading.Thread(target=self._read_again, args=(span * 1e-6 / _MAX_WATTS / 2,), daemon=True)

    def _fail(self, name: str, error: OSError | ValueError) -> None:
        self._zones.pop(name, None)
        self._failed.append(f"{name}: {error.strerror if isinstance(error, OSError) else error}")

    def _read(self) -> None:
        for name, zone in list(self._zones.items()):
            try:
                zone.read()
            except (OSError, ValueError) as error:
                self._fail(name, error)

    def _read_again(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            with self._lock:
                self._read()

    def begin(self) -> None:
        """Start to count energy from zero."""
        with self._lock:
            self._read()
            for zone in self._zones.values():
                zone.joules = 0.0
            self._begun, self._gpu_before = time.monotonic(), self._gpu()

    def __enter__(self) -> Self:
        self.begin()
        if self._zones:
            self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._reader.ident:
            self._reader.join()
        self._read()
        self._seconds, self._gpu_after = time.monotonic() - self._begun, self._gpu()

    @property
    def row(self) -> dict[str, Any]:
        """Return columns of `tables.ENERGY`; the node's energy is unknown if any of its counters is unreadable."""
        node_energy = sum(zone.joules for zone in self._zones.values()) if self._zones and not self._failed else None
        counted, missing = list(self._zones), list(self._failed)
        if not counted and not missing:
            missing.append(f"processors: no counters in /{POWERCAP}")
        before, after = self._gpu_before, self._gpu_after
        gpu_energy = None if before is None or after is None else after - before
        if self._has_gpu and gpu_energy is None:
            missing.append("GPU: no counter of NVML")
        elif self._has_gpu:
            counted.append("GPU")
        return {
            "kernel": kernel_id(),
            "seconds": self._seconds,
            "node_energy": node_energy,
            "gpu_energy": gpu_energy if self._has_gpu else 0.0,
            "counted": ", ".join(counted),
            "not_counted": "; ".join(missing),
        }


def _gpu_energy(device: int | None) -> Callable[[], float | None]:
    """Return a function that reads a CUDA device's energy since its driver was loaded, J, or None if unknown."""
    found = None if device is None else nvml_of(device)

    def read() -> float | None:
        if found:
            nvml, handle = found
            with suppress(nvml.NVMLError):
                return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * 1e-3
        return None

    return read
