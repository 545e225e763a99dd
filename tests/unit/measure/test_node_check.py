"""What a node gives: recorded trees of /sys and /proc, made-up allocations, and this machine by the program itself."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from ipaddress import IPv4Interface
from pathlib import Path

import pytest
from launching import ENVIRONMENT, MPIRUN, copied

from stallpoint.measure.machine import node_check
from stallpoint.measure.machine.node_check import OK, UNKNOWN, WRONG, Check, LocalNode

NAMES = ["cores", "page cache", "MPI", "Slurm", "meet on", "NICs", "GPUs", "NCCL", "all-reduce", "/dev/shm", "home"]
OPEN_MPI = "Open MPI v5.0.11, package: Open MPI"
ADDRESSES = {
    "eth0": IPv4Interface("10.0.0.1/24"),
    "ib0": IPv4Interface("10.1.0.1/24"),
    "lo": IPv4Interface("127.0.0.1/8"),
}
CGROUP2 = {
    "proc/self/cgroup": "0::/job/step\n",
    "proc/self/mountinfo": "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
}
MEMINFO = "MemTotal:       67108864 kB\nMemFree:  1 kB\nMemAvailable:   33554432 kB\n"


def node(
    root: Path,
    files: Mapping[str, str] | None = None,
    *,
    cpus: int = 8,
    interfaces: Mapping[str, IPv4Interface] = ADDRESSES,
    answers: Mapping[str, str] | None = None,
    **variables: str,
) -> LocalNode:
    """Return a node with these files, and programs that print these answers (by their first words)."""
    for name, text in {"sys/devices/system/cpu/online": "0-7\n", **(files or {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    def ask(command: list[str]) -> str | None:
        words = " ".join(command)
        return next((text for begin, text in (answers or {}).items() if begin in words), None)

    return LocalNode(root, variables, ask, frozenset(range(cpus)), interfaces)


def test_one_core_in_the_mask_where_two_are_expected_is_said(tmp_path: Path) -> None:
    found = node_check.cores(node(tmp_path, cpus=1), wanted=2)
    assert (found.state, found.got, found.expected) == (WRONG, "1 of 8 (mask 0)", "2 (--cores)")
    assert node_check.cores(node(tmp_path, cpus=2), wanted=2).state == OK


@pytest.mark.parametrize(
    ("cpus", "variables", "state", "said"),
    [
        (8, {}, OK, ""),
        (4, {}, WRONG, "a mask hides the others"),
        (4, {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, OK, ""),
        (1, {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, WRONG, "mpirun --bind-to none"),
        (1, {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, WRONG, "I_MPI_PIN=off"),
        (1, {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "4", "SLURM_CPUS_PER_TASK": "4"}, WRONG, "cpus-per-task=4"),
        (1, {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "2(x4)",
             "SLURM_CPUS_ON_NODE": "8"}, WRONG, "srun --cpus-per-task=4"),
        (2, {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "2"}, OK, ""),
        (8, {"OMP_NUM_THREADS": "16"}, WRONG, "lower OMP_NUM_THREADS"),
    ],
)  # fmt: skip
def test_cores_are_held_against_the_allocation(
    cpus: int, variables: dict[str, str], state: str, said: str, tmp_path: Path
) -> None:
    found = node_check.cores(node(tmp_path, cpus=cpus, **variables))
    assert found.state == state
    assert said in found.advice


@pytest.mark.parametrize(
    "files",
    [
        {**CGROUP2, "sys/fs/cgroup/job/cpu.max": "150000 100000\n", "sys/fs/cgroup/job/step/cpu.max": "max 100000\n"},
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/job\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    ],
)
def test_a_quota_counts_as_fewer_cores(files: dict[str, str], tmp_path: Path) -> None:
    found = node_check.cores(node(tmp_path, files))
    assert (found.got, found.state) == ("1.5 of 8 (mask 0-7, quota 1.5)", WRONG)
    assert "docker --cpus" in found.advice


def test_memory_is_the_least_of_the_node_and_the_cgroup(tmp_path: Path) -> None:
    assert node_check.memory(node(tmp_path / "a", {"proc/meminfo": MEMINFO})).in_words() == (
        "ok    page cache  32 GiB free for files and processes, of 64 GiB"
    )
    tight = {**CGROUP2, "proc/meminfo": MEMINFO, "sys/fs/cgroup/job/memory.max": str(4 * 2**30)}
    found = node_check.memory(node(tmp_path / "b", tight))
    assert (found.state, found.expected) == (WRONG, "at least 8 GiB, 1 GiB for each core")
    assert found.got.endswith("(the cgroup allows 4 GiB)")
    assert node_check.memory(node(tmp_path / "c")).state == UNKNOWN


def test_an_mpirun_of_another_library_is_named(tmp_path: Path) -> None:
    other = node(tmp_path, answers={"mpirun --version": "HYDRA build details:\n    Version: 4.2\n"})
    found = node_check.mpi(other, OPEN_MPI)
    assert found.state == WRONG
    assert found.expected.endswith("is of MPICH")
    fits = node(tmp_path, answers={"mpirun --version": "mpirun (Open MPI) 5.0.11\n"})
    assert node_check.mpi(fits, OPEN_MPI).in_words() == "ok    MPI         Open MPI v5.0.11, mpirun fits"
    assert node_check.mpi(fits, None).state == UNKNOWN
    assert node_check.mpi(fits, None, "libmpi.so.40: not found").state == WRONG


@pytest.mark.parametrize(
    ("library", "listed", "state"),
    [
        (OPEN_MPI, "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions: pmix_v4", OK),
        (OPEN_MPI, "srun: MPI types are...\nsrun: none\nsrun: pmi2\n", WRONG),
        ("MPICH Version: 4.2", "MPI plugin types are...\n\tnone\n\tpmi2\n", OK),
        ("Intel(R) MPI Library 2021.18", "MPI plugin types are...\n\tnone\n", WRONG),
        ("", "MPI plugin types are...\n\tnone\n", OK),
    ],
)  # fmt: skip
def test_the_plugin_that_the_library_speaks_to_is_looked_for(
    library: str, listed: str, state: str, tmp_path: Path
) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS": "8"}
    of_job = node(tmp_path, answers={"srun --version": "slurm-wlm 22.05.8\n", "srun --mpi=list": listed}, **job)
    found = node_check.slurm(of_job, library)
    assert found.state == state
    assert found.got.startswith("slurm-wlm 22.05.8, job 7 on 4 nodes, 8 tasks")


def test_outside_slurm_there_is_none_and_in_a_job_srun_is_needed(tmp_path: Path) -> None:
    assert node_check.slurm(node(tmp_path), OPEN_MPI).state == OK
    assert node_check.slurm(node(tmp_path, SLURM_JOB_ID="7"), OPEN_MPI).state == WRONG


SPEEDS = {
    "sys/class/net/eth0/speed": "1000\n",
    "sys/class/net/eth0/device/vendor": "0x15b3",
    "sys/class/net/ib0/device/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
}


def test_a_faster_interface_than_the_one_where_ranks_meet_is_named(tmp_path: Path) -> None:
    here = node(tmp_path, SPEEDS)
    found = node_check.meeting_interface(here, [here.interfaces])
    assert (found.state, found.got) == (WRONG, "eth0 (10.0.0.1, 1 Gbit/s)")
    assert found.expected == "ib0 (10.1.0.1, 200 Gbit/s)"
    assert found.advice == "export GLOO_SOCKET_IFNAME=ib0 NCCL_SOCKET_IFNAME=ib0"
    told = node(tmp_path, SPEEDS, GLOO_SOCKET_IFNAME="ib0")
    found = node_check.meeting_interface(told, [{"ib0": ADDRESSES["ib0"]}])
    assert (found.state, found.got) == (OK, "ib0 (10.1.0.1, 200 Gbit/s), of 2 interfaces")


def test_bridges_of_containers_are_no_place_to_meet(tmp_path: Path) -> None:
    interfaces = {"docker0": IPv4Interface("172.17.0.1/16"), **ADDRESSES}
    here = node(tmp_path, {"sys/class/net/docker0/bridge/bridge_id": "8000"}, interfaces=interfaces)
    assert node_check.meeting_interface(here, [here.interfaces]).got.startswith("eth0 (10.0.0.1")


def test_variables_that_allow_no_interface_and_nodes_without_a_network_are_said(tmp_path: Path) -> None:
    wrong = node(tmp_path, NCCL_SOCKET_IFNAME="enp9")
    found = node_check.meeting_interface(wrong, [{}])
    assert (found.state, found.expected) == (WRONG, "one of eth0, ib0")
    other = {"docker0": IPv4Interface("172.17.0.1/16")}
    assert node_check.meeting_interface(node(tmp_path), [other, other]).state == WRONG


def test_adapters_are_named_with_their_rates_and_lanes(tmp_path: Path) -> None:
    files = {
        **SPEEDS,
        "sys/class/net/eth0/operstate": "up\n",
        "sys/class/net/veth1/operstate": "up\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
        "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
    }
    found = node_check.nics(node(tmp_path, files))
    assert (found.state, found.got) == (OK, "eth0 1 Gbit/s, mlx5_0 200 Gbit/s (4X HDR), mlx5_1 down")
    lanes = {
        f"sys/class/infiniband/mlx5_0/device/{name}_link_width": text
        for name, text in (("current", "8\n"), ("max", "16\n"))
    }
    found = node_check.nics(node(tmp_path, lanes))
    assert (found.state, found.expected) == (WRONG, "all lanes of PCIe; mlx5_0 has x8 of x16")


def test_gpus_of_the_driver_of_the_job_and_of_pytorch_are_compared(tmp_path: Path) -> None:
    driver = {f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0/information": "Model: H100" for number in range(4)}

    def usable(count: int, build: str = "CUDA 12.8") -> Check:
        return node_check.gpus(node(tmp_path, driver), lambda: (count, build))

    assert usable(4).state == OK
    assert "build for CPUs" in usable(0, "CPU build").advice
    assert usable(2).expected == "4 (the driver's)"
    given = node(tmp_path, driver, SLURM_GPUS_ON_NODE="2", CUDA_VISIBLE_DEVICES="0,1")
    assert node_check.gpus(given, lambda: (2, "CUDA 12.8")).state == OK
    assert node_check.gpus(node(tmp_path, driver), None).state == UNKNOWN
    assert node_check.gpus(node(tmp_path / "without"), None).got == "none"


@pytest.mark.parametrize("usable", [None, lambda: (0, "CUDA 12.8")], ids=["no PyTorch", "PyTorch"])
def test_gpus_that_were_asked_for_without_a_driver_are_said(
    usable: Callable[[], tuple[int, str]] | None, tmp_path: Path
) -> None:
    found = node_check.gpus(node(tmp_path, SLURM_GPUS_ON_NODE="4"), usable)
    assert (found.state, found.expected) == (WRONG, "4 (this job's)")
    assert found.got.startswith("no driver")
    hidden = node_check.gpus(node(tmp_path, SLURM_GPUS_ON_NODE="4"), lambda: (4, "CUDA 12.8"))
    assert hidden.state == OK, "a container may not see the driver's files"


@pytest.mark.parametrize(
    ("files", "variables", "unset"),
    [
        ({}, {}, ""),
        ({}, {"NCCL_IB_DISABLE": "1"}, ""),
        ({"sys/class/infiniband/mlx5_0/node_type": "1: CA"}, {"NCCL_IB_DISABLE": "0", "NCCL_DEBUG": "INFO"}, ""),
        ({"sys/class/infiniband/mlx5_0/node_type": "1: CA"}, {"NCCL_IB_DISABLE": "1"}, "unset NCCL_IB_DISABLE"),
        (
            {f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information": "Model: H100" for number in range(2)},
            {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
            "unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE",
        ),
    ],
)
def test_paths_of_nccl_that_the_node_has_and_the_environment_switches_off_are_said(
    files: dict[str, str], variables: dict[str, str], unset: str, tmp_path: Path
) -> None:
    found = node_check.nccl(node(tmp_path, files, **variables))
    assert (found.state, found.advice) == (WRONG if unset else OK, unset)
    assert all(f"{name}={value}" in found.got for name, value in variables.items())


def test_an_all_reduce_is_held_against_the_interface(tmp_path: Path) -> None:
    assert node_check.all_reduce(1e9, "2 processes").state == OK
    assert node_check.all_reduce(0.05e9, "2 processes").state == WRONG
    assert node_check.all_reduce(0.1e9, "4 ranks on 2 nodes", 1.25e8).state == OK
    slow = node_check.all_reduce(0.1e9, "4 ranks on 2 nodes", 25e9)
    assert (slow.state, slow.expected) == (
        WRONG,
        "at least 0.417; the interface carries 25, one connection of TCP 1.25 of it",
    )
    unknown = node_check.all_reduce(0.2e9, "4 ranks on 2 nodes", None, across=True)
    assert (unknown.state, unknown.expected) == (UNKNOWN, "")
    assert node_check.all_reduce(None, "2 processes").state == WRONG


def test_homes_that_cannot_be_written_and_shared_memory_that_is_not_there_are_said(tmp_path: Path) -> None:
    assert node_check.home(tmp_path).state == OK
    assert list(tmp_path.iterdir()) == []
    missing = node_check.home(tmp_path / "gone")
    assert (missing.state, missing.got) == (WRONG, f"{tmp_path / 'gone'}: No such file or directory")
    assert node_check.shared_memory(tmp_path / "gone").state == WRONG


def test_of_several_nodes_the_one_that_is_wrong_is_named() -> None:
    good, bad = Check("home", "written"), Check("home", "read-only", "1 MB written", "mend it", WRONG)
    one = node_check.merged_checks([("n1", [good]), ("n2", [bad]), ("n3", [bad]), ("n3", [bad])])
    assert [check.in_words() for check in one] == [
        "WRONG home        n2 (and 1 more nodes): read-only; expected 1 MB written: mend it"
    ]
    assert node_check.merged_checks([("n1", [good]), ("n2", [good])]) == [good]
    assert node_check.merged_checks([("n1", [good]), ("n1", [bad])]) == [bad]


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = [*command, sys.executable, "-m", "stallpoint.cli", "check", "--json"]
    environment = {**ENVIRONMENT, **copied(), "MEASURES_QUICKLY": "1", **variables}
    return subprocess.run(program, capture_output=True, text=True, check=False, env=environment)


def test_this_machine_is_checked_by_the_program_itself() -> None:
    ended = run("taskset", "-c", str(min(os.sched_getaffinity(0))))
    found = {one["name"]: one for one in json.loads(ended.stdout)["checks"]}
    assert list(found) == NAMES
    assert ended.returncode == int(any(one["state"] == "wrong" for one in found.values()))
    assert (found["cores"]["state"] == "wrong") == (os.cpu_count() != 1)
    assert float(found["all-reduce"]["got"].split(" GB/s, 2 processes on this node")[0].replace(",", "")) > 0


def test_ranks_of_a_launcher_answer_together_and_once() -> None:
    ended = run(*MPIRUN, "-n", "2")
    found = {one["name"]: one for one in json.loads(ended.stdout.partition("\n}")[0] + "\n}")["checks"]}
    assert list(found) == NAMES
    assert found["MPI"]["got"].endswith("2 ranks in one world")
    assert "2 ranks on 1 node" in found["all-reduce"]["got"]


def test_ranks_that_do_not_find_each_other_are_said_once() -> None:
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}
    ended = run(**step, SLURM_PROCID="0")
    found = {one["name"]: one for one in json.loads(ended.stdout)["checks"]}
    assert (ended.returncode, found["MPI"]["state"]) == (1, "wrong")
    assert "srun --mpi=pmix for Open MPI" in found["MPI"]["advice"]
    other = run(**step, SLURM_PROCID="1")
    assert (other.returncode, other.stdout) == (0, "")


def test_each_node_names_its_own_interface_in_the_common_network(tmp_path: Path) -> None:
    interfaces = {"enp1s0": IPv4Interface("10.0.0.2/24"), "lo": IPv4Interface("127.0.0.1/8")}
    here = node(tmp_path, {"sys/class/net/enp1s0/speed": "10000\n"}, interfaces=interfaces)
    found = node_check.meeting_interface(here, [interfaces, ADDRESSES])
    assert found.in_words() == "ok    meet on     enp1s0 (10.0.0.2, 10 Gbit/s) on 2 nodes"
