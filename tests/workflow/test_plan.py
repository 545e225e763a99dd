"""Planning: the papers' studies, the plan printed first, wrong entries in plain words, and Snakemake's own linter."""

import re
from collections.abc import Callable, Iterator

import pandas as pd
import pytest
import yaml
from checkout import ROOT, TINY, Checkout

from stallpoint.records.parquet import read, write
from stallpoint.records.tables import NEXT_CELLS, PAPER_FIGURES
from stallpoint.report.charts import PAPERS
from stallpoint.schedule.planning import visit_durations
from stallpoint.study.study import expand

STUDIES = [
    ("gpu-site", "a100"),
    *(
        pytest.param(name, cells, marks=pytest.mark.night)
        for name, cells in (("keuper-2016", "xeon"), ("shi-2018", "v100"), ("dlbs", "gpu"), ("guide", "gpu"))
    ),
]


@pytest.fixture
def study(planned: Checkout) -> Iterator[Checkout]:
    """That checkout, with its configuration put back afterwards."""
    yield planned
    planned.write_study()


@pytest.mark.parametrize(("name", "cells"), STUDIES)
def test_studies_that_come_along_pass_a_dry_run(planned: Checkout, name: str, cells: str) -> None:
    ran = planned.snakemake("-n", "--configfile", f"config/studies/{name}.yaml")
    assert ran.status == 0, ran.text
    assert ran.text.index(f"study {name}:") < ran.text.index("Job stats")
    assert cells in ran.text
    assert any(rule.startswith("measure_") for rule in ran.jobs)


def test_a_kind_of_cells_that_no_rule_measures_is_no_end_of_a_run(planned: Checkout) -> None:
    ran = planned.snakemake("--until", "train")
    assert ran.status == 1
    assert "--until train: one job measures all kinds of cells of a hardware entry: --until measure_ENTRY" in ran.text


def test_a_cell_can_stand_on_the_command_line(study: Checkout) -> None:
    cell = "network: alexnet, hardware: local, nodes: 1, batch: 12, storage: jpeg, scaling: strong, iterations: 7"
    ran = study.snakemake("-n", "--config", f"include=[{{{cell}, sync: naive}}]")
    assert ran.status == 0, ran.text
    assert re.search(r"train +local .* 1 +1 ", ran.text), ran.text


def test_a_wrong_entry_is_named_without_a_traceback(study: Checkout) -> None:
    study.write_study(hardwares={})
    ran = study.snakemake("-n")
    assert ran.status != 0
    assert "unknown key 'hardwares', did you mean 'hardware'" in ran.text
    assert "Traceback" not in ran.text


def test_a_key_that_is_there_twice_is_named(study: Checkout) -> None:
    file = study.folder / "config/config.yaml"
    file.write_text(file.read_text() + "iterations: 7\n")
    ran = study.snakemake("-n")
    assert ran.status != 0
    assert re.search(r"config.yaml, line \d+: key 'iterations' stands in line \d+ already; remove one", ran.text)
    assert "Traceback" not in ran.text


def test_a_configuration_that_snakemake_cannot_read_is_refused_in_a_sentence(planned: Checkout) -> None:
    """Others are in tests/unit/study/test_configuration.py."""
    (planned.folder / "odd.yaml").write_bytes(b"a: " + 5000 * b"[" + 5000 * b"]")
    ran = planned.snakemake("-n", "--configfile", "odd.yaml")
    assert ran.status != 0
    *_, head, sentence = ran.text.splitlines()
    assert head == "The study is not valid."
    assert re.fullmatch(r"odd.yaml(, line 1)?: .{10,150}", sentence), ran.text[:1000]
    assert "Traceback" not in ran.text


def test_a_study_stands_alone_upon_the_one_that_it_names(planned: Checkout) -> None:
    (planned.folder / "config/upon.yaml").write_text("study: upon\nbuilds_on: config.yaml\n")
    ran = planned.snakemake("-n", "--configfile", "config/upon.yaml")
    assert ran.status == 0, ran.text
    assert "study upon: " in ran.text
    assert any(rule.startswith("measure_") for rule in ran.jobs)
    (planned.folder / "config/upon.yaml").write_text("study: upon\nbuilds_on: upon.yaml\n")
    ran = planned.snakemake("-n", "--configfile", "config/upon.yaml")
    assert "builds_on: upon.yaml -> upon.yaml is a circle; one of them has to stand alone\n" in ran.text


def test_the_plan_says_what_is_excluded_and_that_the_rest_will_take_as_long_as_it_took_before(
    new_checkout: Callable[..., Checkout],
) -> None:
    matrix = [{**TINY["matrix"][0], "nodes": [1, 2, 4]}]
    study = new_checkout(visits=3, precision=0, matrix=matrix, exclude=["scaling == 'compute'"])
    schema = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
    cells = expand(study.study, schema).cells.values()
    took = [visit_durations.CellTimes(cell, [19.0, 20.0, 21.0], []) for cell in cells]
    sitting = visit_durations.Session(
        "2026-01-01T00:00:00+00:00", 2, 3 * len(took), 600.0, 630.0, starts=1, starting=30.0
    )
    visit_durations.add(study.results("schedule", visit_durations.FOLDER, "local.json"), took, sitting)
    text = study.snakemake("-n", "results/tiny/tables/runs.parquet").text
    assert "3 × excluded: scaling == 'compute'" in text
    assert "1 × 4 nodes, but hardware local has 2" in text
    assert re.search(r"train +local +2 +1 +3  1 min 0 s \[46 s, 1 min 17 s\] +0.033 \[0.026, 0.043\]", text), text
    assert f"expected from earlier visits to the same cell ({len(took)} cells)" in text
    assert not study.results("schedule/plan.json").exists()

    study.write_study(budget={"minutes": 2})
    ran = study.snakemake("-n")
    assert ran.status != 0
    assert (
        f"budget: hardware local has 2 min 0 s (minutes: 2, on 2 nodes), but 3 visits to each of {len(took)} cells"
        in ran.text
    )
    assert "  train alexnet on 2 nodes: " in ran.text
    assert "Traceback" not in ran.text


def test_a_cell_that_is_not_in_the_study_is_refused(planned: Checkout) -> None:
    ran = planned.snakemake("-n", "results/tiny/raw/sgemm/network~vgg/hardware~local/repeat~1")
    assert ran.status != 0
    assert "MissingRuleException" in ran.text or "is not a cell" in ran.text


def test_a_papers_figures_need_no_measurement(planned: Checkout, finished: Checkout) -> None:
    assert planned.snakemake("-n", "paper_figures").jobs == {
        "paper_table": 1,
        "paper_chart": len(PAPERS),
        "paper_figures": 1,
    }
    ran = finished.snakemake("results/paper_figures/paper-times.svg")
    assert ran.status == 0, ran.text
    rows = read(PAPER_FIGURES, finished.folder / "results/paper_figures/keuper-2016.parquet").to_pandas()
    assert set(rows["figure"]) == {3, 4, 11, 12}


def test_snakemake_lints_nothing_but_the_missing_conda_environments(planned: Checkout) -> None:
    """Rules run in the environment Snakemake itself runs in, pinned by requirements.lock."""
    found = set(re.findall(r"^    \* (.*):$", planned.snakemake("--lint").text, re.MULTILINE))
    assert found == {"Specify a conda environment or container for each rule."}


def test_next_adds_the_most_telling_cell_until_the_answer_is_certain_enough(
    new_checkout: Callable[..., Checkout],
) -> None:
    """Planned on a study whose records are all there; a dry run adds nothing to it."""
    study = new_checkout(next={"node_hours": 1})
    schema = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
    results = study.folder / "results/tiny"
    for path in expand({**study.study, "claims": []}, schema).cells:
        (results / "raw" / path).mkdir(parents=True)
    row = {
        "network": "alexnet", "hardware": "local", "storage": "jpeg", "scaling": "strong", "sync": "wfbp",
        "prefetch": 1, "batch": 2, "workers_per_node": 1, "kind": "train", "nodes": 2, "ranks": 2, "worker_batch": 1,
        "width": 3.0, "expected_width": 2.0, "narrowing": 1.0, "node_hours": 0.01, "narrowing_per_node_hour": 100.0,
        "rank_in_curve": 1,
    }  # fmt: skip
    for width, said in ((3.0, "Next: 1 cell, 0.01 node-hours."), (0.5, "Next: every stalling point is known")):
        write(NEXT_CELLS, pd.DataFrame([row | {"width": width}]), results / "models/next_cells.parquet")
        ran = study.snakemake("next", "-n")
        assert ran.status == 0, ran.text
        assert said in ran.text
        assert ("repeat~2" in ran.text) == (width > 1)
    assert not (results / "next.yaml").exists()
