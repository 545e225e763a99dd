from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import by_day
from synthetic import Layer, Truth, study

from stallpoint.models.answers.next_cells import (
    STEP_ERROR,
    expected_width,
    interval_width,
    stall_position,
    step_error,
    walk_covariance,
)
from stallpoint.models.fitting import fit

ONE: dict[str, Any] = {"storages": ("local",), "syncs": ("naive",), "prefetches": (0,), "weak": False}
FREE = {"alpha": 1e-9, "beta": 1e-15, "read": 1e-9, "decode": 1e-9, "update": 1e-9}
NORMAL_WIDTH = 2 * 1.6449


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.0, 3.0])
def test_the_interval_to_expect_of_a_normal_quantity(noise: float) -> None:
    """Known answer: after a measurement with error s the deviation is s / sqrt(1 + s²)."""
    random = np.random.default_rng(0)
    true = random.standard_normal(60_000)
    measured = true + noise * random.standard_normal(len(true))
    assert interval_width(true) == pytest.approx(NORMAL_WIDTH, rel=0.02)
    assert expected_width(true, measured) == pytest.approx(NORMAL_WIDTH * noise / np.hypot(1, noise), rel=0.05)


def test_what_has_nothing_to_do_with_it_tells_nothing() -> None:
    random = np.random.default_rng(0)
    true, other = random.standard_normal((2, 6_000))
    assert expected_width(true, other) == pytest.approx(interval_width(true), rel=0.03)


def test_the_stall_of_amdahls_law_is_found_between_the_counts() -> None:
    nodes, serial = [2**power for power in range(12)], np.array([0.2, 0.05, 0.01, 0.9])
    speeds = -np.log(serial[:, None] + (1 - serial[:, None]) / np.array(nodes))
    expected = np.log2(np.maximum((1 - serial) * 0.9 / (2 * serial * 0.1), 1))
    assert stall_position(nodes, speeds, 0.1) == pytest.approx(expected, abs=0.12)


def test_no_stall_lies_at_the_largest_count() -> None:
    assert stall_position([1, 2, 4], np.log([[1.0, 2.0, 4.0]]), 0.1).tolist() == [2]


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4), st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_the_stall_comes_no_later_when_more_is_asked_for(speeds: list[float], one: float, other: float) -> None:
    low, high = sorted([one, other])
    places = [stall_position([1, 2, 4, 8], np.array([speeds]), threshold)[0] for threshold in (low, high)]
    assert places[1] <= places[0] + 1e-9


def test_the_error_walks_away_from_what_was_measured() -> None:
    """Places 0, 1 and 3 of 0 ... 5 are fixed: a bridge between 1 and 3, a walk beyond 3."""
    covariance = walk_covariance(np.arange(6.0), [0, 1, 3])
    assert np.diag(covariance) == pytest.approx([0, 0, 0.5, 0, 1, 2], abs=1e-9)
    assert covariance[4, 5] == pytest.approx(1, abs=1e-9)
    assert covariance[2, 4] == pytest.approx(0, abs=1e-9)


def test_the_size_of_the_error_is_learnt_from_measured_steps() -> None:
    assert step_error({1: np.zeros(3)}) == STEP_ERROR
    assert step_error({1: np.full(3, np.nan)}) == STEP_ERROR
    assert step_error({}) == STEP_ERROR
    exact = {2**power: np.zeros(3) for power in range(8)}
    assert step_error(exact) == pytest.approx(STEP_ERROR / np.sqrt(8))
    worse = {2**power: np.full(3, 0.3 * power) for power in range(8)}
    assert step_error(worse) == pytest.approx(0.3, rel=0.1)


def cells(truth: Truth) -> pd.DataFrame:
    records = study(truth, **ONE)
    # The made-up study's job on 8 nodes ran out of memory; here it has not been tried.
    records["runs"] = records["runs"].query("status == 'ok'")
    return fit(records, nodes=[1, 2, 4, 8, 16, 32, 64])["next_cells"].set_index(["kind", "nodes"])


def stalling_at(nodes: float, **options: Any) -> Truth:
    """t = 64 a (1/n + s), which gains less than 10 % from `nodes` on: s = 0.9 / (2 · 0.1 · n)."""
    each = 1e-3 / 3
    return Truth(**{**FREE, **options}, layers=(Layer("fc", "fully-connected", 64 * each * 4.5 / nodes, each, 4),))


@pytest.mark.parametrize(
    ("stall", "decides"), by_day([(4, 8), (6, 8), (8, 16), (16, 32)], {(4, 8), (16, 32)}.__contains__)
)
def test_the_count_that_decides_the_doubling_tells_most_per_node_hour(stall: float, decides: int) -> None:
    """t = 64/n + 288/stall ms, measured up to n = 4: the doubling at the stall ends on this count."""
    table = cells(stalling_at(stall))
    training = table.loc["train"]
    assert training["width"].iloc[0] > 0.5
    assert table["rank_in_curve"].idxmin() == ("train", decides)
    assert training.loc[[1, 2], "narrowing"].max() == 0
    assert (table["expected_width"] <= table["width"]).all()


def test_the_last_count_leaves_nothing_open() -> None:
    """Only n = 8 is not measured: once it is, only the noise of the measurements is left."""
    records = study(replace(stalling_at(4), noise=0.001), **ONE)
    records["runs"] = records["runs"].query("status == 'ok'")
    table = fit(records, nodes=[8])["next_cells"].set_index(["kind", "nodes"])
    assert table["width"].iloc[0] > 0.3
    assert table.loc[("train", 8), "expected_width"] < 0.2 * table["width"].iloc[0]
    assert table.drop(index=("train", 8))["narrowing"].max() == 0


def test_a_stall_among_measured_counts_needs_no_cell() -> None:
    """t = 64/n + 256 ms stalls at n = 2, and n = 1, 2 and 4 were measured."""
    layers = (Layer("fc", "fully-connected", 256e-3 / 3, 1e-3 / 3, 4),)
    table = cells(Truth(**FREE, layers=layers, noise=0.001))
    assert table["width"].iloc[0] < 0.12
    assert table["narrowing"].max() < 0.05


def test_noise_among_measured_counts_asks_for_a_further_repeat() -> None:
    """115/n + 461 ms: doubling one node gains 11 %, which this noise hides; nothing beyond n = 4 can tell."""
    layers = (Layer("fc", "fully-connected", 256e-3 / 3 * 1.8, 1e-3 / 3 * 1.8, 4),)
    records = study(Truth(**FREE, layers=layers, noise=0.1), repeats=3, **ONE)
    table = fit(records, nodes=[], available={"cpu": 4})["next_cells"]
    best = table[table["rank_in_curve"] == 1].iloc[0]
    assert (best["kind"], best["narrowing"] > 0) == ("train", True)
    assert best["nodes"] in (1, 2)


def test_cells_that_cannot_run_are_not_proposed() -> None:
    records = study(stalling_at(16), **ONE)
    found = fit(records, nodes=[1, 2, 4, 8, 16, 32], available={"cpu": 16})["next_cells"]
    # The made-up study's job on 8 nodes ran out of memory.
    assert set(found.query("kind == 'train'")["nodes"]) == {1, 2, 4, 16}
    assert found["nodes"].max() == 16


def test_costs_are_node_hours_of_such_jobs() -> None:
    """A job of the made-up study takes 1 s, less than its iterations: start and end cost nothing."""
    records = study(stalling_at(16), **ONE)
    long = records["runs"]["kind"] == "train"
    records["runs"].loc[long, "duration"] = 100.0
    table = fit(records, nodes=[1, 2, 4, 8, 16])["next_cells"].set_index(["kind", "nodes"])
    hours = table["node_hours"]
    # 100 s around and in it; the iterations, 7 of at most 0.1 s, are a small part.
    assert hours["train", 16] == pytest.approx(16 * 100 / 3600, rel=0.02)
    assert hours["collectives", 16] == pytest.approx(16 * 1 / 3600)
    ranked = table.sort_values("rank_in_curve")
    assert ranked["narrowing_per_node_hour"].is_monotonic_decreasing
    assert (ranked["narrowing"] / ranked["node_hours"]).to_numpy() == pytest.approx(
        ranked["narrowing_per_node_hour"].to_numpy()
    )


def test_one_node_count_has_nothing_to_narrow() -> None:
    assert fit(study(nodes=(1,), **ONE), nodes=[])["next_cells"].empty
