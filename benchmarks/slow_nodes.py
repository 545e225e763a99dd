"""Slow nodes of tests/cluster, for benchmarks of what only several nodes can show."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "tests" / "cluster"
LIKE_HARDWARE = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_tcp_flags": "send,inplace",
    "OMPI_MCA_pml_ob1_send_pipeline_depth": "1",
}
"""Ranks that wait use no core, and messages both ways share a link evenly (tests/cluster/README.md)."""
SRUN = "srun --mpi=pmix --exclusive --nodes={nodes} --ntasks={ranks} --kill-on-bad-exit=1"


class NotHere(Exception):
    """Why they cannot be had on this machine."""


@contextmanager
def slow_nodes(config: str = "eight.toml") -> Iterator[Mapping[str, str]]:
    """The environment of jobs on the nodes of `config`, which are up while the block runs; raises `NotHere`."""
    with cluster_up(config) as nap:
        yield os.environ | LIKE_HARDWARE | ({"LD_PRELOAD": str(nap)} if nap.exists() else {})


@contextmanager
def cluster_up(config: str) -> Iterator[Path]:
    """A test cluster that is up while the block runs; the library that lets its ranks wait without polling.

    Raises `NotHere`.
    """
    sys.path.insert(0, str(FOLDER))
    import cluster as test_cluster

    if problem := test_cluster.obstacle():
        raise NotHere(problem)
    try:
        with test_cluster.Cluster.read(FOLDER / config).kept_up():
            yield test_cluster.NAP
    except test_cluster.ClusterError as error:
        raise NotHere(str(error)) from error
