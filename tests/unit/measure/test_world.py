import subprocess
import sys

import pytest
from launching import ENVIRONMENT, MPIRUN

from stallpoint.errors import CannotRun
from stallpoint.measure.mpi import MPI
from stallpoint.measure.world import World, first_process

pytestmark = pytest.mark.ranks

PROGRAM = """
import sys
from stallpoint.errors import CannotRun
from stallpoint.measure.mpi import MPI
from stallpoint.measure.world import World, first_process
try:
    world = World.start(int(sys.argv[1]))
    print(world.rank, world.size, world.comm.allreduce(1), MPI.Query_thread() == MPI.THREAD_MULTIPLE)
except CannotRun as error:
    print(first_process(), error)
"""


def launch(expected: int, ranks: int) -> list[str]:
    """Lines that `ranks` processes print, each expecting so many ranks."""
    command = [*MPIRUN, "-n", str(ranks), sys.executable, "-c", PROGRAM, str(expected)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=True)
    return sorted(done.stdout.splitlines())


def test_all_ranks_meet_and_threads_may_communicate() -> None:
    assert launch(2, ranks=2) == ["0 2 2 True", "1 2 2 True"]


def test_another_number_of_ranks_names_the_right_one() -> None:
    others, first = launch(3, ranks=2)
    message = "the job needs 3 MPI ranks and MPI started 2: mpirun or srun was told another number of processes"
    assert first == f"True {message} (-n 3 would be right)"
    assert others == first.replace("True", "False")


def test_one_rank_needs_no_launcher() -> None:
    world = World.start(1)
    assert (world.rank, world.size) == (0, 1)
    assert MPI.Is_initialized()


def test_srun_without_pmix_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(CannotRun, match=r"needs 4 MPI ranks and MPI started 1: srun started every task.*--mpi=pmix"):
        World.start(4)


def test_a_missing_launcher_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    with pytest.raises(CannotRun, match=r"either no mpirun or srun launched it, or one of another MPI library"):
        World.start(4)


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({}, True),
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "3"}, False),
        ({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "1"}, False),
    ],
)
def test_the_first_process_is_known_without_mpi(
    variables: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert first_process() == first
