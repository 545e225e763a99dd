"""The test cluster itself: is it a cluster, and does it leave the machine as it was?"""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cluster as program
import pytest
from cluster import HOME, LOGS, SLURM, UNLIMITED, Cluster, ClusterError, run, wait_until
from hosts import PATIENCE

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]

# Both programs wait before the first message: in Open MPI 5 a message can meet a rank that is still inside MPI_Init,
# which then crashes, about once in a hundred starts (open-mpi/ompi issue 12495).
WHO = """
import json, socket, time
from mpi4py import MPI
time.sleep(0.2)
world = MPI.COMM_WORLD
hosts = world.gather(socket.gethostname())
total = world.allreduce(world.rank)
if world.rank == 0:
    print(json.dumps({"hosts": hosts, "total": total}))
"""

SEND = """
import time
from mpi4py import MPI
import numpy
time.sleep(0.2)
world = MPI.COMM_WORLD
message = numpy.zeros(2_000_000, dtype=numpy.uint8)
world.Barrier()
start = time.monotonic()
(world.Send if world.rank == 0 else world.Recv)([message, MPI.BYTE], 1 - world.rank)
if world.rank == 1:
    print(time.monotonic() - start)
"""

TALK = """
import time
from mpi4py import MPI
def delayed():
    names, values = (line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt:"))
    return int(dict(zip(names, values))["DelayedACKs"])
time.sleep(0.2)
world = MPI.COMM_WORLD
world.Barrier()
before = delayed()
for _ in range(40):  # TCP acknowledges the first messages of a connection at once
    world.send(b"", 1) if world.rank == 0 else world.recv(source=0)
    time.sleep(0.05)
counts = world.gather(delayed() - before)
if world.rank == 0:
    print(*counts)
"""

COMPUTE = """
import time
start = time.monotonic()
while time.process_time() < 0.5:
    pass
print(time.monotonic() - start)
"""

# What Snakemake's Slurm executor does to the environment of an MPI job before it runs the rule.
NESTED = """#!/bin/sh
for name in $(env | grep -o '^S[A-Z]*_[A-Za-z0-9_]*' | grep -E '^(SLURM|SRUN)_' | grep -vx SLURM_JOB_ID); do
    unset $name
done
pwd
srun --ntasks=4 hostname
"""

LONG = 86_399  # s; a job that would outlive the cluster


@pytest.fixture
def limited(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, to be limited; it has its configured limits afterwards."""
    yield cluster
    cluster.link(cluster.node_link)
    cluster.cores(cluster.node_cores)


def srun(*words: str) -> str:
    return run("srun", "--chdir", str(REPOSITORY), *words)


def submit(folder: Path, script: str, *options: str) -> str:
    """Submit a batch job; returns its id."""
    (folder / "job.sh").write_text(script)
    where = [f"--chdir={REPOSITORY}", f"--output={folder}/output"]
    return run("sbatch", "--parsable", *where, *options, str(folder / "job.sh")).strip()


def state(job: str) -> str:
    return run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()


def test_every_node_is_idle(cluster: Cluster) -> None:
    assert cluster.states() == dict.fromkeys(["node1", "node2", "node3", "node4"], "idle")


def test_partitions_are_those_of_the_configuration(cluster: Cluster) -> None:
    lines = run("sinfo", "--noheader", "--format=%P %N").split()
    assert lines == ["cpu*", "node[1-4]", "slow", "node[3-4]"]


def test_ranks_are_one_world_on_four_hosts(cluster: Cluster) -> None:
    world = json.loads(srun("--nodes=4", "--ntasks=4", "--mpi=pmix", sys.executable, "-c", WHO))
    assert sorted(world["hosts"]) == ["node1", "node2", "node3", "node4"]
    assert world["total"] == 0 + 1 + 2 + 3


def test_two_ranks_of_a_node_are_one_world(cluster: Cluster) -> None:
    world = json.loads(srun("--nodes=1", "--ntasks=2", "--mpi=pmix", sys.executable, "-c", WHO))
    assert len(set(world["hosts"])) == 1
    assert world["total"] == 0 + 1


def test_a_batch_job_starts_in_the_repository_and_finds_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(tmp_path, NESTED, "--nodes=4", "--ntasks=4")
    wait_until(lambda: state(job) == "COMPLETED", PATIENCE, "the job did not complete")
    folder, *hosts = (tmp_path / "output").read_text().split()
    assert folder == str(REPOSITORY)
    assert sorted(hosts) == ["node1", "node2", "node3", "node4"]


def test_nothing_is_faster_than_a_limited_link(limited: Cluster) -> None:
    limited.link("40mbit")
    assert limited.status().count("link 40mbit") == 5
    seconds = float(srun("--nodes=2", "--ntasks=2", "--mpi=pmix", sys.executable, "-c", SEND))
    assert seconds > 0.9 * 2_000_000 * 8 / 40e6
    limited.link(UNLIMITED)
    assert limited.status().count(f"link {UNLIMITED}") == 5


def test_a_receiver_puts_off_no_acknowledgement(cluster: Cluster) -> None:
    delayed = srun("--nodes=2", "--ntasks=2", "--mpi=pmix", sys.executable, "-c", TALK)
    assert [int(count) for count in delayed.split()] == [0, 0]


def test_nothing_computes_faster_than_limited_cores(limited: Cluster) -> None:
    limited.cores("0.25")
    assert limited.status().count("cores 0.25") == 4
    assert float(srun("--ntasks=1", sys.executable, "-c", COMPUTE)) > 0.9 * 0.5 / 0.25


def test_each_core_is_kept_busy_by_one_idle_process_while_nodes_have_a_part_of_it(limited: Cluster) -> None:
    def busy() -> list[tuple[set[int], int]]:
        found = []
        for process in program.processes():
            with suppress(ProcessLookupError):  # it has ended
                if str(program.BUSY) in command_of(str(process)):
                    found.append((os.sched_getaffinity(process), os.sched_getscheduler(process)))
        return sorted(found, key=str)

    assert busy() == []
    one_each = sorted((({core}, os.SCHED_IDLE) for core in os.sched_getaffinity(0)), key=str)
    for cores in ("0.5", "0.25"):
        limited.cores(cores)
        wait_until(lambda: busy() == one_each, PATIENCE, "the cores are not busy")
    limited.cores(UNLIMITED)
    wait_until(lambda: not busy(), PATIENCE, "the cores stay busy")


@pytest.mark.parametrize(("reference", "slow"), [("1e-9", True), ("1", False)])
def test_even_nodes_get_back_what_a_slow_core_takes_as_far_as_it_has_room(
    limited: Cluster, reference: str, slow: bool
) -> None:
    """On cores where a piece of computing always takes longer than at the fastest, and where it never does."""
    on_core = Counter(map(program.core_of, limited.nodes))
    cores = [max(program.ROOM / on_core[program.core_of(node)], 0.2) if slow else 0.2 for node in limited.nodes]
    expected = [f"cores {number:.2g}" for number in cores]
    program.REFERENCE.write_text(reference)
    try:
        replace(limited, even=True).cores("0.2")
        wait_until(lambda: re.findall("cores [0-9.]+", limited.status()) == expected, PATIENCE, f"not {expected}")
    finally:
        program.REFERENCE.unlink()


@pytest.mark.parametrize("rate", ["fast", "100", "0mbit", "-1gbit"])
def test_a_wrong_link_speed_is_refused(cluster: Cluster, rate: str) -> None:
    with pytest.raises(ClusterError, match=r"expected e\.g\. 100mbit"):
        cluster.link(rate)


def test_up_twice_is_harmless(cluster: Cluster) -> None:
    before = program.processes()
    cluster.up()
    assert program.processes() == before


def test_the_program_tells_whether_the_cluster_is_up(cluster: Cluster) -> None:
    answer = subprocess.run([program.__file__, "status"], capture_output=True, text=True)
    assert answer.returncode == 0
    assert answer.stdout.startswith("cluster: up\n")
    assert str(LOGS) in answer.stdout


def test_up_repairs_what_a_crash_left(cluster: Cluster) -> None:
    """The accounts are gone first, then all else."""
    for process in program.processes():
        if command_of(str(process)).startswith("slurmdbd"):
            os.kill(process, signal.SIGKILL)
    try:
        wait_until(lambda: not cluster.is_up(), PATIENCE, "it counts as up without its accounts")
        assert "accounts: gone" in cluster.status()
        wait_until(lambda: not program.signal_processes(signal.SIGKILL), PATIENCE, "the processes did not end")
        assert set(cluster.states().values()) == {"gone"}
    finally:
        cluster.up()
    assert cluster.is_up()
    assert "accounts: kept" in cluster.status()
    assert srun("hostname").startswith("node")


@pytest.fixture(scope="module")
def stopped(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, down for the last tests of this file, from the middle of a job that ignores what it is told."""
    cluster.cores("0.5")
    script = f"#!/bin/sh\ntrap '' TERM\nsleep {LONG} & sleep {LONG}\n"
    job = submit(tmp_path_factory.mktemp("job"), script)
    wait_until(lambda: state(job) == "RUNNING", PATIENCE, "the job did not start")
    cluster.down()
    yield cluster
    cluster.up()


def test_down_leaves_nothing_but_the_logs(stopped: Cluster) -> None:
    assert remains() == []
    assert sorted(HOME.iterdir()) == [LOGS]
    assert (LOGS / "slurmctld.log").stat().st_size > 0


def remains() -> list[str]:
    """What is left of a cluster on this machine, found without the program's own help."""
    programs = (
        "slurmctld",
        "slurmd",
        "slurmstepd",
        "munged",
        "mariadbd",
        "gluster",
        "/usr/sbin/gluster",
        f"sleep\0{LONG}",
    )
    found = [text for pid in os.listdir("/proc") if pid.isdigit() and (text := command_of(pid)).startswith(programs)]
    found += [name for name in os.listdir("/sys/class/net") if name.startswith("stallp")]
    found += [line for line in run("ip", "netns", "list").splitlines() if line.startswith("stallp")]
    found += [str(path) for path in Path("/sys/fs/cgroup").rglob("stallp*")]
    found += [str(path) for path in SLURM.glob("*.conf") if path.read_text().startswith(program.MARKER)]
    return found + [line for line in Path("/proc/self/mounts").read_text().splitlines() if "stallp" in line]


def command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_database_that_does_not_start_is_named(stopped: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SYSTEM_TABLES", HOME / "nothing")
    monkeypatch.setattr(program, "START_TIME", 1)
    with pytest.raises(ClusterError, match=r"the database of the accounts does not start, see .*/mariadbd\.log"):
        stopped.up()
    assert "mysql.db' doesn't exist" in (LOGS / "mariadbd.log").read_text()
    stopped.down()


def test_down_removes_half_an_up(stopped: Cluster) -> None:
    program.make_bridge(f"{stopped.network}.1")
    program.connect(stopped.nodes[0])
    run("ip", "netns", "add", stopped.nodes[1].namespace)
    stopped.down()
    assert remains() == []


def test_down_when_down_is_harmless(stopped: Cluster) -> None:
    stopped.down()
    assert remains() == []


def test_the_slurm_of_somebody_else_is_left_alone(stopped: Cluster) -> None:
    foreign = SLURM / "slurm.conf"
    foreign.write_text("ClusterName=production\n")
    try:
        with pytest.raises(ClusterError, match="seems to have a Slurm of its own"):
            stopped.up()
        stopped.down()
        assert foreign.read_text() == "ClusterName=production\n"
    finally:
        foreign.unlink()
