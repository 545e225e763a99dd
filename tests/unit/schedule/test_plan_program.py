"""The programs that say what is left of a study: plan and progress look for records where the workflow does."""

import json
import runpy
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from small_study import BLOCK, CONFIG, ROOT, study

from stallpoint.records.parquet import write_cell
from stallpoint.records.tables import RUNS
from stallpoint.schedule import next_round
from stallpoint.schedule.ledger import RECORD
from stallpoint.schedule.requested import group_by_block, mark_file, measurements
from stallpoint.study.job_kind import run_row
from stallpoint.study.study import expand


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a small study, which reads samples that it generates, where its results are to be."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    return file


def say(program: str, *arguments: Path | str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", [program, *map(str, arguments)])
        runpy.run_path(str(ROOT / "scripts" / program))


def test_nothing_is_left_of_a_finished_study_and_one_cell_without_its_record(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Path("results/small")
    found = measurements(study(), results)
    for one in found.values():
        write_cell(one.folder / RECORD, {RUNS.name: [run_row(one.cell, datetime.now(UTC))]})
        one.finish()
    for name, block in group_by_block(found.values()).items():
        mark_file(name, block, str(results)).touch()
    say("plan.py", config)
    assert capsys.readouterr().out.endswith("  to measure now: nothing\n")
    say("progress.py", config)
    assert capsys.readouterr().out.endswith("every cell was measured\n")

    next(iter(found.values())).done.unlink()
    say("plan.py", config, "--json")
    assert json.loads(capsys.readouterr().out)["total"]["cells"] == 1


def test_cells_that_next_added_are_planned_and_counted(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say("plan.py", config, "--json")
    before = json.loads(capsys.readouterr().out)["total"]["cells"]
    cell = {**BLOCK, "nodes": 3, "batch": 12}
    next_round.write(Path("results/small"), [cell])
    say("plan.py", config, "--json")
    assert json.loads(capsys.readouterr().out)["total"]["cells"] > before
    say("progress.py", config)
    trained = [line for line in capsys.readouterr().out.splitlines() if line.startswith("train: ")]
    schema = yaml.safe_load((ROOT / "workflow/schemas/study.schema.yaml").read_text())
    wanted = expand({**CONFIG, "include": [cell]}, schema).cells_of_kind("train")
    assert trained == [f"train: {len(list(wanted))} to do"]


def test_an_archived_study_measures_nothing(config: Path) -> None:
    assert measurements(study(archived=True), Path("results/small")) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "small.yaml: No such file or directory"),
        ("study: small\nmatrix: [a\n", "small.yaml, line 3: no YAML: did not find expected ',' or ']'"),
        ("", "the study: None should be of type object"),
        ("- small\n", "the study: ['small'] should be of type object"),
        ("study: small\n", "the study has no cell to run: "),
        ("study: small\nmatrix: [{network: alexnet, nodes: 1, batch: 8, scaling: strong}]\n", "missing hardware"),
    ],
)
@pytest.mark.parametrize("program", ["plan.py", "progress.py"])
def test_a_study_that_cannot_be_read_is_refused_in_a_line(
    program: str, text: str | None, words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.unlink() if text is None else config.write_text(text)
    with pytest.raises(SystemExit) as ended:
        say(program, config)
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1)
    assert words in said
