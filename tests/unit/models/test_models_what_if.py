from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic import Layer, Truth, study

from stallpoint.models.fitting import fit
from stallpoint.models.iteration.scenarios import NO_CHANGE, PublishedLink, Scenario, _scale_launches, scenarios
from stallpoint.models.terms.compute import Times
from stallpoint.strategies.presets import PRESETS

ONE: dict[str, Any] = {"storages": ("local",), "prefetches": (0,), "compute_batches": (64, 32, 16, 8, 4, 2, 1)}
TRUTH = Truth(noise=0.001)
NODES = [1, 2, 4, 8, 16]
LARGE_LINK = {"latency": 5e-6, "bandwidth": 5e9}


def changed(layers: tuple[Layer, ...], *, speed: float = 1.0, gradient_bytes: float = 1.0) -> tuple[Layer, ...]:
    return tuple(
        replace(
            layer,
            fixed=layer.fixed / speed,
            each=layer.each / speed,
            gradient_bytes=int(layer.gradient_bytes * gradient_bytes),
        )
        for layer in layers
    )


BLOCKS: list[Mapping[str, Any]] = [
    {"bandwidth": 4, "latency": [1, 0.1]},
    {"compute_speed": 3},
    {"gradient_bytes": 0.25},
    {"batch": [4, 0.01]},
    {"prefetch": 2},
    {"sync": ["naive", "firecaffe"]},
    {"link": LARGE_LINK},
    {"message_latency": 1e-3},
]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    records = study(TRUTH, syncs=("naive", "wfbp"), **ONE)
    return fit(records, nodes=NODES, scenarios=scenarios(BLOCKS))["what_if"]


def rows(table: pd.DataFrame, scenario: str, scaling: str = "strong", sync: str = "wfbp") -> pd.DataFrame:
    found = table.query(f"scenario == '{scenario}' and scaling == '{scaling}' and sync == '{sync}'")
    return found.set_index("nodes")


@pytest.mark.parametrize(
    ("scenario", "truth"),
    [
        (NO_CHANGE, TRUTH),
        ("bandwidth × 4", replace(TRUTH, beta=TRUTH.beta / 4)),
        ("bandwidth × 4, latency × 0.1", replace(TRUTH, beta=TRUTH.beta / 4, alpha=TRUTH.alpha / 10)),
        ("compute speed × 3", replace(TRUTH, layers=changed(TRUTH.layers, speed=3), update=TRUTH.update / 3)),
        ("gradient bytes × 0.25", replace(TRUTH, layers=changed(TRUTH.layers, gradient_bytes=0.25))),
        ("link 5 µs, 5 GB/s", replace(TRUTH, alpha=5e-6, beta=1 / 5e9)),
    ],
)
def test_a_scenario_is_what_such_a_cluster_would_measure(table: pd.DataFrame, scenario: str, truth: Truth) -> None:
    iterations = study(truth, nodes=(1, 2, 4, 8), repeats=1, **ONE)["iterations"].query(
        "scaling == 'strong' and not warmup"
    )
    for sync in ("naive", "wfbp"):
        there = iterations[iterations["sync"] == sync].groupby("nodes")["iteration_time"].median()
        found = rows(table, scenario, sync=sync)["iteration"]
        assert found[[1, 2, 4, 8]].to_numpy() == pytest.approx(there.to_numpy(), rel=0.02)


def test_what_each_message_takes_in_addition_is_waited_for(table: pd.DataFrame) -> None:
    """Four layers have weights; beside the backward pass of wfbp some of it is hidden."""
    before, later = (
        {sync: rows(table, scenario, sync=sync)["iteration"][[2, 4, 8]].to_numpy() for sync in ("naive", "wfbp")}
        for scenario in (NO_CHANGE, "1 ms more for each message")
    )
    assert later["naive"] - before["naive"] == pytest.approx(4 * 1e-3, rel=0.02)
    assert ((later["wfbp"] - before["wfbp"] > 0.9e-3) & (later["wfbp"] - before["wfbp"] < 4e-3)).all()


def test_a_larger_batch_is_the_curve_of_that_batch(table: pd.DataFrame) -> None:
    there = study(TRUTH, batch=256, repeats=1, syncs=("wfbp",), **ONE)["iterations"]
    measured = there.query("scaling == 'strong' and not warmup").groupby("nodes")["iteration_time"].median()
    found = rows(table, "batch × 4")
    assert found.loc[[1, 2, 4], "iteration"].to_numpy() == pytest.approx(measured[[1, 2, 4]].to_numpy(), rel=0.02)


def test_another_preset_and_prefetching_are_predicted_as_their_own_curves(table: pd.DataFrame) -> None:
    naive = rows(table, "naive")
    assert naive["iteration"].to_numpy() == pytest.approx(
        rows(table, NO_CHANGE, sync="naive")["iteration"].to_numpy(), rel=1e-3
    )
    ahead = study(TRUTH, syncs=("wfbp",), repeats=1, **{**ONE, "prefetches": (2,)})["iterations"]
    there = ahead.query("scaling == 'strong' and not warmup").groupby("nodes")["iteration_time"].median()
    found = rows(table, "prefetch 2")
    assert found.loc[[1, 2, 4], "iteration"].to_numpy() == pytest.approx(there[[1, 2, 4]].to_numpy(), rel=0.03)


def test_what_the_curve_has_anyway_is_no_scenario(table: pd.DataFrame) -> None:
    assert rows(table, "naive", sync="naive").empty
    assert not rows(table, "prefetch 2", "strong").empty
    assert rows(table, "prefetch 2", "weak").empty or (rows(table, "prefetch 2", "weak")["prefetch"] == 0).all()


def test_what_cannot_be_predicted_says_why(table: pd.DataFrame) -> None:
    (tree,) = rows(table, "firecaffe").to_dict("records")
    assert tree["note"] == "a part of the model was not measured for it"
    assert np.isnan(tree["iteration"])
    (small,) = rows(table, "batch × 0.01").to_dict("records")
    assert small["note"] == "its mini-batch is no whole number for every worker"
    known = table[table["note"] == ""]
    assert known[["iteration", "speedup", "gain", "stall_ranks"]].notna().all(axis=None)


def test_gains_refer_to_the_cluster_as_it_is(table: pd.DataFrame) -> None:
    as_it_is, faster = rows(table, NO_CHANGE), rows(table, "bandwidth × 4")
    assert (as_it_is["gain"] == 1).all()
    assert as_it_is.loc[1, "speedup"] == 1
    ratio = as_it_is["iteration"] / faster["iteration"]
    assert faster["gain"].to_numpy() == pytest.approx(ratio.to_numpy())
    assert faster["speedup"].to_numpy() == pytest.approx((as_it_is["speedup"] * ratio).to_numpy())


def test_better_links_let_it_stall_later(table: pd.DataFrame) -> None:
    stalls = [rows(table, name)["stall_ranks"].iloc[0] for name in (NO_CHANGE, "bandwidth × 4", "link 5 µs, 5 GB/s")]
    assert stalls == sorted(stalls)
    assert stalls[0] < stalls[-1]


def test_scenarios_are_the_grid_of_each_block() -> None:
    grid = scenarios([{"bandwidth": [1, 2], "latency": [1, 0.5]}, {"bandwidth": 2}, {"sync": "horovod"}])
    assert grid[0] == Scenario()
    assert len(grid) == len(set(grid)) == 5
    assert [scenario.label for scenario in grid] == [
        "as measured",
        "latency × 0.5",
        "bandwidth × 2",
        "bandwidth × 2, latency × 0.5",
        "horovod",
    ]
    assert scenarios([]) == [Scenario()]
    assert scenarios([{"link": [LARGE_LINK]}])[1].link == PublishedLink(**LARGE_LINK)


def test_no_what_if_makes_no_rows() -> None:
    assert fit(study(nodes=(1, 2), **ONE), nodes=[])["what_if"].empty


def test_presets_of_the_study_can_be_named() -> None:
    half = replace(PRESETS["wfbp"].preset, gradient_bits=16)
    records = study(TRUTH, syncs=("wfbp",), **ONE)
    presets = {"wfbp": PRESETS["wfbp"].preset, "half": half}
    grid = scenarios([{"sync": "half"}, {"gradient_bytes": 0.5}])
    table = fit(records, nodes=NODES, scenarios=grid, known_presets=presets)
    halved = rows(table["what_if"], "half")["iteration"].to_numpy()
    assert halved == pytest.approx(rows(table["what_if"], "gradient bytes × 0.5")["iteration"].to_numpy(), rel=1e-3)


def test_starting_kernels_takes_no_more_than_the_pass() -> None:
    layers, passed = (
        np.array([[1e-3, 2e-3]]),
        np.array([2.5e-3]),
    )  # as disturbed records have it: shorter than its layers
    times = Times(layers, layers, passed, passed, np.zeros(1), np.zeros(1), "measured at b")
    started = _scale_launches(times, times, np.array(["relu", "relu"]), 0.0)
    for name in ("layers_forward", "layers_backward", "forward", "backward"):
        assert (getattr(started, name) == 0).all(), name
