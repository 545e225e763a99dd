from typing import Any

import pandas as pd
import pytest
from synthetic import study

from stallpoint.models import comparisons, hidden_communication, traffic
from stallpoint.models.measured import Measured, measured, over_ranks

RECORDS = study(nodes=(1, 2), prefetches=(0, 2), repeats=2)


@pytest.fixture(scope="module")
def points() -> list[Measured]:
    return measured(over_ranks(RECORDS["iterations"], RECORDS["layers"]), 0)


def only(rows: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    (row,) = (row for row in rows if all(row[name] == value for name, value in wanted.items()))
    return row


def test_points_are_compared_that_differ_in_one_choice_alone(points: list[Measured]) -> None:
    rows: list[dict[str, Any]] = comparisons.table(points)
    # Strong scaling, at each of two node counts: 2 storages x 2 presets x 2 prefetches, each beside three others.
    assert len(rows) == 2 * 8 * 3
    strong = {"scaling": "strong", "nodes": 2, "storage": "local", "prefetch": 0}
    one = only(rows, **strong, sync="wfbp", axis="sync", against="naive")
    other = only(rows, **strong, sync="naive", axis="sync", against="wfbp")
    assert one["throughput"] * other["throughput"] == pytest.approx(1)
    assert one["throughput_low"] <= one["throughput"] <= one["throughput_high"]
    assert one["exposed_high"] < 1 < other["exposed_low"]
    ahead = only(rows, **{**strong, "prefetch": 2}, sync="wfbp", axis="prefetch", against="0")
    assert ahead["throughput_low"] > 1


def test_one_worker_exposes_no_communication(points: list[Measured]) -> None:
    rows: list[dict[str, Any]] = comparisons.table(points)
    assert all((row["exposed"] != row["exposed"]) == (row["ranks"] == 1) for row in rows)


def test_the_naive_algorithm_hides_nothing(points: list[Measured]) -> None:
    rows: list[dict[str, Any]] = hidden_communication.table(points)
    assert {row["ranks"] for row in rows} == {2}
    for row in rows:
        if row["sync"] == "naive":
            assert row["hidden_share"] == pytest.approx(0, abs=1e-6)
        else:
            assert 0 < row["hidden_share_low"] <= row["hidden_share"] <= row["hidden_share_high"] <= 1
        assert row["exposed"] <= row["communication"] * (1 + 1e-6)


def test_an_iteration_moves_its_samples_and_two_models_for_each_further_worker(points: list[Measured]) -> None:
    rows: list[dict[str, Any]] = traffic.table(points, RECORDS["layers"], RECORDS["storage_reads"])
    row = only(rows, scaling="strong", storage="shared", sync="wfbp", prefetch=0)
    model = 140_000 + 1_230_000 + 30_000_000 + 12_000_000
    assert (row["data_bytes"], row["gradient_bytes"]) == (64 * 100_000, 2 * model)
    assert all(row["nodes"] == 2 for row in rows)


def test_traffic_of_a_cluster_is_not_of_another_one_with_a_storage_of_that_name(
    points: list[Measured],
) -> None:
    reads = RECORDS["storage_reads"]
    elsewhere = reads.assign(hardware="other", bytes=3 * reads["bytes"])
    both = traffic.table(points, RECORDS["layers"], pd.concat([reads, elsewhere]))
    assert both == traffic.table(points, RECORDS["layers"], reads) != []
