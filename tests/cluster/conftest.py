"""The Slurm cluster with a storage node, and a study that was run on it: what several files of tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ON_SLURM, Checkout
from cluster import Cluster, obstacle
from site_study import TABLES, new_checkout


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The Slurm cluster, up; it is taken down at the end, unless it was up before."""
    if problem := obstacle():
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(problem)
    with Cluster.read(Path(__file__).with_name("storage.toml")).kept_up() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def finished(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose study has been measured, and its records collected by a job."""
    checkout = new_checkout(tmp_path_factory.mktemp("checkout"))
    ran = checkout.run_snakemake(*ON_SLURM, "--config", "submit=tables", "--", TABLES)
    assert ran.status == 0, ran.text
    return checkout
