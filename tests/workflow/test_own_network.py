"""A study of a user's own network, on tokens: measured, modelled, stale when its file changes, refused when wrong."""

import json
from collections import Counter
from collections.abc import Callable

import pytest
from checkout import BLOCK, Checkout

from stallpoint.records.parquet import read
from stallpoint.records.tables import ITERATIONS, MACHINE, MODEL_TABLES, NETWORK_LAYERS, RUNS, SGEMM

SOURCE = """
from torch import nn


def build():
    return nn.Sequential(nn.Embedding(200, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 200))
"""
STUDY = {
    "storage": {
        "text": {"path": "text", "format": "tokens", "generate": 64, "sequence_length": 24, "vocabulary": 200},
        "jpeg": {"path": "images", "format": "files", "generate": 4},
    },
    "networks": {"mine": {"build": "nets/mine.py:build", "sequence_length": 24, "vocabulary": 200}},
    "matrix": [{**BLOCK, "network": "mine", "batch": 4, "storage": ["text", "jpeg"]}],
    "what_if": [{"bandwidth": 2}],
}

CONCLUSIONS = "results/tiny/conclusions.json"
"""Charts and report are those of any study."""


@pytest.fixture(scope="module")
def study(new_checkout: Callable[..., Checkout]) -> Checkout:
    checkout = new_checkout(**STUDY)
    (checkout.folder / "nets").mkdir()
    (checkout.folder / "nets/mine.py").write_text(SOURCE)
    ran = checkout.snakemake(CONCLUSIONS)
    assert ran.status == 0, ran.text
    assert "4 × network mine takes tokens, but storage jpeg holds images" in ran.text
    return checkout


def test_it_is_measured_and_modelled_like_any_other(study: Checkout) -> None:
    runs = read(RUNS, study.results("tables/runs.parquet")).to_pandas()
    assert runs.groupby("kind").size().to_dict() == {"train": 4, "sgemm": 1, "collectives": 1, "storage": 2}
    assert set(runs["status"]) == {"ok"}
    assert set(read(ITERATIONS, study.results("tables/iterations.parquet"))["network"].to_pylist()) == {"mine"}
    products = read(SGEMM, study.results("tables/sgemm.parquet")).to_pandas()
    assert set(products.loc[products["layer_type"] != MACHINE, "layer"]) == {"reference", "network.1", "network.3"}
    filled = {table.name for table in MODEL_TABLES if len(read(table, study.results(f"models/{table.name}.parquet")))}
    # No node count is held out of two, nothing is left out, copied or differs in one axis alone, two b are no curve.
    empty = {"validation", "interventions", "comparisons", "curve_distances", "copy_rates", "break_even"}
    # Nothing is trained to a target, and no server updates.
    empty |= {"steps_to_target", "noise_scale", "critical_batches", "time_to_accuracy", "accuracy_stalling"}
    empty |= {"target_times", "target_stalling", "early_stopping", "staleness_shares", "worker_staleness"}
    # Nothing is asked of costs, and hardware has no failures.
    empty |= {"choices", "availability"}
    # Whether anything is disturbed, or the model too far off to say what if or what would help, is up to the machine.
    open_ = {"disturbances", "what_if", "remedies"}
    assert filled - open_ == {table.name for table in MODEL_TABLES} - empty - open_


def test_what_it_is_made_of_is_written(study: Checkout) -> None:
    layers = read(NETWORK_LAYERS, study.results("networks/mine.parquet")).to_pandas()
    assert layers["parameters"].sum() == 200 * 16 + 16 * 32 + 32 + 32 * 200 + 200
    assert layers["multiply_adds"].sum() == 24 * (16 * 32 + 32 * 200)


def test_editing_its_file_measures_it_again_and_a_wrong_one_is_refused_before(study: Checkout) -> None:
    (study.folder / "nets/mine.py").write_text(SOURCE.replace("Linear(16", "Linear(17"))
    ran = study.snakemake("--logger-stallpoint-plain", "--", CONCLUSIONS)
    assert ran.status != 0
    assert (ran.jobs["describe_network"], ran.jobs["measure_local"]) == (1, 1)
    ordered = json.loads(study.results("schedule/local.json").read_text())["orders"]
    assert Counter(json.loads(cell)["kind"] for cell, _ in ordered) == {"train": 4, "sgemm": 1}
    assert "error: networks.mine.build: forward failed: RuntimeError: " in ran.text
    assert "rule measure_local" not in ran.text
    assert read(RUNS, study.results("tables/runs.parquet")).num_rows == 8, "what was measured is kept"


def test_a_file_that_is_not_there_is_named_while_planning(study: Checkout) -> None:
    study.write_study(networks={"mine": {**STUDY["networks"]["mine"], "build": "nets/other.py:build"}})
    ran = study.snakemake("-n")
    study.write_study()
    assert ran.status != 0
    assert "networks.mine.build: there is no file nets/other.py" in ran.text
    assert "Traceback" not in ran.text
