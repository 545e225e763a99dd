"""Where a storage gives no more, from planted times of reads."""

import pandas as pd
import pytest
from synthetic import NETWORK, Truth, study

from stallpoint.models.fitting import fit

NODES = [1, 2, 4, 8, 16, 32, 64]


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


def test_one_number_of_workers_tells_nothing() -> None:
    assert fit(study(nodes=(1,), repeats=1), nodes=NODES)["saturation"].empty
