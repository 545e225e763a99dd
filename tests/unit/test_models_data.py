import numpy as np
import pandas as pd
import pytest
from synthetic import Truth, study

from stallpoint.models.data import TrainingData, data_share, storage_rates
from stallpoint.models.measured import Measured, measured, over_ranks
from stallpoint.models.statistics import estimate

TRUTH = Truth()


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return study(TRUTH, nodes=(1, 2, 4))


@pytest.fixture(scope="module")
def points(tables: dict[str, pd.DataFrame]) -> list[Measured]:
    return measured(over_ranks(tables["iterations"], tables["layers"]), seed=0)


def training_data(tables: dict[str, pd.DataFrame]) -> TrainingData:
    return TrainingData(tables["runs"], tables["iterations"], tables["storage_reads"], seed=0)


def point(points: list[Measured], storage: str, prefetch: int) -> Measured:
    return next(
        p for p in points if (p.point.storage, p.point.prefetch, p.point.scaling) == (storage, prefetch, "strong")
    )


@pytest.mark.parametrize("storage", ["local", "shared"])
@pytest.mark.parametrize("ranks", [1, 4, 16])
def test_time_for_input_grows_as_the_storage_slows(
    tables: dict[str, pd.DataFrame], points: list[Measured], storage: str, ranks: int
) -> None:
    in_line = training_data(tables).seconds(point(points, storage, 0), ranks, 8)
    value, low, high = estimate(in_line)
    assert value == pytest.approx(8 * (TRUTH.read_seconds(storage, ranks) + TRUTH.decode), rel=0.04)
    assert low <= value <= high


def test_reader_threads_share_the_work(tables: dict[str, pd.DataFrame], points: list[Measured]) -> None:
    ahead = training_data(tables).seconds(point(points, "local", 2), 1, 8)
    assert ahead[0] == pytest.approx(8 * (TRUTH.read + TRUTH.decode) / 2, rel=0.03)


def test_without_records_of_the_storage_it_is_taken_to_keep_pace(
    tables: dict[str, pd.DataFrame], points: list[Measured]
) -> None:
    none = {**tables, "storage_reads": tables["storage_reads"].iloc[:0]}
    seconds = training_data(none).seconds(point(points, "shared", 0), 4, 8)
    assert seconds[0] == pytest.approx(8 * (TRUTH.read + TRUTH.decode), rel=0.03)


def test_the_cached_pass_speaks_when_training_read_from_the_cache(
    tables: dict[str, pd.DataFrame], points: list[Measured]
) -> None:
    cached = {**tables, "iterations": tables["iterations"].assign(read=lambda rows: rows["read"] / 10)}
    seconds = training_data(cached).seconds(point(points, "shared", 0), 4, 8)
    assert seconds[0] == pytest.approx(8 * (TRUTH.read / 10 + TRUTH.decode), rel=0.03)  # no contention there


def test_unknown_without_a_cell_to_learn_from(tables: dict[str, pd.DataFrame], points: list[Measured]) -> None:
    cells = tables["iterations"].query("storage == 'shared'")["cell"].unique()
    seconds = training_data(tables).seconds(point(points, "shared", 0), 4, 8, without=list(cells))
    assert np.isnan(seconds).all()


def test_storage_rates_count_all_nodes(tables: dict[str, pd.DataFrame]) -> None:
    rates = pd.DataFrame(storage_rates(tables["storage_reads"], seed=0))
    rates = rates.set_index(["storage", "nodes", "order", "cache"])
    for storage in ("local", "shared"):
        row = rates.loc[(storage, 4, "random", "cold")]
        assert row["samples_per_second"] == pytest.approx(4 / TRUTH.read_seconds(storage, 4), rel=0.03)
        assert row["samples_per_second_low"] <= row["samples_per_second"] <= row["samples_per_second_high"]
        assert row["bytes_per_second"] == pytest.approx(1e5 * row["samples_per_second"])
        assert row["latency_p50"] < row["latency_p95"] < row["latency_p99"]
        assert row["resident"] == 0.0


def test_time_between_reads_counts_in_the_rate(tables: dict[str, pd.DataFrame]) -> None:
    reads = tables["storage_reads"].query("storage == 'local' and nodes == 1")
    idle = reads.assign(start=reads["start"] * 2)
    rate = pd.DataFrame(storage_rates(idle, seed=0)).set_index(["order", "cache"])["samples_per_second"]
    assert rate["random", "cold"] == pytest.approx(0.5 / TRUTH.read, rel=0.03)


def test_the_slowest_rank_decides_the_rate(tables: dict[str, pd.DataFrame]) -> None:
    reads = tables["storage_reads"].query("storage == 'local' and nodes == 4")
    slow = np.where(reads["rank"] == 2, 3.0, 1.0)
    uneven = reads.assign(seconds=reads["seconds"] * slow, start=reads["start"] * slow)
    rate = pd.DataFrame(storage_rates(uneven, seed=0)).set_index(["order", "cache"])["samples_per_second"]
    assert rate["random", "cold"] == pytest.approx(4 / TRUTH.read / 3, rel=0.03)


def test_share_of_waiting_for_data(points: list[Measured]) -> None:
    table = pd.DataFrame(data_share(points)).query("scaling == 'strong' and nodes == 1")
    wait = 64 * (TRUTH.read + TRUTH.decode)
    in_line = table.query("prefetch == 0")
    assert in_line["data_wait"].to_numpy() == pytest.approx(wait, rel=0.03)
    assert in_line["share"].to_numpy() == pytest.approx(in_line["data_wait"] / 0.2642, rel=0.03)
    assert (table.query("prefetch == 2")["share"] == 0).all()
