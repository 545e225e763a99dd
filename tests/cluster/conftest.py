import os
from collections.abc import Iterator

import pytest
from cluster import Cluster, obstacle

# Nodes share this machine's cores: ranks that wait leave them to others, also in jobs that inherit this.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The Slurm cluster, up; it is taken down at the end, unless it was up before."""
    if problem := obstacle():
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(problem)
    cluster = Cluster.read()
    was_up = cluster.is_up()
    cluster.up()
    yield cluster
    if not was_up:
        cluster.down()
