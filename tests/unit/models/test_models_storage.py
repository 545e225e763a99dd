"""Rates of reading, against made-up storages whose speed is known."""

import numpy as np
import pandas as pd
import pytest
from synthetic import Truth, study

from stallpoint.models.terms.data import storage_rates

TRUTH = Truth()


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return study(TRUTH, nodes=(1, 2, 4))


def rates(reads: pd.DataFrame, passes: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(storage_rates(reads, passes, seed=0))


def test_rates_count_all_nodes(tables: dict[str, pd.DataFrame]) -> None:
    found = rates(tables["storage_reads"], tables["storage_passes"])
    found = found.set_index(["storage", "nodes", "order", "cache"])
    for storage in ("local", "shared"):
        row = found.loc[(storage, 4, "shuffled", "cold")]
        assert row["samples_per_second"] == pytest.approx(4 / TRUTH.read_seconds(storage, 4), rel=0.03)
        assert row["samples_per_second_low"] <= row["samples_per_second"] <= row["samples_per_second_high"]
        assert row["bytes_per_second"] == pytest.approx(1e5 * row["samples_per_second"])
        assert row["latency_p50"] < row["latency_p95"] < row["latency_p99"]
        assert row["resident"] == 0.0
        assert row["set_over_memory"] == 10
        assert (row["origin"], row["server_cache"], row["uncached"]) == ("local device", "none", True)
        warm = found.loc[(storage, 4, "shuffled", "warm")]
        assert (warm["origin"], warm["server_cache"], warm["uncached"]) == ("page cache", "", False)


def one_order(tables: dict[str, pd.DataFrame], nodes: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    chosen = f"storage == 'local' and nodes == {nodes} and order == 'shuffled' and cache == 'cold'"
    return tables["storage_reads"].query(chosen), tables["storage_passes"].query(chosen)


def test_time_between_reads_counts_in_the_rate(tables: dict[str, pd.DataFrame]) -> None:
    reads, passes = one_order(tables, 1)
    (rate,) = rates(reads.assign(start=reads["start"] * 2), passes)["samples_per_second"]
    assert rate == pytest.approx(0.5 / TRUTH.read, rel=0.03)


def test_the_slowest_rank_decides_the_rate(tables: dict[str, pd.DataFrame]) -> None:
    reads, passes = one_order(tables, 4)
    slow = np.where(reads["rank"] == 2, 3.0, 1.0)
    uneven = reads.assign(seconds=reads["seconds"] * slow, start=reads["start"] * slow)
    (rate,) = rates(uneven, passes)["samples_per_second"]
    assert rate == pytest.approx(4 / TRUTH.read / 3, rel=0.03)


def test_several_readers_of_a_worker_share_its_samples(tables: dict[str, pd.DataFrame]) -> None:
    """Two threads that read at once are through in half the time."""
    reads, passes = one_order(tables, 1)
    half = reads.assign(readers=2, start=reads["start"] / 2)
    both = rates(pd.concat([reads, half]), pd.concat([passes, passes.assign(readers=2)])).set_index("readers")
    assert both.loc[2, "samples_per_second"] == pytest.approx(2 * both.loc[1, "samples_per_second"], rel=0.05)
    assert both.loc[2, "latency_p50"] == both.loc[1, "latency_p50"]


def test_a_node_that_read_from_its_page_cache_keeps_a_pass_from_being_the_storages_speed(
    tables: dict[str, pd.DataFrame],
) -> None:
    reads, passes = one_order(tables, 4)
    cached = (passes["rank"] == 2) & (passes["repeat"] == 1)
    mended = passes.assign(
        origin=passes["origin"].mask(cached, "page cache"),
        server_cache=passes["server_cache"].mask(cached, ""),
        uncached=passes["uncached"].mask(cached, False),
    )
    found = rates(reads, mended).set_index("origin")
    assert dict(found["uncached"]) == {"mixed": False, "local device": True}
    assert found.loc["mixed", "server_cache"] == "unknown"
