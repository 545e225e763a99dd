"""Sensors of disturbances, read around each iteration: other processes, the hypervisor, quotas, clocks.

Sensors are files in /proc and /sys (see proc_stat, proc_schedstat, PSI and cgroup in Linux' documentation). The reading
of an unreadable file is None. Counters begin at any number: only the difference of two readings counts (`between`).
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import re
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from stallpoint.measure import constants

Number = float | int | None

_TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Unit of /proc/stat, s."""
_INTERRUPT = time.clock_getres(6)
"""Time between two interrupts of the kernel's clock, 1 to 10 ms, fixed at build time: the resolution of
CLOCK_MONOTONIC_COARSE (``man 2 clock_getres``), which Python does not name, s."""
STAT_ERROR, USAGE_ERROR = 2 * _TICK, 1.25 * _INTERRUPT
"""Error of the difference of two `Reading.node_busy`, s. /proc/stat shows full ticks, and charges the time between two
interrupts to the process that runs at the second; cgroups count ns, but on other CPUs only up to the last interrupt."""
USAGE = "cpuacct.usage_percpu"


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of all sensors at one moment: counters in s unless stated otherwise; a value is None if it is unknown."""

    runnable_wait: float | None = None
    """Time in which the computing thread was runnable but did not run; includes throttled time before Linux 6.18."""
    thread_time: float | None = None
    """CPU time of the computing thread."""
    process_time: float | None = None
    """CPU time of all threads of this process."""
    node_busy: float | None = None
    """Time in which any thread of this kernel ran on this process's CPUs; without interrupts where possible, as these
    may be the job's own communication."""
    steal: float | None = None
    """Time in which this process's CPUs waited for the hypervisor, in steps of 10 ms."""
    cpu_pressure: float | None = None
    """Time in which some thread of this kernel waited for a CPU."""
    involuntary_switches: int | None = None
    """Number of times that the computing thread lost its CPU to another thread."""
    throttled: float | None = None
    """Time in which quotas of this process's cgroups kept threads from running, summed over CPUs."""
    thermal_throttles: int | None = None
    """Number of times that this process's CPUs slowed down for heat."""
    frequency: float | None = None
    """Mean clock of this process's CPUs, Hz; no counter."""
    gpu_clock: float | None = None
    """Clock of the GPU's multiprocessors, Hz; no counter."""
    gpu_throttle: str | None = None
    """Reason why the GPU's clock is throttled, if it is; no counter."""


STATES = ("frequency", "gpu_clock", "gpu_throttle")
"""Sensors that are no counters; an iteration's value is the reading at its end."""
COUNTERS = tuple(field.name for field in fields(Reading) if field.name not in STATES)


def between(first: Reading, second: Reading) -> dict[str, float | int | str | None]:
    """Return the increase of each of `COUNTERS` between two readings, and `STATES` as in the second reading."""
    counted = {name: _increase(getattr(first, name), getattr(second, name)) for name in COUNTERS}
    return {**counted, **{name: getattr(second, name) for name in STATES}}


def shared(
    change: Mapping[str, float | int | str | None], seconds: Sequence[float]
) -> Iterator[dict[str, float | int | str | None]]:
    """Yield each iteration's part of a `change` over several iterations, in proportion to their times `seconds`."""
    total = sum(seconds) or 1.0
    counted = {name: value for name, value in change.items() if name in COUNTERS and isinstance(value, float | int)}
    for part in seconds:
        yield {**change, **{name: value * part / total for name, value in counted.items()}}


def temperature(gpu: int | None, root: Path = Path("/")) -> float | None:
    """Return the temperature of a GPU, or of the node's hottest sensor if `gpu` is None, in °C; None if unreadable."""
    if gpu is not None:
        if (found := nvml_of(gpu)) is None:
            return None
        nvml, handle = found
        with suppress(nvml.NVMLError):
            return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        return None
    files = [*root.glob("sys/class/thermal/thermal_zone*/temp"), *root.glob("sys/class/hwmon/hwmon*/temp*_input")]
    known = [value for file in files if (value := _integer(_text(file))) is not None]
    return max(known) / 1000 if known else None


def _increase(first: Number, second: Number) -> Number:
    """Return the increase of a counter; None if a reading is unknown, 0 if the counter fell (a CPU was offline)."""
    return None if first is None or second is None else max(second - first, 0)


def kernel_id(root: Path = Path("/")) -> str:
    """Return an identifier of this kernel since its boot, the same in all containers and namespaces."""
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = platform.node()
    return hashlib.sha256(boot.encode()).hexdigest()[:12]


class Sample(NamedTuple):
    """Unparsed texts of all sensors at one moment (`Sensors.reading` parses them).

    Parsing is postponed: right after an iteration, whose data fill the caches, it takes several times as long as later.
    """

    texts: Sequence[bytes]
    """Texts of the open files, in the order of opening."""
    thread_time: float
    process_time: float
    involuntary_switches: int
    gpu: tuple[float | None, str | None]


class Sensors:
    """Sensors of the computing thread, which constructs them for each visit, and reads them.

    A context manager: files stay open between readings. `root` is the folder that holds proc and sys; `gpu` is the
    number of a CUDA device to watch. Without `others`, other processes are not watched: `Reading.node_busy` is None.
    """

    def __init__(self, root: Path = Path("/"), *, gpu: int | None = None, others: bool = True) -> None:
        self._others = others
        self._files: list[_SensorFile] = []
        self._cpus = sorted(os.sched_getaffinity(0))
        task = f"proc/self/task/{threading.get_native_id()}"
        self._schedstat = self._open(root / task / "schedstat")
        self._stat = self._open(root / "proc/stat")
        self._usage = self._open_cpu_usage(root)
        self._pressure = self._open(root / "proc/pressure/cpu")
        self._quota = [self._open(path) for path in quota_files(root)]
        folders = [root / f"sys/devices/system/cpu/cpu{cpu}" for cpu in self._cpus]
        self._throttles = [self._open(folder / "thermal_throttle/core_throttle_count") for folder in folders]
        sampled = folders[:: -(-len(folders) // constants.MAX_CLOCKS)]
        self._clocks = [self._open(folder / "cpufreq/scaling_cur_freq") for folder in sampled]
        # Read /proc/cpuinfo only once, as this takes as long as reading all other sensors.
        self._clock_before = None if any(self._clocks) else _cpuinfo_clock(root / "proc/cpuinfo", self._cpus)
        self._gpu = None if gpu is None else _gpu(gpu)

    @property
    def cpus(self) -> str:
        """CPUs that this process may run on, such as ``0-3,8``."""
        return cpu_list(self._cpus)

    @property
    def node_busy_error(self) -> float | None:
        """Error of the difference of two readings of `node_busy`, s; None if other processes are not watched."""
        if not self._others:
            return None
        return USAGE_ERROR if self._usage else STAT_ERROR

    def sample(self) -> Sample:
        """Read all sensors without parsing; only in the thread that constructed them."""
        return Sample(
            [file.read() for file in self._files],
            time.thread_time(),
            time.process_time(),
            resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw,
            self._gpu() if self._gpu else (None, None),
        )

    def reading(self, sample: Sample) -> Reading:
        """Parse a sample; this is possible even after `close`."""
        texts: dict[_SensorFile | None, bytes] = {None: b"", **dict(zip(self._files, sample.texts, strict=True))}
        busy, steal = busy_and_steal(texts[self._stat], self._cpus)
        if self._usage:
            busy = cpu_usage(texts[self._usage], self._cpus)
        clock, throttle = sample.gpu
        return Reading(
            runnable_wait=_runnable_wait(texts[self._schedstat]),
            thread_time=sample.thread_time,
            process_time=sample.process_time,
            node_busy=busy if self._others else None,
            steal=steal,
            cpu_pressure=_cpu_pressure(texts[self._pressure]),
            involuntary_switches=sample.involuntary_switches,
            throttled=_total(_throttled(texts[file]) for file in self._quota if file),
            thermal_throttles=_total(_integer(texts[file]) for file in self._throttles if file),
            frequency=self._frequency(texts),
            gpu_clock=clock,
            gpu_throttle=throttle,
        )

    def read(self) -> Reading:
        """Read and parse all sensors; only in the thread that constructed them."""
        return self.reading(self.sample())

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: Path) -> _SensorFile | None:
        with suppress(OSError):
            self._files.append(_SensorFile(path))
            return self._files[-1]
        return None

    def _open_cpu_usage(self, root: Path) -> _SensorFile | None:
        """Open the root cgroup's file of CPU times, ns (cgroups of version 1); None if it covers only a container."""
        usage = next((file for group in groups(root, "cpuacct") if (file := self._open(group[-1] / USAGE))), None)
        busy, _ = busy_and_steal(self._stat.read() if self._stat else b"", self._cpus)
        counted = cpu_usage(usage.read(), self._cpus) if usage else None
        return usage if busy and counted and counted > constants.KERNEL_SHARE * busy else None

    def _frequency(self, texts: Mapping[_SensorFile | None, bytes]) -> float | None:
        clocks = [clock for file in self._clocks if file and (clock := _integer(texts[file]))]
        return 1e3 * sum(clocks) / len(clocks) if clocks else self._clock_before


class _SensorFile:
    """A small file of /proc or /sys that is read repeatedly; its text is empty once it is unreadable."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # /proc/stat is long on large machines; only the part before the interrupts is needed
        self._size = 1 << 20
        text = self.read()
        self._size = 4096 + (len(text) if (end := text.find(b"\nintr")) < 0 else end)

    def read(self) -> bytes:
        try:
            return os.pread(self._descriptor, self._size, 0)
        except OSError:
            return b""

    def close(self) -> None:
        os.close(self._descriptor)


def _runnable_wait(schedstat: bytes) -> float | None:
    values = schedstat.split()
    return int(values[1]) * 1e-9 if len(values) > 1 else None


def _cpu_pressure(pressure: bytes) -> float | None:
    found = re.match(rb"some .*total=(\d+)", pressure)
    return int(found[1]) * 1e-6 if found else None


def busy_and_steal(stat: bytes, cpus: Sequence[int]) -> tuple[float, float] | tuple[None, None]:
    """Return the busy time of `cpus`, and the time in which they waited for the hypervisor, s, from /proc/stat."""
    missing, busy, steal = {b"cpu%d" % cpu for cpu in cpus}, 0, 0
    for line in stat.split(b"\n"):
        if not line.startswith(b"cpu"):
            break
        name, *values = line.split()
        if name in missing and len(values) >= 8:
            missing.remove(name)
            user, nice, system, *_, stolen = (int(value) for value in values[:8])
            busy += user + nice + system  # the time of virtual machines is part of user and nice
            steal += stolen
    return (None, None) if missing else (busy * _TICK, steal * _TICK)


def cpu_usage(usage: bytes, cpus: Sequence[int]) -> float | None:
    """Return the time that threads ran on `cpus`, s, from the text of cpuacct.usage_percpu."""
    values = usage.split()
    return sum(int(values[cpu]) for cpu in cpus) * 1e-9 if len(values) > max(cpus) else None


def quota_files(root: Path = Path("/")) -> list[Path]:
    """Return the files whose throttled times, added up, are the throttled time of this process; empty without files.

    Since Linux 6.6 the file cpu.stat.local of the process's cgroup suffices. The file cpu.stat of a cgroup counts only
    the cgroup's own quota: on older kernels the files of its parents are needed as well.
    """
    for folders in groups(root, "cpu"):
        for files in [[folders[0] / "cpu.stat.local"], [folder / "cpu.stat" for folder in folders]]:
            # Some files may be missing: in a container those of parents outside it, and always that of the root cgroup.
            if found := [file for file in files if _throttled(_text(file)) is not None]:
                return found
    return []


def groups(root: Path, controller: str) -> Iterator[list[Path]]:
    """Yield lists of folders. Each begins with the folder of this process's cgroup for `controller`; parents follow.

    The list for cgroups of version 1 comes first, then the list for version 2; only one version has the controller.
    """
    own_groups = [line.split(":", 2) for line in _text(root / "proc/self/cgroup").decode().splitlines()]
    mounts = [line.split() for line in _text(root / "proc/self/mountinfo").decode().splitlines()]
    for type_ in ("cgroup", "cgroup2"):
        for words in mounts:
            # ID, parent, device, root, mount point, options, ..., "-", type, source, options of the file system
            if words[words.index("-") + 1] != type_ or (type_ == "cgroup" and controller not in words[-1].split(",")):
                continue
            for _, controllers, path in own_groups:
                is_match = controller in controllers.split(",") if type_ == "cgroup" else not controllers
                if is_match and Path(path).is_relative_to(words[3]):
                    group = Path(path).relative_to(words[3])
                    mount = root / words[4].removeprefix("/")
                    yield [mount / folder for folder in ([group, *group.parents] if group.parts else [group])]


def _text(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


def _throttled(stat: bytes) -> float | None:
    """Return the throttled time in a text of cpu.stat, s: version 2 counts µs, version 1 counts ns."""
    found = re.search(rb"^throttled_(usec|time) (\d+)$", stat, re.MULTILINE)
    return None if found is None else int(found[2]) * (1e-6 if found[1] == b"usec" else 1e-9)


def _cpuinfo_clock(path: Path, cpus: Sequence[int]) -> float | None:
    """Return the mean clock of `cpus` in Hz from /proc/cpuinfo, the file `path`."""
    clocks, cpu = [], -1
    with suppress(ValueError):
        for line in _text(path).decode(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "processor":
                cpu = int(value)
            elif key.strip() == "cpu MHz" and cpu in cpus:
                clocks.append(float(value))
    return 1e6 * sum(clocks) / len(clocks) if clocks else None


def _integer(text: bytes) -> int | None:
    with suppress(ValueError):
        return int(text)
    return None


def _total(values: Iterable[Any]) -> Any:
    """Return the sum of `values`; None without values, or if one of them is None."""
    known = list(values)
    return sum(known) if known and None not in known else None


def cpu_list(cpus: Sequence[int]) -> str:
    """Return rising CPU numbers as text, as the kernel writes them: ``0-3,8``."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


_NOT_THROTTLED = ("GpuIdle", "ApplicationsClocksSetting", "UserDefinedClocks", "None", "All")
"""NVML's reasons for a low clock that do not count as throttling."""


@cache
def nvml_of(device: int) -> tuple[Any, Any] | None:
    """Return the module of NVML, and NVML's handle of a CUDA device; None if NVML cannot be used.

    NVML also numbers devices that CUDA_VISIBLE_DEVICES hides. So a device is found by its UUID (not tested with hidden
    devices).
    """
    try:
        nvml = importlib.import_module("pynvml")
        import torch

        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode())
    except Exception:  # a missing library, or one that does not fit its driver, may raise anything
        return None


def gpu_max_clock(device: int) -> float | None:
    """Return the highest clock of a CUDA device's multiprocessors, Hz; None without NVML."""
    if (found := nvml_of(device)) is None:
        return None
    nvml, handle = found
    with suppress(nvml.NVMLError):
        return float(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6)
    return None


def _gpu(device: int) -> Callable[[], tuple[float | None, str | None]] | None:
    """Return a function that reads a CUDA device's clock (Hz) and reasons for throttling; None without NVML."""
    if (found := nvml_of(device)) is None:
        return None
    nvml, handle = found
    prefix = "nvmlClocksThrottleReason"
    reasons = {
        name.removeprefix(prefix): value
        for name, value in vars(nvml).items()
        if name.startswith(prefix) and name.removeprefix(prefix) not in _NOT_THROTTLED and isinstance(value, int)
    }

    def read() -> tuple[float | None, str | None]:
        try:
            clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6
            mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        except nvml.NVMLError:
            return None, None
        return clock, ", ".join(name for name, bit in reasons.items() if mask & bit)

    return read
