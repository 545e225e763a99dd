import os
from collections.abc import Iterator

import pytest
from cluster import Cluster, obstacle


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The Slurm cluster, up; it is taken down at the end, unless it was up before."""
    if problem := obstacle():
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(problem)
    with Cluster.read().kept_up() as cluster:
        yield cluster
