"""What training makes of its hardware, from planted numbers."""

import pandas as pd
import pytest
from synthetic import NETWORK, Truth, study

from stallpoint.models.fitting import fit
from stallpoint.strategies.presets import NONE

WORK, TOKENS = 7.0e8, 1024
RATED = {"flops": 1.0e12, "link": 1.25e9}
BYTES = sum(layer.gradient_bytes for layer in NETWORK)
TRUTH = Truth(NETWORK, noise=0.0)


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return study(TRUTH, syncs=("naive", NONE), storages=("local",), prefetches=(0,))


@pytest.fixture(scope="module")
def rows(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    (network,), (hardware,) = (tables["iterations"][name].unique() for name in ("network", "hardware"))
    found = fit(
        tables, nodes=[], multiply_adds={network: WORK}, rated={hardware: RATED},
    )  # fmt: skip
    return found["utilisation"].merge(found["predictions"])


def test_operations_are_those_of_three_forward_passes_over_the_iteration(rows: pd.DataFrame) -> None:
    expected = 3 * 2 * WORK * rows["worker_batch"] / rows["measured_iteration"]
    assert rows["flops"].tolist() == pytest.approx(expected.tolist())
    assert rows["flops_share"].tolist() == pytest.approx((expected / 1.0e12).tolist())
    assert (rows["flops_low"] <= rows["flops"]).all()
    assert (rows["flops"] <= rows["flops_high"]).all()


def test_throughput_is_that_of_whole_mini_batches(rows: pd.DataFrame) -> None:
    rate = rows["global_batch"] / rows["measured_iteration"]
    assert rows["samples_per_second"].tolist() == pytest.approx(rate.tolist())


def test_a_link_carries_all_gradients_in_the_time_of_communication(rows: pd.DataFrame) -> None:
    sending = (rows["nodes"] > 1) & (rows["sync"] != NONE)
    expected = BYTES / rows["measured_communication"]
    assert sending.any()
    assert rows["link"][sending].tolist() == pytest.approx(expected[sending].tolist())
    assert rows["link_share"][sending].tolist() == pytest.approx((expected[sending] / 1.25e9).tolist())
    assert rows["link"][~sending].isna().all()


def test_what_is_not_rated_or_not_counted_has_no_share(tables: dict[str, pd.DataFrame]) -> None:
    rows = fit(tables, nodes=[])["utilisation"]
    assert rows[["flops", "flops_share", "link_share"]].isna().all(axis=None)
    assert rows["samples_per_second"].notna().all()
