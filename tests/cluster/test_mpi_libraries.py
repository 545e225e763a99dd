"""MPI libraries beside Open MPI under Slurm: ranks on four nodes that train, and what is said where they disagree."""

import subprocess
import sys
from pathlib import Path

import pytest
import small_training
from cluster import Cluster
from mpi_libraries import INTEL_MPI, MPICH, MpiLibrary

pytestmark = [pytest.mark.cluster, pytest.mark.night]

REPOSITORY = Path(__file__).parents[2]
START = """
from stallpoint.errors import CannotRun
from stallpoint.measure.world import World
try:
    World.start(4)
except CannotRun as error:
    print(error)
"""

libraries = pytest.mark.parametrize("library", [MPICH, INTEL_MPI], ids=lambda library: library.version)


def srun(library: MpiLibrary, plugin: str, *words: str) -> str:
    """What a Python program on four nodes printed, started through this plugin."""
    settings = [f"{name}={value}" for name, value in library.settings().items()]
    command = ["srun", "--chdir", str(REPOSITORY), "--nodes=4", "--ntasks=4", f"--mpi={plugin}", "env", *settings]
    done = subprocess.run([*command, sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@libraries
def test_four_nodes_train_with_weights_that_stay_equal(cluster: Cluster, library: MpiLibrary, tmp_path: Path) -> None:
    target = tmp_path / "trained.pt"
    srun(library, "pmi2", small_training.__file__, "sharded-servers", str(target))
    assert target.stat().st_size > 0


@libraries
def test_a_plugin_that_the_library_does_not_speak_to_is_named(cluster: Cluster, library: MpiLibrary) -> None:
    said = srun(library, "none", "-c", START)
    assert said.count("the job needs 4 MPI ranks and MPI started 1: srun started every task as an MPI job") == 4
    assert "--mpi=pmi2 for MPICH and Intel MPI" in said
