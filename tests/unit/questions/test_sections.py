"""What the questions say of planted studies, as data; and the same words wherever a finding is shown."""

import json
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from once import Once
from sample_cells import TRAIN
from synthetic import CRITICAL, Layer, Truth, study

from stallpoint.archive.crate import pack, write_checksums
from stallpoint.base.section import Absence, Finding, Section, TableRow, TextTable
from stallpoint.base.section_texts import in_markdown, in_terminal, sections_from_json, sections_to_json, summary
from stallpoint.base.statistics import Estimate
from stallpoint.errors import InputError
from stallpoint.models.fitting import fit
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.questions import all_questions
from stallpoint.questions.all_questions import QUESTIONS, sections
from stallpoint.questions.curves_question import next_in_words
from stallpoint.questions.data_question import rank_storages, saturation, starving_in_words
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import series, verdict_in_short
from stallpoint.questions.trust_question import equal_presets, excluded_samples, planned_rows, slow_nodes
from stallpoint.report.charts import CHARTS
from stallpoint.report.html import part
from stallpoint.report.slides import slide
from stallpoint.strategies.presets import PRESETS, to_values
from stallpoint_files.answering import explain_files
from stallpoint_files.external_tables import external_answers
from stallpoint_files.file_options import Options

NODES = [1, 2, 4, 8, 16, 32, 64, 128]
SMALL: dict[str, Any] = {
    "nodes": (1, 2), "storages": ("local",), "syncs": ("wfbp",), "prefetches": (0,), "weak": False, "repeats": 1,
}  # fmt: skip
"""A study with one curve."""
SCHEMA = Path(__file__).parents[3] / "docs/schemas/conclusions.schema.json"


def tables_of(records: dict[str, pd.DataFrame], nodes: list[int]) -> Mapping[str, pd.DataFrame]:
    """Those with the fit, of which tables that no question reads are not computed."""
    return ChainMap(fit(records, nodes=nodes, scenarios=scenarios([{"bandwidth": 10}, {"batch": 0.1}])), records)


def by_name(study: StudyTables) -> dict[str, Section]:
    return {one.name: one for one in sections(study)}


def read_tables() -> dict[str, pd.DataFrame]:
    found = tables_of(study(), NODES)
    list(sections(StudyTables(found)))
    return {name: found[name] for name in found}


@pytest.fixture(scope="module")
def planted(once: Once) -> StudyTables:
    return StudyTables(once(read_tables))


@pytest.fixture(scope="module")
def found(planted: StudyTables) -> dict[str, Section]:
    return by_name(planted)


def grid(section: Section, title: str = "") -> TextTable:
    (one,) = (one for one in section.grids if one.title.startswith(title))
    return one


def cells(one: TextTable, row: int = 0) -> dict[str, str]:
    return dict(zip(one.head, one.rows[row], strict=True))


# --- sections as data -----------------------------------------------------------------------------


def test_each_question_says_something_or_why_not(found: dict[str, Section]) -> None:
    assert list(found) == list(QUESTIONS)
    assert not set(QUESTIONS) & set(CHARTS), "each is an anchor of the page"
    for one in found.values():
        assert one.absence != Absence.FAILED
        assert one.findings or one.grids or (one.absence and one.text)
    absent = [name for name, one in found.items() if one.absence]
    of_nothing = ["cost-and-failures", "external", "communication-cost", "interventions", "claims"]
    assert absent == of_nothing


def test_sections_are_json_of_the_documented_schema_and_come_back(found: dict[str, Section]) -> None:
    written = json.loads(json.dumps(sections_to_json(found.values()), allow_nan=False))
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(written)
    assert sections_to_json(sections_from_json(written)) == written


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "of version 99, not 1"),
        ({"sections": {}}, "sections: Expected `array`"),
        ({"sections": [{"name": "answer"}]}, "sections: .*missing required field `title`"),
    ],
)
def test_json_of_another_form_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sections_from_json({"version": 1, "sections": []} | change)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("words", 1, r"got `int` - at `\$\[0\].findings\[0\].words"),
        ("points", [{"workers": "2"}], "got `str` - at .*points"),
        ("causes", [{}], "missing required field `name`"), ("about", {"network": 1}, "got `int` - at .*about"),
    ],
)  # fmt: skip
def test_a_finding_with_a_field_of_another_type_is_refused(where: str, value: object, message: str) -> None:
    written = sections_to_json([Section("a", "A", "Answer", findings=(Finding("rates", "a", "b"),))])
    written["sections"][0]["findings"][0][where] = value
    with pytest.raises(ValueError, match=message):
        sections_from_json(written)


def test_a_section_of_a_group_that_no_page_has_is_refused() -> None:
    with pytest.raises(ValueError, match="section a: group Costs is none of Answer, Why"):
        Section("a", "A", "Costs")


def test_a_question_that_raises_is_a_section_that_says_so(
    planted: StudyTables, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: StudyTables) -> Section:
        raise KeyError("no such column")

    monkeypatch.setattr(all_questions, "QUESTIONS", {"broken": broken, "answer": QUESTIONS["answer"]})
    first, second = sections(planted)
    assert (first.absence, "no such column" in first.text) == (Absence.FAILED, True)
    assert second.findings
    assert "no such column" in capsys.readouterr().err
    assert first.text in in_markdown("Conclusions", [first])
    assert first.text in unescape(part(first).html)


def test_a_package_of_somebody_else_adds_a_section(
    planted: StudyTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its entry point, as pip installs it: a module, and a folder with the distribution's metadata."""
    (tmp_path / "their_question.py").write_text(
        "from stallpoint.base.section import Finding, Section\n"
        "def section(study):\n"
        "    words = f'{len(study.curves)} curves'\n"
        "    return Section('theirs', 'Theirs', 'Why', findings=(Finding('theirs', 'study', words),))\n"
    )
    metadata = tmp_path / "theirs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[stallpoint.sections]\ntheirs = their_question:section\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(all_questions, "QUESTIONS", {})
    (theirs,) = sections(planted)
    assert theirs.findings[0].words == f"{len(planted.curves)} curves"
    assert f"study: {len(planted.curves)} curves" in in_markdown("Conclusions", [theirs])


def test_a_finding_has_the_same_words_wherever_it_is_shown(found: dict[str, Section], planted: StudyTables) -> None:
    """Terminal, Markdown, page, slide and JSON."""
    section = found["answer"]
    one = section.findings[0]
    (written,) = (
        row for row in sections_to_json([section])["sections"][0]["findings"] if row["subject"] == one.subject
    )
    title = slide("alexnet on cpu", one, planted.tables)["title"]
    shown = {
        "terminal": in_terminal([one]), "markdown": in_markdown("Conclusions", [section]),
        "page": unescape(part(section).html), "slide": " ".join([title["text"], *title["subtitle"]]),
        "json": " ".join(map(str, (written["words"], written["fits"], written["causes"], written["notes"]))),
    }  # fmt: skip
    for name, text in shown.items():
        unwrapped = " ".join(text.split())
        for words in (one.words, one.causes[0].words, *one.notes):
            assert words in unwrapped, name


# --- the answer -----------------------------------------------------------------------------------


def test_an_answer_has_its_number_interval_unit_and_points(found: dict[str, Section]) -> None:
    strong, weak, shared, machine = found["answer"].findings
    assert {(one.verdict, one.value, one.low, one.high, one.unit) for one in (strong, weak, shared)} == {
        ("scales", 4.0, 4.0, None, "workers")
    }
    assert [point["workers"] for point in weak.points] == NODES
    assert [point.get("rate") is not None for point in weak.points] == [True] * 3 + [False] * 5
    for point in weak.points:
        value = point.get("rate") or point.get("predicted")
        assert point["low"] <= value <= point["high"]  # type: ignore[operator]
    assert [one.causes[0].name for one in (strong, weak, shared)] == [
        "small_matrices",
        "communication",
        "small_matrices",
    ]
    assert "predicted to gain up to 128" in weak.beyond
    assert "predicted to stall at 4 (97 % sure)" in strong.beyond
    assert (machine.kind, machine.words) == ("machine", "4 processes on 4 machines (made-up CPU)")


def test_every_curve_says_where_it_stalls_and_why(planted: StudyTables, found: dict[str, Section]) -> None:
    strong = [one for one in planted.curves if one["scaling"] == "strong"]
    assert len(strong) == 8
    for one in strong:
        # Beyond the measured 4 nobody knows which costs begin.
        assert one.stall_ranks
        assert (one.stall_ranks.value, one.stall_ranks.low, one.stall_ranks.high <= 8) == (4, 4, True)
        assert one["basis"] == "predicted"
    rows = [cells(grid(found["curves"]), row) for row in range(len(planted.curves))]
    weak = next(row for row in rows if ", weak, " in row["curve"])
    assert weak["stalls at n"] == "not reached up to n = 128 (beyond 4 predicted, not measured)"
    wfbp = next(row for row in rows if "strong, B = 64, wfbp, prefetch 2, shared" in row["curve"])
    assert wfbp["stalls at n"] == "4 (95 % sure), predicted, not measured"
    assert wfbp["as measured"].endswith(" on n = 4, over 99 % sure")
    assert ", interpolated from n = 8 on" in wfbp["communication reaches compute at n"]
    assert any(
        next_in_words(one).startswith("training on 8 nodes (") for one in planted.curves if one["sync"] == "naive"
    )
    (told,) = found["curves"].findings
    assert told.words.startswith("measure next: training on 8 nodes (")


def test_the_end_of_a_run_is_a_few_lines(found: dict[str, Section]) -> None:
    lines = list(summary(found.values()))
    assert [line.startswith("  why: ") for line in lines[:6]] == [False, True] * 3
    assert lines[0] == "alexnet on cpu, strong scaling, mini-batch 64, local: still gets faster at 4 nodes"
    assert sum("60 % on " in line for line in lines) == 2, "targets"
    assert lines[-1] == "1 cell could not run"


def test_one_page_says_what_was_measured_apart_from_what_is_predicted(found: dict[str, Section]) -> None:
    text = in_markdown("Conclusions", list(found.values()))
    assert len(text) < 7000
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Answer", "## Time to accuracy", "## Every curve", "## Training data in numbers", "## Memory",
        "## How sure this is", "## Cells that were not measured",
    ]  # fmt: skip
    for line in text.split("## Time")[0].splitlines():
        assert "predicted" not in line or line.startswith(("  - beyond: ", "  - note: would help"))


def test_imported_training_is_not_called_measured() -> None:
    records = study(**SMALL)
    runs = records["runs"].assign(kind="imported-train", source="traces.txt", ended="")
    tables = tables_of({**records, "runs": runs, "environments": records["environments"][:0]}, nodes=[8])
    of = by_name(StudyTables(tables))
    *answers, machine = of["answer"].findings
    assert machine.words.startswith("imported, not measured here: up to ")
    assert all(one.evidence.startswith("imported") for one in answers)
    assert not any("imported" in one.words for one in of["cells"].findings), "the machine's line says it"


def test_one_node_count_is_no_curve() -> None:
    records = study(**SMALL | {"nodes": (1,)})
    nothing = {name: records[name].iloc[:0] for name in ("convergence_runs", "gradient_noise")}
    of = by_name(StudyTables(tables_of({**records, **nothing}, nodes=[])))
    assert of["targets"].absence == of["validation-table"].absence == Absence.NOT_MEASURED
    row = cells(grid(of["curves"]))
    assert row["stalls at n"] == "not known: needs two worker counts that were measured or can be predicted"


@pytest.mark.parametrize(
    "column",
    [
        "forward",
        *(pytest.param(one, marks=pytest.mark.night) for one in ("data_wait", "update", "exposed_communication")),
    ],
)
def test_a_part_that_was_not_timed_is_not_known(column: str) -> None:
    records = study(**SMALL)
    records["iterations"][column] = float("nan")
    of = by_name(StudyTables(tables_of(records, nodes=[8])))
    written = json.dumps(sections_to_json(of.values()), allow_nan=False)
    assert not any(one.absence == Absence.FAILED for one in of.values())
    assert "not known" in written
    assert "nan" not in written.replace("dominant", "")


def test_an_empty_study_has_sections_that_say_so() -> None:
    nothing = {name: table.iloc[:0] for name, table in study(**SMALL).items()}
    of = by_name(StudyTables(tables_of(nothing, nodes=[1, 2])))
    assert {one.absence for one in of.values()} == {Absence.NOT_MEASURED, Absence.NONE_FOUND}
    assert list(summary(of.values())) == []
    assert of["answer"].text.startswith("No scaling curve was measured")


# --- what else is asked ---------------------------------------------------------------------------


def test_placements_that_may_not_fit_into_memory_are_named(planted: StudyTables, found: dict[str, Section]) -> None:
    (fits,) = found["memory-fit"].findings
    many = len(planted.tables["fits"])
    assert fits.words == f"all of {many} placements fit"
    wrong = planted.tables["fits"].copy()
    wrong.loc[0, "fits"] = "no"
    of = QUESTIONS["memory-fit"](StudyTables({**planted.tables, "fits": wrong}))
    assert of.findings[0].words == f"{many - 1} of {many} placements fit"
    row = cells(grid(of, "Placements that may not fit"))
    assert (row["fits"], row["n"]) == ("no", str(wrong.loc[0, "ranks"]))


def test_storages_differ_only_by_their_intervals(planted: StudyTables) -> None:
    verdicts = {
        (row["nodes"], row["storage"]): row["verdict"]
        for row in rank_storages(planted)
        if (row["order"], row["cache"]) == ("shuffled", "cold")
    }
    assert verdicts[4, "local"] == "fastest"
    assert verdicts[4, "shared"] == "slower"
    assert {verdicts[1, "local"], verdicts[1, "shared"]} == {"fastest", "not distinguishable from the fastest"}


def test_what_storages_answer_has_a_table_each(planted: StudyTables, found: dict[str, Section]) -> None:
    assert [one.title for one in found["storages"].grids] == [
        "Storages", "Saturation of storages", "Accelerator utilisation",
    ]  # fmt: skip
    assert cells(found["storages"].grids[2])["readers"] == "none, in line"
    rates = planted.tables["storage_rates"].iloc[:2].assign(
        bytes_per_second=25e6, bytes_per_second_low=20e6, bytes_per_second_high=30e6, storage=["a", "b"],
        origin="local device", uncached=[True, False],
    )  # fmt: skip
    large = grid(QUESTIONS["storages"](StudyTables({**planted.tables, "storage_rates": rates})), "Storages")
    assert {row[-1] for row in large.rows} == {"100 (83–125)", "–"}, "150 GB at 25 MB/s, if no cache gave them"
    shares = planted.tables["data_share"].query("ranks == 4")["share"]
    longest = found["storages"].findings[0]
    assert f"takes {100 * shares.max():.1f} % (" in longest.words


def test_training_starves_from_the_fewest_workers_that_surely_wait_too_long() -> None:
    def at(ranks: int, basis: str, low: float, high: float) -> TableRow:
        ends = {"utilisation": (low + high) / 2, "utilisation_low": low, "utilisation_high": high}
        return TableRow(ends, ranks=ranks, basis=basis, workers_per_node=1)

    fed = [at(1, "measured", 0.97, 0.99), at(2, "measured", 0.85, 0.95), at(4, "predicted", 0.5, 0.6)]
    assert starving_in_words(fed) == "n = 4, predicted"
    assert starving_in_words(fed[:2]) == "not up to n = 2"
    assert starving_in_words([fed[0], at(2, "measured", 0.7, 0.8), fed[2]]) == "n = 2, measured"


def test_what_would_decide_where_a_storage_saturates_is_said() -> None:
    row = {
        "hardware": "cpu", "storage": "shared", "readers": 1, "workers_per_node": 1, "largest_measured": 4,
        "largest_considered": 8, "deciding": "", "saturation_ranks": 4.0, "saturation_ranks_low": 4.0,
        "saturation_ranks_high": 4.0, "reached": True,
    }  # fmt: skip
    made = saturation([
        TableRow(row, verdict="saturates", verdict_ranks=4),
        TableRow(row, verdict="keeps pace", verdict_ranks=8, reached=False),
        TableRow({**row, "deciding": "more visits to 2, 4 workers"}, verdict="undecided", verdict_ranks=2),
        TableRow({**row, "deciding": "more visits to 1, 2, 4 workers"}, verdict="undecided", verdict_ranks=0),
    ])  # fmt: skip
    assert [row[-3:-1] for row in made.rows] == [
        ("saturates at 4", "4 (4–4)"),
        ("keeps pace up to 8", "not up to 8"),
        ("undecided from 2; more visits to 2, 4 workers would decide", "4 (4–4)"),
        ("undecided; more visits to 1, 2, 4 workers would decide", "not known"),
    ]


def test_time_to_a_target_stands_beside_throughput(planted: StudyTables, found: dict[str, Section]) -> None:
    section = found["targets"]
    (critical,) = (one for one in section.grids if "critical B" in one.head)
    assert f"{CRITICAL:.0f} ({CRITICAL:.0f}–{CRITICAL:.0f})" in {row[-1] for row in critical.rows}, "as planted"
    (beside,) = (one for one in section.grids if "throughput, measured" in one.head)
    assert len(beside.rows) == len(planted.tables["accuracy_stalling"]) > 0
    throughput = {series(one): verdict_in_short(one) for one in planted.curves}
    assert all(row[-1] == throughput[row[2]] for row in beside.rows)


def test_timing_is_judged_by_its_worst_cell() -> None:
    records = study(**SMALL)
    fitted = fit(records, nodes=[])
    fine = QUESTIONS["timing"](StudyTables(ChainMap(fitted, records)))
    assert fine.findings == ()
    for column, value in {"timing_share": 0.02, "forward_closure": 1.03, "backward_closure": 0.97}.items():
        records["instrumentation"].loc[3, column] = value
    wrong = QUESTIONS["timing"](StudyTables(ChainMap(fitted, records)))
    assert cells(wrong.grids[0])["cells"] == str(records["instrumentation"]["cell"].nunique())
    (warning,) = wrong.findings
    assert (warning.verdict, warning.first) == ("warning", True)
    assert warning.words == (
        "timing the layers takes up to 2 % of an iteration; layers add up to 103.0 % of the forward pass; layers add "
        "up to 97.0 % of the backward pass"
    )


def test_cells_that_could_not_run_are_listed_with_their_reason(found: dict[str, Section]) -> None:
    row = cells(grid(found["cells"], "Could not run"))
    assert row["reason"] == "out of memory on rank 0"
    assert "nodes~8" in row["cell"]


def test_an_external_table_gets_the_answer_of_its_file(planted: StudyTables, tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("series,workers,workers_per_node,samples_per_second\n" + "".join(
        f"{name},{n},8,{rate}\n"
        for name in map(str, range(12)) for n, rate in {4: 40, 8: 80, 16: 81, 32: 160, 64: 318}.items()
    ))  # fmt: skip
    external = list(external_answers("elsewhere", file, Options()))
    alone = explain_files([str(file)], Options()).answers
    assert [replace(one, subject=one.subject.removesuffix(" in elsewhere")) for one in external] == [*alone]
    said = QUESTIONS["external"](replace(planted, external=external))
    assert [one.first for one in said.findings] == [True] * 10 + [False] * 2
    lines = list(summary([said]))
    assert lines[0].startswith("0, 4-64 workers (8 a node) in elsewhere: still gets faster at 64, by 99 % for the last")
    assert lines[1].startswith("  why: ")


# --- trust ----------------------------------------------------------------------------------------


def test_what_was_planned_stands_beside_what_was_used(planted: StudyTables) -> None:
    rows = {(row["kind"], row["nodes"]): row for row in planned_rows(planted)}
    storage = rows["storage", 4]  # two storages, two repeats; each 5 s [2.5, 10], and took 1 s
    assert storage["cells"] == 4
    assert storage.estimate("planned") == Estimate(20, 10, 40)
    assert storage["duration"] == 4
    assert storage["used"] == pytest.approx(4 * 4 / 3600)
    assert storage["idle"] == 0
    assert rows["storage", 1]["idle"] == pytest.approx(3 / 4 * rows["storage", 1]["used"])
    assert storage["as_planned"] == 0


def test_how_sure_it_is_is_said_of_all_that_was_found(planted: StudyTables) -> None:
    tables = dict(planted.tables)
    cells_of = tables["runs"].query("ended != ''")["cell"]
    tables["runs"] = tables["runs"].assign(
        ended=[("budget" if cell == cells_of.iloc[0] else "precision") * bool(ended)
               for cell, ended in zip(tables["runs"]["cell"], tables["runs"]["ended"], strict=True)]
    )  # fmt: skip
    tables["disturbances"] = pd.DataFrame([
        {"hardware": "cpu", "cell": "a", "iteration": 1, "reason": "steal", "excluded": True},
        {"hardware": "cpu", "cell": "b", "iteration": None, "reason": "slow machine", "excluded": True},
        {"hardware": "cpu", "cell": "a", "iteration": 2, "reason": "quota", "excluded": True},
        {"hardware": "cpu", "cell": "a", "iteration": 2, "reason": "quota", "excluded": False},
        {"hardware": "cpu", "cell": "a", "iteration": 2, "reason": "another process", "excluded": False},
    ])  # fmt: skip
    tables["controls"] = tables["controls"].assign(agrees=[False, *[True] * (len(tables["controls"]) - 1)])
    said = QUESTIONS["sure"](StudyTables(tables, impossible="raw/a/layers.parquet: forward is -1.0 in row 2"))
    assert next(summary([said])) == "records: a value is impossible: raw/a/layers.parquet: forward is -1.0 in row 2"
    words = {one.words: (one.verdict, one.first) for one in said.findings}
    assert words["the precision was not reached: 1 cell, 1 visit: budget used up"] == ("warning", True)
    assert words[f"{len(cells_of) - 1} cells, {len(cells_of) - 1} visits: precision reached"] == ("", False)
    assert words["1 iteration disturbed by steal, excluded"] == ("note", False)
    assert words["1 visit to messages or reads disturbed by slow machine, excluded"] == ("note", False)
    assert words["2 iterations disturbed by quota, 1 excluded, 1 kept for want of others"] == ("warning", True)
    assert words["1 iteration disturbed by another process, kept for want of others"] == ("warning", True)
    assert words["4 of 5 pairs of cells that do the same agree"] == ("", False)
    assert words["verdicts are withheld, as cells that do the same differ"] == ("warning", True)
    assert any(text.startswith("measured speedups known to ± ") for text in words)
    assert not any("e+" in text for text in words)
    assert any(text.startswith("model ") and text.endswith("(median of 18 measured points)") for text in words)


def slow(visits: int, *ranks: tuple[str, float], cells: int = 2) -> list[TableRow]:
    """Nodes found slow where ranks of each cell are on these nodes, with this sentinel."""
    places = [
        {"cell": f"{cell}", "hardware": "cpu", "visit": visit, "rank": rank, "node": node, "product_before": time}
        for cell in range(cells)
        for visit in range(visits)
        for rank, (node, time) in enumerate(ranks)
    ]
    frame = pd.DataFrame(places).assign(product_after=lambda rows: rows["product_before"])
    environments = frame[["cell", "rank", "node"]].drop_duplicates()
    return list(slow_nodes(StudyTables({"visits": frame.drop(columns="node"), "environments": environments})))


def test_a_node_that_computes_slower_than_the_others_is_named() -> None:
    (one,) = slow(3, ("a", 0.1), ("a", 0.1), ("b", 0.31), ("b", 0.29), ("c", 0.1), ("c", 0.1))
    assert (one["node"], one["visits"]) == ("b", 6)
    assert one["ratio"] == pytest.approx(3)
    assert [row["node"] for row in slow(3, ("a", 0.1), ("b", 0.13))] == ["b"]


def test_nodes_alike_and_single_visits_and_nodes_name_none() -> None:
    assert slow(3, ("a", 0.1), ("b", 0.11)) == []
    assert slow(1, ("a", 0.1), ("b", 0.3), cells=1) == []
    assert slow(3, ("a", 0.1), ("a", 0.3)) == []
    assert slow(3, ("a", float("nan")), ("b", float("nan"))) == []


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", [["caffe-mpi", "mxnet", "wfbp"], ["cntk", "naive"]]), ("cuda", [["cntk", "naive"], ["mxnet", "wfbp"]])],
)
def test_presets_that_do_the_same_are_named(device: str, expected: list[list[str]]) -> None:
    """Reading ahead into a device's memory tells Caffe-MPI from MXNet on a GPU alone."""
    names = ["wfbp", "caffe-mpi", "mxnet", "cntk", "naive", "ddp"]
    cells = [replace(TRAIN, device=device, sync=name, preset=to_values(PRESETS[name].preset)) for name in names]
    runs = pd.DataFrame({"kind": "train", "source": "", "settings": [cell.to_json() for cell in cells]})
    assert sorted(presets for _, presets in equal_presets(runs)) == expected


def test_samples_that_were_left_out_are_counted_for_each_storage() -> None:
    cells = ["train/network~a/storage~disk/nodes~1", "other/storage/storage~disk/nodes~2", "train/storage~b/nodes~1"]
    visits = pd.DataFrame({"cell": [*cells, "sgemm/network~a"], "excluded_samples": [2, 3, 0, 0]})
    assert excluded_samples(StudyTables({"visits": visits})) == {"disk": 3}
    assert excluded_samples(StudyTables({"visits": visits[2:]})) == {}


def test_the_error_of_the_model_is_that_of_its_points(found: dict[str, Section]) -> None:
    layers = (Layer("conv", "convolution", 0, 1e-3, 1000),)
    (unbounded,) = by_name(StudyTables(tables_of(study(Truth(layers=layers), **SMALL), nodes=[])))["answer"].findings[
        :1
    ]
    assert np.isfinite(unbounded.value or np.nan)
    (error,) = (one for one in found["sure"].findings if one.words.startswith("model "))
    assert float(error.words.split()[1]) < 2


# --- a study that somebody brings -----------------------------------------------------------------


@pytest.fixture(scope="module")
def written(found: dict[str, Section]) -> str:
    return json.dumps(sections_to_json(found.values()), indent=1)


@pytest.mark.parametrize("as_", ["results folder", "file", "unpacked archive", "zip"])
def test_a_study_that_is_brought_is_explained_by_its_own_findings(
    as_: str, written: str, found: dict[str, Section], tmp_path: Path
) -> None:
    folder = tmp_path / "results/mine"
    folder.mkdir(parents=True)
    file = folder / "conclusions.json"
    file.write_text(written)
    packed = tmp_path / "packed"
    with ZipFile(packed, "w") as archive:
        archive.write(file, "results/mine/conclusions.json")
    given = {"results folder": folder, "file": file, "unpacked archive": tmp_path, "zip": packed}[as_]
    explained = explain_files([str(given)], Options())
    assert [one.recognised for one in explained.inputs] == [("study",)]
    own = [one for one in found["answer"].findings if one.kind == "rates"]
    shown = list(explained.answers[: len(own)])
    assert [replace(one, subject=one.subject.removeprefix("mine, ")) for one in shown] == own
    (last,) = explained.answers[-1:]
    assert "1 cell could not run" in last.notes


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("README.md", "other", ""),
        (
            "results/mine/conclusions.json",
            '{"version": 1, "sections": []}',
            "results/mine/conclusions.json is not what it was archived as, its checksum differs; "
            "copy the archive again",
        ),
        ("checksums.sha256", "", "checksums.sha256 has no checksum of results/mine/conclusions.json"),
        ("checksums.sha256", None, "it has no checksums.sha256; copy the archive again"),
    ],
)
def test_an_archive_whose_conclusions_were_altered_is_refused(
    name: str, change: str | None, message: str, written: str, tmp_path: Path
) -> None:
    folder, packed = tmp_path / "folder", tmp_path / "mine.zip"
    texts = {"results/mine/conclusions.json": written, "README.md": "", "ro-crate-metadata.json": "{}"}
    for member, text in texts.items():
        (folder / member).parent.mkdir(parents=True, exist_ok=True)
        (folder / member).write_text(text)
    write_checksums(folder)
    pack(folder, packed)
    intact = explain_files([str(packed)], Options())
    if change is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(change)
    pack(folder, packed)
    if not message:
        assert explain_files([str(packed)], Options()) == intact
        return
    with pytest.raises(InputError) as refused:
        explain_files([str(packed)], Options())
    assert str(refused.value) == f"{packed}: {message}"


def test_an_empty_study_that_is_brought_asks_for_worker_counts(tmp_path: Path) -> None:
    (tmp_path / "conclusions.json").write_text(json.dumps(sections_to_json([])))
    (one,) = explain_files([str(tmp_path)], Options()).answers
    assert (one.verdict, one.ask) == ("undecided", ("cells of one network on two worker counts or more",))


def test_what_is_no_finished_study_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    with pytest.raises(InputError, match="it is not finished; run `snakemake` for the study"):
        explain_files([str(tmp_path)], Options())
    (tmp_path / "conclusions.json").write_text('{"findings": [{"kind": 1}]}')
    with pytest.raises(InputError, match=r"of version none, not 1\); run `snakemake` for the study"):
        explain_files([str(tmp_path)], Options())
    packed = tmp_path / "other.zip"
    with ZipFile(packed, "w") as archive:
        archive.writestr("ro-crate-metadata.json", "{}")
    with pytest.raises(InputError, match="a zip without results/STUDY/conclusions"):
        explain_files([str(packed)], Options())
    packed.write_bytes(packed.read_bytes()[:60])
    with pytest.raises(InputError, match="a damaged zip"):
        explain_files([str(packed)], Options())
