"""Where a storage gives no more, from planted times of reads."""

from functools import partial

import pandas as pd
import pytest
import synthetic
from synthetic import NETWORK, Truth

from stallpoint.models.fitting import fit

NODES = [1, 2, 4, 8, 16, 32, 64]
study = partial(synthetic.study, syncs=("naive",), prefetches=(0,), compute_batches=(64,), iterations=1)
"""Studies that train little: what storages give is read apart."""


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Storage ``shared``: n nodes together read n / (1 + (n - 1) / 2) times what one does; ``local`` keeps pace."""
    truth = Truth(NETWORK, noise=0.0, contention=0.5)
    return fit(study(truth, nodes=(1, 2, 4, 8)), nodes=NODES)["saturation"].set_index("storage")


def test_a_storage_whose_reads_slow_each_other_saturates_where_they_do(rows: pd.DataFrame) -> None:
    # Doubling n nodes gains 2 (n + 1) / (2 n + 1): 1.11 at n = 4, 1.06 at n = 8.
    shared = rows.loc["shared"]
    assert (shared["verdict"], shared["verdict_ranks"]) == ("saturates", 8)
    assert shared["saturation_ranks_low"] <= 8 <= shared["saturation_ranks_high"]
    assert shared["largest_measured"] == 8


def test_a_storage_of_each_nodes_own_keeps_pace(rows: pd.DataFrame) -> None:
    local = rows.loc["local"]
    assert (local["verdict"], local["verdict_ranks"], local["reached"]) == ("keeps pace", 64, False)


def test_a_single_visit_decides_nothing_and_more_of_them_would() -> None:
    truth = Truth(NETWORK, noise=0.0, contention=0.5)
    once = study(truth, nodes=(1, 2, 4, 8), repeats=1)
    rows = fit(once, nodes=NODES)["saturation"]
    assert set(rows["verdict"]) == {"undecided"}
    assert set(rows["verdict_ranks"]) == {0}
    assert set(rows["deciding"]) == {"more visits to 1, 2, 4, 8 workers"}


def test_visits_that_would_decide_are_those_that_the_hardware_can_do() -> None:
    few = study(Truth(NETWORK, noise=0.3, contention=0.5), nodes=(1, 2))
    for available, said in ((2, "a hardware entry of 8"), (8, "more visits to 8 workers and a hardware entry of 16")):
        rows = fit(few, nodes=NODES, available={"cpu": available})["saturation"]
        (found,) = rows.query("verdict == 'undecided'")["deciding"]
        assert found == f"{said} workers"


def test_what_is_undecided_says_which_visits_would_decide_it(rows: pd.DataFrame) -> None:
    """Doubling n nodes gains (1 + 1/(n + 1)) times, less than the threshold by chance only: noise decides at n = 8."""
    noisy = study(Truth(NETWORK, noise=0.3, contention=0.5), nodes=(1, 2, 4, 8))
    found = fit(noisy, nodes=NODES)["saturation"].set_index("storage").loc["shared"]
    assert found["verdict"] == "undecided"
    named = found["deciding"].removeprefix("more visits to ").removesuffix(" workers").split(", ")
    assert int(named[0]) == found["verdict_ranks"]
    assert set(rows["deciding"]) == {""}


def test_one_number_of_workers_tells_nothing() -> None:
    assert fit(study(nodes=(1,), repeats=1), nodes=NODES)["saturation"].empty
