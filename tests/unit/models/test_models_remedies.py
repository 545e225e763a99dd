"""Remedies: on planted problems the first one is the right one, and each names a cell that a study can have."""

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made_up_curves
import numpy as np
import pandas as pd
import pytest
import yaml
from made_up_curves import point
from planted_problems import FAST, ONE, PROBLEMS, fixed
from synthetic import Truth, study

from stallpoint.base.measured import Point
from stallpoint.base.statistics import REPLICATES, SAME_WITHIN
from stallpoint.models.answers import remedies
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.iteration.scenarios import Scenario
from stallpoint.models.terms.effects import NONE, Effects, Factors
from stallpoint.strategies.presets import PRESETS, presets_of, to_values
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.study import expand

SCHEMA = yaml.safe_load((Path(__file__).parents[3] / "workflow/schemas/study.schema.yaml").read_text())


def found(truth: Truth, **more: Any) -> pd.DataFrame:
    return strong(study(truth, **(ONE | more)))


def strong(records: dict[str, pd.DataFrame]) -> pd.DataFrame:
    table = fit(records, nodes=[1, 2, 4])["remedies"]
    return table.query("scaling == 'strong'").sort_values("rank_in_curve")


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_first_remedy_of_a_planted_problem_is_the_right_one(name: str) -> None:
    problem = PROBLEMS[name]
    rows = strong(problem.records(noise=0.01))
    first = rows.iloc[0]
    assert (first["changes"], first["verdict"]) == (problem.right, "helps"), rows[["remedy", "gain"]].to_string()
    assert first["gain_low"] > 1.5
    assert first["gain"] == pytest.approx(problem.gain, rel=0.15)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Of a cluster that has several workers on a node, a slow shared storage and noise."""
    truth = Truth(noise=0.1, contention=3.0, inside=(5e-6, 1e-10), read=2e-3)
    options: dict[str, Any] = {"places": [(1, 1), (1, 2), (1, 4), (2, 4)], "repeats": 1}
    several = study(truth, storages=("shared", "local"), syncs=("wfbp",), prefetches=(0, 2), **options)
    fused = study(truth, storages=("shared",), syncs=("horovod",), prefetches=(0,), **options)
    return pd.concat([fit(records, nodes=[1, 2, 4])["remedies"] for records in (several, fused)], ignore_index=True)


def test_verdicts_follow_intervals_and_rank_remedies(table: pd.DataFrame) -> None:
    known = table[table["fits"] != "no"]
    least = 1 + SAME_WITHIN
    within = (known["gain_low"] <= least) & (known["gain_high"] > least)
    assert set(known.loc[within, "verdict"]) == {"undecided"}
    assert (known.loc[known["verdict"] == "helps", "gain_low"] > least).all()
    assert (known.loc[known["verdict"] == "no gain", "gain_high"] <= least).all()
    assert known.loc[known["gain"].isna(), "verdict"].eq("unknown").all()
    for _, rows in table.groupby(["scaling", "sync", "storage", "prefetch", "batch", "workers_per_node"]):
        ordered = rows.sort_values("rank_in_curve")
        assert list(ordered["rank_in_curve"]) == list(range(1, 1 + len(rows)))
        places = ordered["verdict"].map(list(remedies.RemedyVerdict).index)
        assert places.is_monotonic_increasing
        helping = ordered.loc[ordered["verdict"] == "helps", "gain"]
        assert helping.is_monotonic_decreasing


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.0035, 1.032, "no gain"), (1.03, 1.14, "undecided"), (0.9, 2.0, "undecided"), (1.06, 1.2, "helps")],
)
def test_a_gain_that_equal_studies_differ_by_is_none(low: float, high: float, verdict: str) -> None:
    gain = np.concatenate([[(low + high) / 2], np.linspace(low, high, REPLICATES)])
    assert remedies._verdict(gain) == verdict
    assert remedies._verdict(gain, unmeasured_cost="rounding") == ("undecided" if verdict == "helps" else verdict)


def of(table: pd.DataFrame, changes: str, **labels: Any) -> pd.DataFrame:
    wanted = {"scaling": "strong", "sync": "wfbp", "storage": "shared", "prefetch": 0, "changes": changes} | labels
    return table[np.logical_and.reduce([table[name] == value for name, value in wanted.items()])]


CONFIG: dict[str, Any] = {
    "study": "confirmed",
    "hardware": {"cpu": {"device": "cpu", "nodes": 4, "workers_per_node": 4}},
    "storage": {name: {"path": f"data/{name}", "format": "files"} for name in ("shared", "local")},
}


def test_each_remedy_that_can_be_run_names_one_new_cell_of_the_study(table: pd.DataFrame) -> None:
    assert set(table.loc[table["cell"] == "", "changes"]) == {"format", "launches"}
    for row in table[table["cell"] != ""].to_dict("records"):
        added = yaml.safe_load(row["cell"])
        config = copy.deepcopy(CONFIG) | {name: added[name] for name in ("presets", "include") if name in added}
        staged = {name: entry | {"format": "files"} for name, entry in added.get("storage", {}).items()}
        config["storage"] |= staged
        (cell, *left_out) = [one for one in expand(config, SCHEMA).cells.values() if type(one) is TrainCell]
        assert (cell.network, cell.hardware, cell.scaling) == (row["network"], row["hardware"], row["scaling"])
        # A link is no setting: what leaves its messages out is measured beside the cell itself.
        assert all(one.sync == "none" for one in left_out)
        now = {name: row[name] for name in ("nodes", "sync", "storage", "prefetch", "batch", "workers_per_node")}
        same = {name: getattr(cell, name) for name in now} == now
        assert same == (row["changes"] in ("link", "node") or cell.readers > 1), row["remedy"]
        assert cell.preset == to_values(presets_of(config.get("presets", {}))[cell.sync])


def test_remedies_of_a_curve_go_by_what_it_has(table: pd.DataFrame) -> None:
    assert list(of(table, "readers")["remedy"]) == ["mini-batches read ahead"]
    assert list(of(table, "readers", prefetch=2)["remedy"]) == ["8 readers for each worker instead of 2"]
    assert list(of(table, "storage")["remedy"]) == ["data from storage local"]
    (fewer,) = of(table, "workers per node", workers_per_node=4).to_dict("records")
    # B = 64 cannot be split over three workers on each of two nodes.
    assert (fewer["remedy"], yaml.safe_load(fewer["cell"])["include"][0]["workers_per_node"]) == (
        "2 workers on each node instead of 4", 2,
    )  # fmt: skip
    (accumulated,) = of(table, "accumulation").to_dict("records")
    assert accumulated["remedy"] == "4 mini-batches between two updates"
    assert yaml.safe_load(accumulated["cell"])["presets"] == {"wfbp-accumulate-4": {"like": "wfbp", "accumulate": 4}}
    bits = of(table, "gradients").iloc[0]
    assert yaml.safe_load(bits["cell"])["presets"] == {"wfbp-16-bit": {"like": "wfbp", "gradient_bits": 16}}
    # Nobody measured rounding, which may take more than smaller messages save.
    assert bits["also"].endswith(remedies.UNKNOWN_ROUNDING)
    assert bits["upper_bound"]
    assert bits["verdict"] == ("undecided" if bits["gain_high"] > 1 + SAME_WITHIN else "no gain")
    assert len(of(table, "bucket size", sync="horovod")) == 0
    assert len(of(table, "bucket size", sync="wfbp")) == 1


@pytest.mark.parametrize(
    ("operations", "workers", "offered"),
    [
        (["all-reduce"], 2, set()),
        (["all-reduce"], 3, {"ddp-powersgd"}),
        (["all-reduce", "all-gather"], 2, {"zero-1"}),
        (["all-reduce", "all-gather", "reduce-scatter"], 2, {"zero-1", "fsdp", "hsdp"}),
        (["all-reduce", "all-gather", "reduce-scatter"], 1, {"zero-1", "fsdp"}),
    ],
)
def test_presets_are_offered_where_all_that_they_send_was_measured(
    operations: list[str], workers: int, offered: set[str]
) -> None:
    presets = {name: known.preset for name, known in PRESETS.items()}
    links = {("cpu", "torch", "library", operation): None for operation in operations}
    factors = Factors(np.ones(1), np.zeros((1 + REPLICATES, 1)))

    def effects(at: Point, held_out: bool) -> Effects:
        """Three workers were seen to factor gradients."""
        return replace(NONE, factors=factors if (at.sync, at.workers_per_node) == ("ddp-powersgd", 3) else None)

    cluster = SimpleNamespace(presets=presets, communication=links, cuts={}, effects=effects)
    study_ = SimpleNamespace(cluster=cluster, variants={})
    at = point(4, sync="ddp", workers_per_node=workers)
    names = {remedy.scenario.sync for remedy in remedies._preset_remedies(study_, at)}  # type: ignore[arg-type]
    assert names == {"ddp-fp16", "ddp-bf16"} | offered


def test_a_storage_without_neighbours_gains_what_the_other_storage_has(table: pd.DataFrame) -> None:
    """Copies on the nodes are read as one worker alone reads the shared storage, which the other one is for all."""
    staged, other = (of(table, kind).iloc[0] for kind in ("staging", "storage"))
    assert staged["gain"] == pytest.approx(other["gain"], rel=0.15)
    assert staged["gain_low"] > 1.1


def test_a_larger_mini_batch_that_does_not_fit_is_told_last_of_those_that_gain() -> None:
    truth = replace(FAST, layers=fixed(60e-3, "convolution"), memory=5e7)
    rows = found(truth, nodes=(1,))
    (larger,) = rows.query("changes == 'mini-batch'").to_dict("records")
    assert (larger["fits"], larger["verdict"]) == ("no", "does not fit")
    assert larger["memory"] == pytest.approx(truth.fixed_memory + 256 * truth.memory, rel=0.1)
    small = found(replace(truth, memory=1e7), nodes=(1,)).iloc[0]
    assert (small["changes"], small["fits"]) == ("mini-batch", "yes")


def test_what_a_remedy_gains_is_what_such_training_takes() -> None:
    truth = replace(FAST, beta=2e-9, noise=0.002)
    rows = found(truth).set_index("changes")
    cells = study(truth, **ONE | {"batch": 256}), study(truth, **ONE)
    larger, usual = (
        at["iterations"].query("scaling == 'strong' and nodes == 4 and not warmup")["iteration_time"].median()
        for at in cells
    )
    assert rows.loc["mini-batch", "gain"] == pytest.approx(4 * usual / larger, rel=0.03)


@pytest.mark.parametrize(("longer", "value"), [(1.0, 1.5), (1.25, 1 / (1 - 0.8 / 3)), (0.8, 1.5)])
def test_a_gain_is_over_what_was_measured_and_as_uncertain_as_the_model(longer: float, value: float) -> None:
    one = np.ones(1 + REPLICATES)
    points = {n: made_up_curves.measured(point(n), one * (longer if n > 1 else 1)) for n in (1, 2)}
    modelled = made_up_curves.curve({n: made_up_curves.measured(point(n), one) for n in (1, 2)}).predicted
    curve = CurvePoints(points, modelled, modelled)
    assert curve.speedup(2, "measured")[0] == pytest.approx(curve.speedup(2, "predicted")[0] / longer)
    gain = remedies.over_measured(curve, 2, 1.5 * one)
    assert gain[0] == pytest.approx(value), "what the model lacks is not saved"
    assert np.log(gain[1:]).std() == pytest.approx(abs(np.log(longer)), rel=0.15)


@pytest.mark.parametrize(("entry", "measured", "named"), [(1, 1, False), (4, 1, True), (1, 4, True)])
def test_a_cell_names_the_workers_of_a_node_where_one_is_not_all(entry: int, measured: int, named: bool) -> None:
    text = remedies.cell_in_yaml(point(2, workers_per_node=measured), remedies.Remedy("node", "", Scenario()), entry)
    assert ("workers_per_node" in yaml.safe_load(text)["include"][0]) == named


def test_quoting_keeps_names_what_they_are() -> None:
    for value in ("no", "1e3", "a: b", "x#y", 'with "quotes"', "plain-1.0", "a/b", True, 3, ["on", 2]):
        text = remedies._yaml_line({"name": value})
        assert "\n" not in text
        assert yaml.safe_load(text) == {"name": value}
