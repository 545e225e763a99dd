"""A whole study run by Snakemake on this machine, and what has to be done again after a change."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path

import pytest
from checkout import OWN_NETWORK, TINY, Checkout

from stallpoint.base.section import Absence, Section
from stallpoint.base.section_texts import sections_from_json
from stallpoint.records.parquet import read
from stallpoint.records.tables import (
    CLAIMS,
    ENVIRONMENTS,
    EXTRAPOLATED_TABLES,
    ITERATIONS,
    LAYERS,
    MODEL_TABLES,
    RUNS,
    TIDY_TABLES,
)
from stallpoint.report.charts import CHARTS, TOPICS
from stallpoint.report.charts.render import FORMATS
from stallpoint.schedule.planning.memory_forecast import fit_memory
from stallpoint_papers.exhibits import PAPERS

LAST = {"paper": len(PAPERS), "report_page": 1, "slides": 1, "all": 1}
DRAWN = {"draw": 1, "chart": len(CHARTS)}
DERIVED = {
    "collect": 1, "fit": 1, "extrapolate": 1, "typeset": 1, "conclude": 1, **DRAWN, **LAST
}  # fmt: skip


EDITED = ("report/charts/speedup_chart.py", "models/taskgraph/tasks.py")
"""Modules that tests edit."""


@pytest.fixture
def study(finished: Checkout) -> Iterator[Checkout]:
    """The finished study; whatever a test writes into its configuration or code is put back."""
    sources = {file: file.read_bytes() for file in (finished.folder / "src/stallpoint" / name for name in EDITED)}
    yield finished
    finished.write_study()
    for file, source in sources.items():
        if file.read_bytes() != source:
            file.write_bytes(source)


def test_every_cell_ran(finished: Checkout) -> None:
    runs = read(RUNS, finished.results("tables/runs.parquet")).to_pandas()
    assert runs.groupby("kind").size().to_dict() == {"train": 4, "sgemm": 1, "collectives": 1, "storage": 2}
    assert set(runs["status"]) == {"ok"}


def test_the_run_says_how_far_it_is_and_ends_with_the_answer(finished: Checkout) -> None:
    lines = finished.said.splitlines()
    assert len(lines) <= 40, finished.said
    assert any(re.match(r"Study tiny: 8 cells to measure, about ", line) for line in lines)
    assert any(re.match(r"\[#+-*\] \d+ of \d+ visits, ", line) for line in lines)
    assert any(line.startswith("Done in ") for line in lines)
    assert lines[-1] == "Report: results/tiny/report.html"


def test_snakemakes_own_report_carries_every_result_with_caption_and_labels(study: Checkout) -> None:
    ran = study.snakemake("--report", "snakemake-report.html")
    assert ran.status == 0, ran.text
    page = (study.folder / "snakemake-report.html").read_text()
    for name, chart in CHARTS.items():
        assert f"{name}.svg" in page
        assert json.dumps(chart.title) in page
    for place, topic in enumerate(TOPICS, start=1):
        assert json.dumps(f"{place} {topic}") in page
    for category in ("Conclusions", "Figures", "Report"):
        assert json.dumps(category) in page
    results = json.loads(re.search(r"results = (\{.*\})", page)[1])
    assert len(results) >= len(CHARTS) + 3
    for path, entry in results.items():
        assert entry["caption"], path
        assert entry["labels"], path


def test_a_run_with_nothing_to_do_ends_with_the_answer_too(study: Checkout) -> None:
    again = study.snakemake("--", "all").text
    assert "Nothing to be done: all results are up to date." in again
    assert "Report: results/tiny/report.html" in again
    assert "to measure" not in again


def test_snakemakes_own_output_stays_possible(study: Checkout) -> None:
    plain = study.snakemake("--logger-stallpoint-plain", "--", "all").text
    assert "study tiny: 8 cells" in plain
    assert "Nothing to be done" in plain


@pytest.mark.night
def test_snakemake_can_be_quiet(study: Checkout) -> None:
    assert "Nothing to be done" not in study.snakemake("--quiet", "all", "--", "all").text


def test_iterations_of_every_rank_are_kept_with_warmup_marked(finished: Checkout) -> None:
    rows = read(ITERATIONS, finished.results("tables/iterations.parquet")).to_pandas()
    of_visit = rows.groupby(["cell", "visit", "rank"])
    assert of_visit.size().eq(3).all()
    assert of_visit["warmup"].sum().eq(1).all()
    assert len(rows.groupby(["cell", "rank"])) == 1 + 2 + 1 + 1
    assert rows["visit"].max() <= 2, "one that was disturbed is made up for"
    parts = ["data_wait", "host_to_device", "forward", "backward", "exposed_communication", "update"]
    covered = rows[parts].sum(axis=1) / rows["iteration_time"]
    assert covered.between(0.95, 1.0001).all()


def test_layers_of_two_ranks_were_all_reduced(finished: Checkout) -> None:
    rows = read(LAYERS, finished.results("tables/layers.parquet")).to_pandas()
    learned = rows[(rows["ranks"] == 2) & (rows["gradient_bytes"] > 0)]
    assert learned.groupby(["rank", "iteration"])["gradient_bytes"].sum().eq(4 * 60_965_224).all()
    assert (learned["all_reduce_start"] >= learned["gradient_ready"]).all()
    assert (learned["all_reduce_end"] > learned["all_reduce_start"]).all()


def test_environments_say_what_was_used(finished: Checkout) -> None:
    rows = read(ENVIRONMENTS, finished.results("tables/environments.parquet")).to_pandas()
    assert rows["threads"].eq(1).all()
    assert rows["mpi_library"].str.len().gt(0).all()
    several = rows.groupby("cell")["rank"].transform("size") > 1
    assert set(zip(several, rows["interface"], rows["subnet"], strict=True)) == {
        (False, "", ""), (True, "lo", "127.0.0.0/8")
    }  # fmt: skip


def test_every_table_chart_and_conclusion_is_there(finished: Checkout) -> None:
    for table in TIDY_TABLES:
        read(table, finished.results(f"tables/{table.name}.parquet"))
    for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES):
        read(table, finished.results(f"models/{table.name}.parquet"))
    for chart in CHARTS:
        files = finished.results("figures").glob(f"{chart}.*")
        assert {file.suffix for file in files} == {f".{kind}" for kind in FORMATS}
    said = {one.name: one for one in conclusions(finished)}
    assert [one.about["network"] for one in said["answer"].findings if one.kind == "rates"] == ["alexnet"]
    assert {one.absence for one in said.values()} <= {None, Absence.NOT_MEASURED, Absence.NONE_FOUND}
    (timing,) = (dict(zip(one.head, one.rows[0], strict=True)) for one in said["timing"].grids)
    assert timing["network"] == "alexnet"
    assert all(0 < float(timing[of].removesuffix(" %")) <= 100.05 for of in ("forward", "backward"))
    assert "alexnet" in finished.results("conclusions.md").read_text()
    assert finished.results("report.html").stat().st_size < 5_000_000


def test_claims_of_papers_and_of_the_study_are_judged(finished: Checkout) -> None:
    rows = read(CLAIMS, finished.results("claims.parquet")).to_pandas()
    claims = {row["claim"]: row for row in rows.to_dict("records")}
    own = claims["two-nodes-are-no-slower"]
    assert (own["paper"], own["chart"], own["combination"]) == ("this study", "speedup", "network alexnet")
    if own["value"] == own["value"]:
        low, high = own["value_low"], own["value_high"]
        assert low <= own["value"] <= high
        inside, outside = low >= 1, high < 1
        assert own["verdict"] == ("holds" if inside else "does not hold" if outside else "not distinguishable")
    else:  # the machine was restless: cells that do the same differ
        assert own["verdict"] == "not tested"
    assert claims["alexnet-has-250-mb"]["verdict"] == "holds"
    assert claims["googlenet-has-50-mb"]["verdict"] == "not tested"
    (said,) = (one for one in conclusions(finished) if one.name == "claims")
    rows = [row[:2] for grid in said.grids for row in grid.rows if grid.title.startswith("this study: ")]
    tested = own["verdict"] != "not tested"
    assert rows == [("Two nodes are at least as fast as one.", own["verdict"])] * tested


def conclusions(finished: Checkout) -> list[Section]:
    return sections_from_json(json.loads(finished.results("conclusions.json").read_text()))


def test_a_claim_that_changes_is_judged_again_and_nothing_else(study: Checkout) -> None:
    papers, file, own = study.study["claims"]
    study.write_study(claims=[papers, file, {**own, "condition": {"above": 1}}])
    assert study.snakemake("-n").jobs == {"conclude": 1, "report_page": 1, "slides": 1, "all": 1}
    study.write_study(claims=[papers, file, {**own, "chart": "sped"}])
    refused = study.snakemake("-n")
    assert refused.status != 0
    assert "claims[2] (two-nodes-are-no-slower).chart: unknown chart 'sped', did you mean 'speedup'?" in refused.text


def test_the_papers_exhibits_are_files_or_say_what_is_missing(finished: Checkout) -> None:
    for paper in PAPERS.values():
        folder = finished.results("papers", paper.name)
        entries = json.loads((folder / "index.json").read_text())["exhibits"]
        assert [entry["name"] for entry in entries] == [exhibit.name for exhibit in paper.exhibits]
        files = {file for entry in entries for file in entry["files"]}
        assert {file.name for file in folder.glob("[!.]*")} == {*files, "index.json", "index.md"}
        assert all(entry["files"] or entry["missing"] for entry in entries)
    pages = finished.results("typeset")
    assert {file.stem for file in pages.glob("*.tex")} == {t.name for t in (*MODEL_TABLES, *EXTRAPOLATED_TABLES)}
    report = finished.results("report.html").read_text()
    assert 'href="papers/keuper-2016/fig-05.pdf"' in report
    assert "no train cells with scaling: compute of alexnet and googlenet on hardware with device: cuda" in report


def test_the_papers_table_of_networks_stands_beside_ours(finished: Checkout) -> None:
    rows = finished.results("papers/keuper-2016/table-2.csv").read_text().splitlines()
    assert [row for row in rows if row.startswith("convolutional layers,")] == ["convolutional layers,alexnet,5.0,5.0,"]
    assert not any(",googlenet," in row for row in rows), "the study does not train it"
    report = finished.results("report.html").read_text()
    assert "60,965,224" in report


def test_the_prediction_of_two_nodes_does_not_use_them(finished: Checkout) -> None:
    predictions = read(
        next(table for table in MODEL_TABLES if table.name == "predictions"),
        finished.results("models/predictions.parquet"),
    ).to_pandas()
    two = predictions[predictions["nodes"] == 2].iloc[0]
    assert two["compute_source"].startswith("measured")
    assert two["predicted_iteration"] > 0
    assert two["error"] == pytest.approx(two["held_out_iteration"] / two["measured_iteration"] - 1)
    assert two["held_out_iteration"] != two["predicted_iteration"]


def test_external_tables_are_extrapolated_and_checked(finished: Checkout) -> None:
    read_model = {
        table.name: read(table, finished.results(f"models/{table.name}.parquet")) for table in EXTRAPOLATED_TABLES
    }
    beyond = read_model["extrapolations"].to_pandas()
    assert beyond["table"].unique().tolist() == ["elsewhere"]
    assert beyond["workers"].tolist() == [1, 2, 4, 8, 16, 32, 64, 128]
    assert beyond["predicted"].gt(0).all()
    checked = read_model["law_validation"].to_pandas()
    assert checked["workers"].tolist() == [8, 16]


def test_an_external_table_that_changes_is_fitted_again_and_nothing_measured(study: Checkout) -> None:
    table = study.folder / "elsewhere.csv"
    before = table.read_text()
    table.write_text(before + "made up,32,4,2800\n")
    jobs = study.snakemake("-n").jobs
    table.write_text(before)
    assert jobs == {
        "extrapolate": 1, "typeset": 1, **DRAWN, "conclude": 1, "report_page": 1, "slides": 1, "all": 1,
    }  # fmt: skip


def test_a_cell_that_was_edited_and_kinds_that_are_forced_rerun_with_what_depends_on_them(study: Checkout) -> None:
    block = study.study["matrix"][0]
    study.write_study(include=[{**block, "nodes": 2, "scaling": "strong", "iterations": 3}])
    assert study.snakemake("-n", "-R", "sgemm").jobs == {"measure_local": 1, **DERIVED}


def test_editing_a_chart_and_naming_a_network_draw_again_and_measure_nothing(study: Checkout) -> None:
    study.write_study(networks={"mine": {"build": "mine:build", "image_size": 8}})
    module = study.folder / "src/stallpoint/report/charts/speedup_chart.py"
    module.write_text(module.read_text() + "\n# edited\n")
    assert study.snakemake("-n").jobs == {**DRAWN, **LAST}


def test_editing_a_model_fits_again_and_measures_nothing(study: Checkout) -> None:
    module = study.folder / "src/stallpoint/models/taskgraph/tasks.py"
    module.write_text(module.read_text() + "\n# edited\n")
    fitted = {name: count for name, count in DERIVED.items() if name != "collect"}
    assert study.snakemake("-n").jobs == {"paper_table": 1, **fitted}


def test_tables_can_be_made_in_jobs_that_ask_for_memory_by_their_rows(study: Checkout) -> None:
    memory = fit_memory(study.results("tables/runs.parquet"), study.results("tables/iterations.parquet"))
    ran = study.snakemake("-n", "-R", "fit", "--config", "submit=tables")
    assert re.search(rf"\nrule fit:.* mem_mb={memory},", ran.text, re.DOTALL), ran.text
    assert "submit=tables makes tables and charts in jobs" in study.snakemake("-n", "--config", "submit=fit").text


def test_a_cell_that_is_forced_alone_leaves_nothing_to_measure(finished: Checkout, tmp_path: Path) -> None:
    study = copy(finished)
    study.folder = Path(shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True))
    cell = next(study.results("raw/collectives").rglob("repeat~1")).relative_to(study.folder)
    assert study.snakemake("-n", "-f", str(cell)).jobs == {"measure_local": 1, "collectives": 1}
    assert study.snakemake("-f", str(cell)).status == 0
    after = study.snakemake("-n")
    assert after.jobs == DERIVED, after.text


def test_a_truncated_record_is_named_and_not_taken_for_whole(finished: Checkout, tmp_path: Path) -> None:
    study = copy(finished)  # Snakemake removes the tables that it fails to make, which other tests need
    study.folder = Path(shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True))
    record = next(study.results("raw/train").rglob("layers.parquet"))
    os.truncate(record, record.stat().st_size // 2)
    ran = study.snakemake("-R", "collect", "--until", "collect")
    assert ran.status != 0
    message = f"error: {record.relative_to(study.folder)}: truncated or not a Parquet file"
    assert message in ran.text
    assert "! collect failed" in ran.text
    assert "log: logs/tiny/collect.log" in ran.text
    assert "Traceback" not in ran.text[: ran.text.index(message)]


def test_a_cell_that_cannot_run_is_recorded_and_the_study_goes_on(new_checkout: Callable[..., Checkout]) -> None:
    block = {**study_block("jpeg"), "network": "mine", "nodes": 1, "scaling": "compute"}
    study = new_checkout(
        hardware={"gpu": {"device": "cuda", "nodes": 1}},
        networks=OWN_NETWORK,
        matrix=[{**block, "hardware": "gpu"}],
        iterations=1,
        sgemm={"batches": [1], "samples": 1},
    )
    ran = study.snakemake("results/tiny/tables/runs.parquet")
    assert ran.status == 0, ran.text
    runs = read(RUNS, study.results("tables/runs.parquet")).to_pandas()
    assert dict(zip(runs["kind"], runs["status"], strict=True)) == dict.fromkeys(
        ("train", "sgemm", "storage"), "failed"
    )
    assert runs.loc[runs["kind"] != "storage", "reason"].str.contains("cuda", case=False).all()


def test_images_of_ones_own_that_cannot_be_read_or_are_not_there_are_named(
    new_checkout: Callable[..., Checkout], finished: Checkout
) -> None:
    storages = ("broken", "empty")
    own = new_checkout(
        storage={name: {"path": name, "format": "files"} for name in storages}, matrix=list(map(study_block, storages))
    )
    shutil.copytree(finished.folder / "images", own.folder / "broken")
    (own.folder / "empty").mkdir()
    broken = sorted((own.folder / "broken").rglob("*.jpg"))[3]
    broken.write_bytes(broken.read_bytes()[:200])
    ran = own.snakemake("--keep-going", "--", *(f"results/tiny/storage/{name}.json" for name in storages))
    assert ran.status != 0
    assert str(broken.relative_to(own.folder)) in ran.text
    message = "error: storage empty: no images in empty"
    assert message in ran.text
    assert "Traceback" not in ran.text[: ran.text.index(message)]
    assert not [*own.results("storage").glob("*.json")]


def study_block(storage: str) -> dict[str, object]:
    return {**TINY["matrix"][0], "storage": storage, "scaling": "strong"}
