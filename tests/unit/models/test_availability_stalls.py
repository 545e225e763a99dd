"""Where failures stall a curve: at the first count whose double gains too little in the rate that remains."""

import pytest
from synthetic import NETWORK, Truth, study

from stallpoint.base.measured import SERIES
from stallpoint.models.fitting import fit

THRESHOLD = 0.1


@pytest.mark.parametrize("per_node_day", [1e-6, 60.0])
def test_what_remains_after_failures_stalls_where_its_doublings_gain_too_little(per_node_day: float) -> None:
    tables = study(Truth(NETWORK, noise=0.0), syncs=("naive",), storages=("local",), prefetches=(0,))
    given = {"per_node_day": per_node_day, "checkpoint_seconds": 60.0, "restart_seconds": 600.0}
    fitted = fit(tables, nodes=[8, 16, 32, 64], failures={"cpu": given}, threshold=THRESHOLD)
    rates = fitted["availability"].set_index([*SERIES, "ranks"])["productive_rate"]
    stalls = fitted["availability_stalling"].set_index(list(SERIES))
    for curve, row in stalls.iterrows():
        of = rates.loc[curve].to_dict()
        poor = [count for count in of if 2 * count in of and of[2 * count] < (1 + THRESHOLD) * of[count]]
        assert row["reached"] == bool(poor)
        if poor:
            assert row["stall_ranks"] == poor[0]
        if per_node_day < 1:
            assert (row["verdict"], row["verdict_ranks"]) == (row["without_failures"], row["without_failures_ranks"])
    assert stalls.xs("weak", level="scaling")["reached"].all() == (per_node_day > 1)
    assert (stalls["failure_limit"] < 64).all() == (per_node_day > 1)
