import pytest
from resident_ranks import RANKS, Ranks

from stallpoint.errors import CannotRun
from stallpoint.measure.launched import first_process
from stallpoint.measure.mpi import MPI
from stallpoint.measure.world import World

pytestmark = pytest.mark.ranks


def met(world: World) -> tuple[int, int, int, bool]:
    return world.rank, world.size, world.comm.allreduce(1), MPI.Query_thread() == MPI.THREAD_MULTIPLE


def test_all_ranks_meet_and_threads_may_communicate(ranks: Ranks) -> None:
    assert ranks(met) == [(rank, RANKS, RANKS, True) for rank in range(RANKS)]


def started_for_three(_: World) -> tuple[bool, str]:
    with pytest.raises(CannotRun) as error:
        World.start(3)
    return first_process(), str(error.value)


def test_another_number_of_ranks_names_the_right_one(ranks: Ranks) -> None:
    message = "the job needs 3 MPI ranks and MPI started 4: mpirun or srun was told another number of processes"
    expected = f"{message} (-n 3 would be right)"
    assert ranks(started_for_three) == [(rank == 0, expected) for rank in range(RANKS)]


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
