"""A study on the cluster loses nothing, whatever happens to it: one history drawn at random, more by make chaos."""

import pytest
from cluster import Cluster
from tally import tallies

pytestmark = [pytest.mark.cluster, pytest.mark.night]


def test_whatever_happens_every_cell_is_recorded_once(cluster: Cluster) -> None:
    found = list(tallies("cluster_histories", "--examples", "1"))
    assert sum(tally["trials"] for tally in found) >= 1
    assert [line for tally in found for line in tally["red"]] == []
