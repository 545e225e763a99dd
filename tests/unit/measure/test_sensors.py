"""What disturbs a measuring process: made-up files, made-up readings, and this kernel's own."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.measure.machine.sensors import (
    COUNTERS,
    STAT_ERROR,
    STATES,
    USAGE_ERROR,
    Reading,
    Sensors,
    between,
    busy_and_steal,
    cpu_list,
    cpu_usage,
    kernel_id,
    quota_files,
)
from stallpoint.records.disturbances import cpu_numbers

TICK = 1 / os.sysconf("SC_CLK_TCK")
STAT = b"""cpu  80 6 16 900 4 2 2 10 3 1
cpu0 40 3 8 450 2 1 1 4 3 1
cpu1 30 2 5 300 1 1 1 1 0 0
cpu2 10 1 3 150 1 0 0 5 0 0
intr 12345 0 0
"""
numbers = st.none() | st.floats(0, 1e12) | st.integers(0, 2**63)
readings = st.builds(Reading, **dict.fromkeys(COUNTERS, numbers), **dict.fromkeys(STATES, st.none()))


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_busy_time_is_what_processes_took_of_these_cpus() -> None:
    assert busy_and_steal(STAT, [0, 2]) == pytest.approx((65 * TICK, 9 * TICK))


@pytest.mark.parametrize("text", [b"", b"cpu  1 2\n", STAT.replace(b"cpu2", b"cpu3"), STAT.replace(b" 5 0 0\n", b"\n")])
def test_nothing_is_known_where_a_cpu_is_lacking(text: bytes) -> None:
    assert busy_and_steal(text, [0, 2]) == (None, None)


def test_usage_is_counted_by_cpu() -> None:
    assert cpu_usage(b"1000000000 2000000000 4000000000 \n", [0, 2]) == 5.0
    assert cpu_usage(b"1 2", [2]) is None
    assert cpu_usage(b"", [0]) is None


@pytest.mark.parametrize(("cpus", "text"), [([0], "0"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8"), ([], "")])
def test_cpus_are_listed_as_the_kernel_does(cpus: list[int], text: str) -> None:
    assert cpu_list(cpus) == text
    assert cpu_numbers(text) == set(cpus)


def test_differences_of_counters_and_later_states() -> None:
    first = Reading(runnable_wait=1.0, involuntary_switches=3, throttled=None, frequency=2e9, gpu_throttle="")
    second = Reading(
        runnable_wait=1.25, involuntary_switches=7, throttled=5.0, frequency=3e9, gpu_throttle="HwSlowdown"
    )
    columns = between(first, second)
    assert columns["runnable_wait"] == 0.25
    assert columns["involuntary_switches"] == 4
    assert columns["throttled"] is None
    assert columns["frequency"] == 3e9
    assert columns["gpu_throttle"] == "HwSlowdown"
    assert set(columns) == {*COUNTERS, *STATES}


@given(readings, readings)
def test_counters_never_fall(first: Reading, second: Reading) -> None:
    found = between(first, second)
    for name in COUNTERS:
        lacking = getattr(first, name) is None or getattr(second, name) is None
        assert (found[name] is None) == lacking
        assert lacking or found[name] >= 0


@given(readings)
def test_nothing_happens_between_equal_readings(reading: Reading) -> None:
    assert all(value in (None, 0) for value in between(reading, replace(reading)).values())


# --- files ----------------------------------------------------------------------------------------


def test_without_files_only_the_own_times_are_known(tmp_path: Path) -> None:
    with Sensors(tmp_path) as sensors:
        found = between(sensors.read(), sensors.read())
    own = {"thread_time", "process_time", "involuntary_switches"}
    assert {name for name, value in found.items() if value is not None} == own
    assert quota_files(tmp_path) == []


def test_files_of_nonsense_are_unknown(tmp_path: Path) -> None:
    names = ["proc/stat", "proc/pressure/cpu", "proc/self/cgroup", "proc/cpuinfo"]
    with Sensors(written(tmp_path, dict.fromkeys(names, "nonsense\n"))) as sensors:
        reading = sensors.read()
    assert (reading.node_busy, reading.cpu_pressure, reading.throttled, reading.frequency) == (None,) * 4


def test_clocks_and_heat_of_these_cpus(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    folder = "sys/devices/system/cpu/cpu{}/"
    files = {
        folder.format(cpu) + "cpufreq/scaling_cur_freq": f"{2000000 + 1000 * place}\n" for place, cpu in enumerate(cpus)
    }
    files |= {folder.format(cpu) + "thermal_throttle/core_throttle_count": "3\n" for cpu in cpus}
    with Sensors(written(tmp_path, files)) as sensors:
        reading = sensors.read()
    assert reading.thermal_throttles == 3 * len(cpus)
    assert reading.frequency == pytest.approx(2e9, rel=0.1)


def test_clocks_are_those_of_cpuinfo_where_there_is_no_cpufreq(tmp_path: Path) -> None:
    text = "".join(f"processor\t: {cpu}\ncpu MHz\t\t: {1000 + cpu}.5\n\n" for cpu in range(1024))
    cpus = sorted(os.sched_getaffinity(0))
    with Sensors(written(tmp_path, {"proc/cpuinfo": text})) as sensors:
        assert sensors.read().frequency == pytest.approx(1e6 * (1000.5 + sum(cpus) / len(cpus)))


MOUNTS = {
    "unified": "40 31 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n",
    "container": "40 31 0:26 /jobs /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n",
    "version 1": "33 31 0:29 / /groups/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n",
}


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "seconds"),
    [
        ("unified", "0::/jobs/7\n", {"sys/fs/cgroup/jobs/7/cpu.stat": "usage_usec 9\nthrottled_usec 2000000\n"}, 2.0),
        (  # the quota of the job is on the group above
            "unified",
            "0::/jobs/7\n",
            {
                "sys/fs/cgroup/jobs/7/cpu.stat": "throttled_usec 0\n",
                "sys/fs/cgroup/jobs/cpu.stat": "throttled_usec 3000000\n",
                "sys/fs/cgroup/cpu.stat": "usage_usec 9\n",
            },
            3.0,
        ),
        (  # which the newer file knows
            "unified",
            "0::/jobs/7\n",
            {
                "sys/fs/cgroup/jobs/7/cpu.stat.local": "throttled_usec 4000000\n",
                "sys/fs/cgroup/jobs/7/cpu.stat": "throttled_usec 0\n",
                "sys/fs/cgroup/jobs/cpu.stat": "throttled_usec 3000000\n",
            },
            4.0,
        ),
        ("container", "0::/jobs/7\n", {"sys/fs/cgroup/7/cpu.stat": "throttled_usec 5000000\n"}, 5.0),
        (
            "version 1",
            "2:cpu,cpuacct:/node1\n0::/\n",
            {
                "groups/cpu/node1/cpu.stat": "nr_throttled 1\nthrottled_time 6000000000\n",
                "sys/fs/cgroup/cpu.stat": "a 1",
            },
            6.0,
        ),
        ("unified", "0::/jobs/7\n", {"sys/fs/cgroup/jobs/7/cpu.stat": "usage_usec 9\n"}, None),
        ("container", "0::/elsewhere\n", {}, None),
    ],
)
def test_throttled_time_wherever_it_is_counted(
    tmp_path: Path, mounts: str, groups: str, files: dict[str, str], seconds: float | None
) -> None:
    links = {"proc/self/mountinfo": MOUNTS[mounts], "proc/self/cgroup": groups}
    with Sensors(written(tmp_path, files | links)) as sensors:
        assert sensors.read().throttled == seconds


def test_what_a_container_alone_used_is_not_taken_for_the_kernels(tmp_path: Path) -> None:
    cpus = range(1 + max(os.sched_getaffinity(0)))
    stat = "".join(f"cpu{cpu} 100 0 0 0 0 0 0 0 0 0\n" for cpu in cpus) + "intr 1\n"
    links = {"proc/self/mountinfo": MOUNTS["version 1"], "proc/self/cgroup": "2:cpu,cpuacct:/\n", "proc/stat": stat}
    by_stat = 100 * TICK
    for used, expected, error in ((0.95 * by_stat, 0.95 * by_stat, USAGE_ERROR), (0.01 * by_stat, by_stat, STAT_ERROR)):
        usage = " ".join([str(round(1e9 * used))] * len(cpus))
        with Sensors(written(tmp_path, {**links, "groups/cpu/cpuacct.usage_percpu": usage})) as sensors:
            assert sensors.read().node_busy == pytest.approx(len(os.sched_getaffinity(0)) * expected)
            assert sensors.node_busy_error == error


def test_kernels_are_told_apart(tmp_path: Path) -> None:
    names = []
    for boot in ("a", "b"):
        names.append(kernel_id(written(tmp_path, {"proc/sys/kernel/random/boot_id": boot})))
    assert names[0] != names[1]
    assert kernel_id(tmp_path / "nowhere")
    assert kernel_id() == kernel_id()


# --- this kernel ----------------------------------------------------------------------------------


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel tells no waiting times")
def test_a_process_on_the_same_cpu_is_seen() -> None:
    """In a process of its own, as a thread's CPUs are to be restored for all that follows."""
    program = """
import json, os, signal, time
from stallpoint.measure.machine.sensors import Sensors, between
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
own, copies = os.getpid(), []
for _ in range(2):
    if not (copy := os.fork()):
        while os.getppid() == own:
            pass
        os._exit(0)
    copies.append(copy)
with Sensors() as sensors:
    first, end = sensors.read(), time.perf_counter() + 1
    while time.perf_counter() < end:
        pass
    print(json.dumps(between(first, sensors.read())))
for copy in copies:
    os.kill(copy, signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    disturbed = json.loads(done.stdout)
    # Two more on one CPU, which others of this machine may be on as well, leave a third of it at most.
    assert disturbed["runnable_wait"] > disturbed["thread_time"] > 0
    assert disturbed["node_busy"] > 2 * disturbed["process_time"]
    assert disturbed["involuntary_switches"] > 0


def test_own_work_is_no_other_processs() -> None:
    with Sensors() as sensors:
        first = sensors.read()
        spin(0.3)
        found = between(first, sensors.read())
    assert 0 < found["thread_time"] < 0.6
    assert found["node_busy"] is None or found["node_busy"] + sensors.node_busy_error >= found["process_time"]
    assert all(value is None or isinstance(value, str) or value >= 0 for value in found.values())
