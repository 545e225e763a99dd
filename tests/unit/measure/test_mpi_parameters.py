"""Reduction schemes chosen through the MPI library's parameters, and told apart by what four ranks really compute."""

import json
import subprocess
import sys
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
import rank_sums
from launching import copied
from mpi_libraries import INTEL_MPI, MPICH, OPEN_MPI, MpiLibrary
from rank_sums import RANKS, VALUES, reduced, summands
from resident_ranks import Ranks

from stallpoint.errors import CannotRun
from stallpoint.measure.jobs import mpi_parameters
from stallpoint.measure.world import World

pytestmark = pytest.mark.ranks


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


def launch(scheme: str, library: MpiLibrary) -> subprocess.CompletedProcess[str]:
    command = [*library.launch(RANKS), sys.executable, rank_sums.__file__, scheme]
    started = copied() if library == OPEN_MPI else {}  # others pass files on, which copies do not get
    environment = {**library.environment(), **started}
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=600)


def quarter(number: int) -> slice:
    return slice(number * VALUES // RANKS, (number + 1) * VALUES // RANKS)


# Each quarter begins its way around the ring at another rank.
RING = ["((0+1)+2)+3", "((1+2)+3)+0", "((2+3)+0)+1", "((0+3)+1)+2"]
# Partners 1 and 2 ranks away, whole buffers; or halves, then quarters of them.
DOUBLING = ["(0+1)+(2+3)"] * RANKS
SCHEMES: dict[str, tuple[list[str], bool]] = {
    "ring": (RING, True),
    "recursive-doubling": (DOUBLING, False),
    "rabenseifner": (DOUBLING, True),
    # A binomial tree: rank 0 adds its child 1, rank 2 its child 3, then rank 0 its child 2.
    "binary-tree": (DOUBLING, False),
    # Each rank serves a quarter: its own values, then those of the others.
    "sharded-servers": (["((0+1)+2)+3", "((0+1)+2)+3", "((0+2)+1)+3", "((0+3)+1)+2"], True),
}
"""In which order each quarter is added, and whether ranks add parts of the buffer or all of it."""
OWN_ORDERS: dict[tuple[MpiLibrary, str], list[str]] = {
    (MPICH, "ring"): [*RING[1:], RING[0]],
    # Rank 1 adds its child 3, then rank 0 its children 1 and 2.
    (OPEN_MPI, "binary-tree"): ["((1+3)+0)+2"] * RANKS,
}
IN_FORCE: dict[tuple[MpiLibrary, str], str] = {
    (OPEN_MPI, "ring"): "coll_tuned_allreduce_algorithm=ring",
    (OPEN_MPI, "recursive-doubling"): "coll_tuned_allreduce_algorithm=recursive_doubling",
    (OPEN_MPI, "rabenseifner"): "coll_tuned_allreduce_algorithm=rabenseifner",
    (OPEN_MPI, "binary-tree"): "coll_tuned_reduce_algorithm=binary",
    (MPICH, "ring"): "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=8",
    (INTEL_MPI, "ring"): "I_MPI_ADJUST_ALLREDUCE=8 (not readable)",
}


LIBRARIES = [
    pytest.param(
        library,
        scheme,
        id=f"{library.version}-{scheme}",
        marks=() if library == OPEN_MPI or scheme == "ring" else pytest.mark.night,
    )
    for library in (OPEN_MPI, MPICH, INTEL_MPI)
    for scheme in SCHEMES
]


@pytest.mark.parametrize(("library", "scheme"), LIBRARIES)
def test_the_chosen_algorithm_really_runs(library: MpiLibrary, scheme: str, ranks: Ranks) -> None:
    if (library, scheme) == (OPEN_MPI, "sharded-servers"):  # which asks nothing of the library
        found, *_ = ranks(reduced, scheme)
    else:
        run = launch(scheme, library)
        assert run.returncode == 0, run.stderr
        found = json.loads(run.stdout)
    assert found["version"].startswith(library.version)
    total = np.array(found["total"], np.float32)
    possible = orders(summands())
    order_of_quarters, in_parts = SCHEMES[scheme]
    for number, expected in enumerate(OWN_ORDERS.get((library, scheme), order_of_quarters)):
        part = quarter(number)
        matching = [order for order, values in possible.items() if np.array_equal(values[part], total[part])]
        assert matching == [expected]
    assert found["same"], "all ranks have the same sum, to the last bit"
    assert found["in_parts"] == in_parts
    assert IN_FORCE.get((library, scheme), "") in found["in_force"]


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
    assert mpi_parameters.agrees("ring", "ring")
    assert mpi_parameters.agrees("ring", "5")
    assert not mpi_parameters.agrees("ring", "0")
    assert not mpi_parameters.agrees("ring", "recursive_doubling")
    assert not mpi_parameters.agrees("100", "30")
    assert not mpi_parameters.agrees("ring", None)
