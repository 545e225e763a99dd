import json
from typing import Any

import pandas as pd
import pytest
from synthetic import Truth, study

from stallpoint.base.frames import records
from stallpoint.base.measured import Measured, measured, step_rows
from stallpoint.models.answers import utilisation
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.models.terms.training_cells import reduced_cells
from stallpoint.questions.communication_question import section
from stallpoint.questions.study_tables import StudyTables
from stallpoint.report.charts import overlap_chart
from stallpoint.text import interval, number

RECORDS = study(nodes=(1, 2), weak=False)
NETWORKS = reduced_cells(RECORDS["iterations"], [RECORDS["layers"]]).networks


@pytest.fixture(scope="module")
def points() -> list[Measured]:
    return measured(step_rows(RECORDS["iterations"], RECORDS["layers"]), 0)


def only(rows: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    (row,) = (row for row in rows if all(row[name] == value for name, value in wanted.items()))
    return row


def test_points_are_compared_that_differ_in_one_choice_alone(points: list[Measured]) -> None:
    rows: list[dict[str, Any]] = utilisation.comparisons(points)
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
    rows: list[dict[str, Any]] = utilisation.comparisons(points)
    assert all((row["exposed"] != row["exposed"]) == (row["ranks"] == 1) for row in rows)


@pytest.fixture(scope="module")
def quiet() -> dict[str, pd.DataFrame]:
    """Models of a study that measured training without communication on two nodes, and whose wfbp costs 40 ms more."""
    records = study(Truth(noise=0.005), nodes=(1, 2), syncs=("naive", "none", "wfbp"), storages=("local",), weak=False)
    for name in ("iterations", "layers", "runs"):
        cells = records[name]["cell"].str
        records[name] = records[name][~(cells.contains("nodes~1/") & cells.contains("strong/sync~none"))]
    beside = (records["iterations"]["sync"] == "wfbp") & (records["iterations"]["ranks"] == 2)
    records["iterations"].loc[beside, ["backward", "iteration_time"]] += EXTRA
    return fit(records, nodes=[4], scenarios=scenarios([{"bandwidth": 10}]))


EXTRA = 40e-3


def test_what_communication_costs_is_what_training_without_it_saves(quiet: dict[str, pd.DataFrame]) -> None:
    truth = Truth()
    isolated = sum(truth.all_reduce(2, layer.gradient_bytes) for layer in truth.layers)
    rows = quiet["hidden_communication"].query("scaling == 'strong' and prefetch == 0").set_index("sync")
    assert set(rows.index) == {"naive", "wfbp"}
    assert rows["isolated"].tolist() == pytest.approx([isolated] * 2, rel=0.05)
    assert rows.loc["naive", "cost"] == pytest.approx(isolated, rel=0.1)
    assert rows.loc["naive", "hidden_low"] < 0 < rows.loc["naive", "hidden_high"]
    exposed = rows.loc["wfbp", "exposed"]
    assert rows.loc["wfbp", "cost"] == pytest.approx(exposed + EXTRA, rel=0.1)
    assert rows.loc["wfbp", "hidden_share"] == pytest.approx(1 - (exposed + EXTRA) / isolated, abs=0.1)


def test_the_cost_of_communication_is_said_in_words_and_on_the_chart(quiet: dict[str, pd.DataFrame]) -> None:
    tables = {**RECORDS, **quiet}
    chosen = "scaling == 'strong' and prefetch == 0 and sync == 'wfbp'"
    (row,) = records(quiet["hidden_communication"].query(chosen))
    said = {one.subject: one for one in section(StudyTables(tables)).findings}
    found = said["alexnet on cpu, strong, B = 64, wfbp, no prefetch, local"]
    assert (found.value, found.low, found.high, found.unit) == (row["cost"], row["cost_low"], row["cost_high"], "s")
    # It costs EXTRA more than its messages take, so what is hidden is below zero.
    more = interval((-row["hidden"], -row["hidden_high"], -row["hidden_low"]), 1e3, " ms")
    assert found.words.endswith(f", of which nothing is hidden: training loses {more} more")
    assert f"communicating costs {number(row['cost'])} s (" in json.dumps(overlap_chart.draw(tables).to_dict())
    unknown = quiet["hidden_communication"].assign(isolated=float("nan"), hidden=float("nan"))
    for one in section(StudyTables({**tables, "hidden_communication": unknown})).findings:
        assert one.words == f"communicating costs {interval((one.value, one.low, one.high), 1e3, ' ms')} at n = 2"


def test_without_such_a_cell_nothing_is_said_of_the_cost() -> None:
    rows = fit(RECORDS, nodes=[])["hidden_communication"]
    assert len(rows) == 8
    assert rows[["cost", "hidden", "hidden_share"]].isna().all(axis=None)
    assert rows[["isolated", "communication_over_backward"]].notna().all(axis=None)


def test_training_without_communication_is_predicted_and_answers_nothing(quiet: dict[str, pd.DataFrame]) -> None:
    rows = quiet["predictions"].query("sync == 'none' and scaling == 'strong'")
    assert set(rows["nodes"]) == {1, 2, 4}
    assert (rows[["predicted_communication", "predicted_exposed_communication", "predicted_straggling"]] == 0).all(
        axis=None
    )
    assert rows["error"].abs().max() < 0.05
    assert rows.query("nodes == 4")["predicted_speedup"].gt(2).all()  # its base is the one of the other presets
    for name in ("stalling", "what_if", "next_cells", "amdahl", "rates"):
        series = quiet[name]["series" if "series" in quiet[name] else "sync"]
        assert len(series)
        assert not series.str.contains("none").any(), name
    assert not {"none"} & {*quiet["comparisons"]["sync"], *quiet["comparisons"]["against"]}


def test_an_iteration_moves_its_samples_and_two_models_for_each_further_worker(points: list[Measured]) -> None:
    rows: list[dict[str, Any]] = utilisation.bytes_moved(points, NETWORKS, RECORDS["storage_reads"])
    row = only(rows, scaling="strong", storage="shared", sync="wfbp", prefetch=0)
    model = 140_000 + 1_230_000 + 30_000_000 + 12_000_000
    assert (row["data_bytes"], row["gradient_bytes"]) == (64 * 100_000, 2 * model)
    assert all(row["nodes"] == 2 for row in rows)


def test_traffic_of_a_cluster_is_not_of_another_one_with_a_storage_of_that_name(points: list[Measured]) -> None:
    reads = RECORDS["storage_reads"]
    elsewhere = reads.assign(hardware="other", bytes=3 * reads["bytes"])
    both = utilisation.bytes_moved(points, NETWORKS, pd.concat([reads, elsewhere]))
    assert both == utilisation.bytes_moved(points, NETWORKS, reads) != []
