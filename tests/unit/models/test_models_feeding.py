"""Whether training data keeps workers busy, from planted times of reading and decoding."""

import re

import numpy as np
import pandas as pd
import pytest
from synthetic import NETWORK, Truth, study

from stallpoint.models.fitting import fit
from stallpoint.report.charts.feeding_chart import data_share, readers

# So slow to read that two readers cannot keep up.
SLOW = Truth(NETWORK, noise=0.0, read=3.2e-3)


@pytest.fixture(scope="module")
def fitted() -> dict[str, pd.DataFrame]:
    return fit(study(SLOW, nodes=(1, 2, 4), syncs=("wfbp",), weak=False), nodes=[1, 2, 4, 8])


@pytest.fixture(scope="module")
def rows(fitted: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return fitted["feeding"].merge(fitted["predictions"])


def of(rows: pd.DataFrame, storage: str, prefetch: int) -> pd.DataFrame:
    return rows[(rows["storage"] == storage) & (rows["prefetch"] == prefetch)].set_index("nodes")


def test_utilisation_is_the_part_of_the_iteration_without_its_wait(rows: pd.DataFrame) -> None:
    measured = rows[rows["basis"] == "measured"]
    expected = 1 - measured["measured_data"] / measured["measured_iteration"]
    assert measured["utilisation"].tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert (measured["utilisation"] < 0.9).any()


def test_readers_that_suffice_are_those_that_read_as_fast_as_the_worker_computes(rows: pd.DataFrame) -> None:
    for storage in ("local", "shared"):
        for n, row in of(rows, storage=storage, prefetch=0).loc[[1, 2, 4]].iterrows():
            batch = 64 // int(n)
            reading = batch * (SLOW.read_seconds(storage, int(n)) + SLOW.decode)
            assert row["read_time"] == pytest.approx(reading, rel=0.03)
            busy = row["measured_iteration"] - row["measured_data"]
            assert row["readers_needed"] == pytest.approx(reading / busy, rel=0.03)


def test_readers_change_what_is_needed_of_one_and_nothing_of_how_many(rows: pd.DataFrame) -> None:
    in_line, ahead = (of(rows, storage="local", prefetch=prefetch) for prefetch in (0, 2))
    assert (in_line["readers"].eq(1) & ahead["readers"].eq(2)).all()
    assert ahead["read_time"].tolist() == pytest.approx(in_line["read_time"].tolist(), rel=0.03)


def test_utilisation_is_predicted_where_nobody_measured(rows: pd.DataFrame) -> None:
    eight = of(rows, storage="shared", prefetch=0).loc[8]
    assert eight["basis"] == "predicted"
    wait = 8 * (SLOW.read_seconds("shared", 8) + SLOW.decode)
    # Reading with 8 workers at once is extrapolated from 1, 2 and 4.
    expected = 1 - wait / eight["predicted_iteration"]
    assert eight["utilisation"] == pytest.approx(expected, abs=0.02)


def test_measured_places_are_predicted_within_two_points(rows: pd.DataFrame) -> None:
    measured = rows[(rows["basis"] == "measured") & rows["predicted_utilisation"].notna()]
    assert (measured["ranks"] > 1).sum() >= 8
    assert np.median(np.abs(measured["predicted_utilisation"] - measured["utilisation"])) < 0.02


def test_charts_say_how_many_readers_are_missing_and_where_workers_starve(fitted: dict[str, pd.DataFrame]) -> None:
    feeding = fitted["feeding"]
    in_line, ahead = (feeding[feeding["prefetch"] == prefetch] for prefetch in (0, 2))
    assert readers.finding({"feeding": ahead}) == "Every worker is fed by the readers that it has"
    few = readers.finding({"feeding": ahead.assign(readers=1)})
    needs = r"alexnet from \w+ needs [\d.]+ readers for b = \d+ on each worker at \d nodes?, and has 1"
    assert re.fullmatch(needs, few)
    none = readers.finding({"feeding": in_line})
    would = r"alexnet from \w+ reads in line; 2 readers ahead would keep a worker busy at \d nodes?"
    assert re.fullmatch(would, none)
    assert "starves from 1 node on" in data_share.finding({"feeding": in_line})
