"""Reduction schemes chosen through the MPI library's parameters, and told apart by what four ranks really compute."""

import json
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from launching import ENVIRONMENT, MPIRUN

from stallpoint.errors import CannotRun
from stallpoint.measure import mpi_parameters
from stallpoint.measure.mpi import MPI
from stallpoint.measure.world import World

pytestmark = pytest.mark.ranks

RANKS = 4
VALUES = 4000

PROGRAM = """
import json, sys
import numpy as np
from stallpoint.errors import CannotRun
from stallpoint.measure import mpi_parameters
from stallpoint.measure.mpi import MPI
from stallpoint.measure.world import World
sys.path.insert(0, sys.argv[2])
from test_mpi_parameters import RANKS, summands

scheme = sys.argv[1]
try:
    world = World.start(RANKS, scheme)
except CannotRun as error:
    sys.exit(str(error))
own = summands()[world.rank]
total = own.copy()
combined = []

def add(left, right, datatype):
    combined.append(len(left) // 4)
    np.frombuffer(right, np.float32)[:] += np.frombuffer(left, np.float32)

if scheme == "binary-tree":
    world.comm.Reduce(own, total)
    world.comm.Bcast(total)
elif scheme == "sharded-servers":
    # Only here: on four ranks torch takes longer to load than all else.
    import torch
    from stallpoint.measure.synchronisation.mpi import MpiCommunicator
    MpiCommunicator(world.comm, scheme, 0).all_reduce(torch.from_numpy(total))
else:
    world.comm.Allreduce(own, total)
    world.comm.Allreduce(own, own.copy(), MPI.Op.Create(add, commute=True))
everybody = world.comm.gather(combined)
same = world.comm.allreduce(total.tobytes(), MPI.MAX) == world.comm.allreduce(total.tobytes(), MPI.MIN)
if world.rank == 0:
    print(json.dumps({"total": total.tolist(), "same": same, "combined": everybody,
                      "in_force": mpi_parameters.in_force(scheme)}))
"""


def summands() -> npt.NDArray[np.float32]:
    """Values of each rank, of such different size that every order of addition rounds differently."""
    random = np.random.default_rng(1)
    return (random.random((RANKS, VALUES)) * 10.0 ** random.integers(-6, 6, (RANKS, VALUES))).astype(np.float32)


def orders(values: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
    """Sums of four rows in every order that may round differently."""
    sums = {}
    for a, b, c, d in permutations(range(RANKS)):
        left = values[a] + values[b]
        if a < b:
            sums[f"(({a}+{b})+{c})+{d}"] = (left + values[c]) + values[d]
        if a < b and c < d and a < c:
            sums[f"({a}+{b})+({c}+{d})"] = left + (values[c] + values[d])
    return sums


def launch(scheme: str) -> subprocess.CompletedProcess[str]:
    folder = str(Path(__file__).parent)
    command = [*MPIRUN, "-n", str(RANKS), sys.executable, "-c", PROGRAM, scheme, folder]
    return subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, timeout=600)


def quarter(number: int) -> slice:
    return slice(number * VALUES // RANKS, (number + 1) * VALUES // RANKS)


DOUBLING = ["(0+1)+(2+3)"] * RANKS


@pytest.mark.parametrize(
    ("scheme", "order_of_quarters", "combined", "parameter"),
    [
        # Each quarter begins its way around the ring at another rank.
        (
            "ring",
            ["((0+1)+2)+3", "((1+2)+3)+0", "((2+3)+0)+1", "((0+3)+1)+2"],
            [VALUES // 4] * 3,
            "coll_tuned_allreduce_algorithm=ring",
        ),
        # Partners 1 and 2 ranks away, whole buffers; or halves, then quarters of them.
        (
            "recursive-doubling",
            DOUBLING,
            [VALUES, VALUES],
            "coll_tuned_allreduce_algorithm=recursive_doubling",
        ),
        ("rabenseifner", DOUBLING, [VALUES // 2, VALUES // 4], "coll_tuned_allreduce_algorithm=rabenseifner"),
        # Rank 1 adds its child 3, then rank 0 its children 1 and 2.
        ("binary-tree", ["((1+3)+0)+2"] * RANKS, [], "coll_tuned_reduce_algorithm=binary"),
        # Each rank serves a quarter: its own values, then those of the others.
        ("sharded-servers", ["((0+1)+2)+3", "((0+1)+2)+3", "((0+2)+1)+3", "((0+3)+1)+2"], [], ""),
    ],
)
def test_the_chosen_algorithm_really_runs(
    scheme: str, order_of_quarters: list[str], combined: list[int], parameter: str
) -> None:
    if not MPI.Get_library_version().startswith("Open MPI"):
        pytest.fail("these orders are Open MPI's: state those of this library too")
    run = launch(scheme)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    total = np.array(found["total"], np.float32)
    possible = orders(summands())
    for number, expected in enumerate(order_of_quarters):
        part = quarter(number)
        matching = [order for order, values in possible.items() if np.array_equal(values[part], total[part])]
        assert matching == [expected]
    assert found["same"], "all ranks have the same sum, to the last bit"
    assert found["combined"] == [combined] * RANKS
    assert set(parameter.split()) <= set(found["in_force"].split())


def test_a_parameter_that_is_not_in_force_is_named() -> None:
    World.start(1)  # the library chooses
    with pytest.raises(CannotRun, match=r"reduction ring: the MPI library has coll_tuned_\w+ = \w+ in force, not"):
        World.start(1, "ring")


def test_unforced_schemes_need_no_parameters() -> None:
    World.start(1, "library")
    World.start(1, "parameter-server")
    assert mpi_parameters.in_force("library") == ""


def test_an_unknown_library_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_parameters, "_version", lambda: "Acme MPI 1.0\nbuilt yesterday")
    with pytest.raises(CannotRun, match=r"parameters of Open MPI, MPICH, Intel\(R\) MPI; this library is Acme MPI 1.0"):
        mpi_parameters.choose("ring")
    mpi_parameters.choose("library")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "MPICH Version: 4.2.0",
            {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring", "MPIR_CVAR_DEVICE_COLLECTIVES": "none"},
        ),
        ("Intel(R) MPI Library 2021.13 for Linux* OS", {"I_MPI_ADJUST_ALLREDUCE": "8"}),
        ("Open MPI v4.1.4, package: Debian OpenMPI", {"OMPI_MCA_coll_tuned_allreduce_algorithm": "ring"}),
    ],
)
def test_each_library_is_told_in_its_own_words(
    version: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, str] = {}
    monkeypatch.setattr(mpi_parameters, "_version", lambda: version)
    monkeypatch.setattr(mpi_parameters.os, "environ", told)
    mpi_parameters.choose("ring")
    assert expected.items() <= told.items()


def test_a_number_that_stands_for_a_choice_is_not_the_librarys_own() -> None:
    assert mpi_parameters.in_agreement("ring", "ring")
    assert mpi_parameters.in_agreement("ring", "5")
    assert not mpi_parameters.in_agreement("ring", "0")
    assert not mpi_parameters.in_agreement("ring", "recursive_doubling")
    assert not mpi_parameters.in_agreement("100", "30")
    assert not mpi_parameters.in_agreement("ring", None)
