import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sample_cells import SGEMM, STORAGE

from stallpoint.records.parquet import write_cell
from stallpoint.records.tables import RUNS
from stallpoint.schedule import one_job
from stallpoint.schedule.ledger import Measurement
from stallpoint.schedule.progress import states, summary
from stallpoint.schedule.requested import inputs_by_config, measurement
from stallpoint.slurm import orphaned_jobs
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import run_row
from stallpoint.study.kinds.sgemm_kind import SgemmCell
from stallpoint.text import PROGRESS_INTERVAL, Progress, in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (10.2, "10 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations_as_readers_say_them(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


class Clock:
    """Seconds that pass when told so."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_a_job_tells_after_the_first_step_now_and_then_and_after_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress("iteration", [1] * 40, now=clock)
    for step in range(40):
        clock.time += PROGRESS_INTERVAL / 10
        progress.tell(step + 1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "iteration 1/40 after 1.0 s, about 39 s left",
        "iteration 11/40 after 11 s, about 29 s left",
        "iteration 21/40 after 21 s, about 19 s left",
        "iteration 31/40 after 31 s, about 9.0 s left",
        "iteration 40/40 after 40 s",
    ]


def test_the_time_left_follows_the_work_and_not_the_number_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = Progress("all-reduce", [1, 9], now=clock)
    clock.time += 2
    progress.tell(1)
    assert capsys.readouterr().err == "all-reduce 1/2 after 2.0 s, about 18 s left\n"


def test_silent_ranks_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("iteration", [1], silent=True).tell(1)
    assert capsys.readouterr().err == ""


def sgemm(repeat: int) -> SgemmCell:
    return replace(SGEMM, repeat=repeat, visits=2, samples=1)


def visit(cell: Cell, results: Path, number: int, seconds: float, failure: str = "") -> Measurement:
    found = measurement(cell, results / "visits", again=False)
    row = {**run_row(cell, datetime.now(UTC), failure=failure), "duration": seconds}
    write_cell(found.visit_folder(number), {RUNS.name: [row]})
    return found


def record(cell: Cell, results: Path, seconds: float, failure: str = "") -> None:
    found = visit(cell, results, 1, seconds, failure)
    found.write_record("visits")
    found.finish()


def log(block: str, logs: Path, text: str) -> Path:
    path = logs / f"{block}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_visits_records_and_logs_say_how_far_a_study_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    cells = [sgemm(repeat) for repeat in (1, 2, 3)] + [
        replace(sgemm(1), network=network) for network in ("vgg16", "googlenet", "resnet50")
    ]
    record(cells[0], tmp_path, 20)
    record(cells[3], tmp_path, 40)
    record(cells[4], tmp_path, 1, failure="out of memory")
    visit(cells[1], tmp_path, 1, 12)
    log("cpu", logs, "visit 7: sgemm/a in 9.9 s\nproduct 3/9 after 12 s, about 24 s left\na warning\n")
    old = log("cpu.repeat2", logs, "visit 1: sgemm/b in 12 s\n")
    now = int(time.time())
    os.utime(old, (now - 600,) * 2)
    monkeypatch.setattr("time.time", lambda: now)
    assert list(summary(states(cells, tmp_path), logs, tmp_path / "schedule")) == [
        "sgemm: 2 done, 1 failed, 1 started, 2 to do",
        "  cpu.repeat2: ended; visit 1: sgemm/b in 12 s (nothing new for 10 min 0 s)",
        "  cpu: ended; product 3/9 after 12 s, about 24 s left",
        "3 cells and 5 visits to go: about 1 min 0 s, and what precision asks for",
    ]


def of_blocks(folder: Path, queue: str | None = None) -> str:
    """Lines about the blocks of two cells that are to do."""
    _, *words, _ = summary(states([sgemm(1), sgemm(2)], folder), folder / "logs", folder / "schedule", queue)
    return "\n".join(words)


def test_a_running_job_is_told_from_one_that_ended(tmp_path: Path) -> None:
    assert of_blocks(tmp_path) == ""
    log("cpu", tmp_path / "logs", "visit 7: sgemm/a in 9.9 s\n")
    with one_job.hold(one_job.file_of(tmp_path / "schedule" / "cpu.json"), "process 5 on here"):
        assert of_blocks(tmp_path) == "  cpu: running, process 5 on here; visit 7: sgemm/a in 9.9 s"
    assert of_blocks(tmp_path) == "  cpu: ended; visit 7: sgemm/a in 9.9 s"


def test_refused_pending_running_and_ended_jobs_are_told_apart(tmp_path: Path) -> None:
    list(
        orphaned_jobs.cancel(
            tmp_path / "schedule" / orphaned_jobs.FILE,
            orphaned_jobs.WorkflowRun("run", "login", 1, "1"),
            lambda _: None,
        )
    )
    jobs = "{0}|run|rule_measure_cpu_wildcards_cpu|{1}\n9|PENDING|other|rule_measure_cpu.repeat2|Resources\n"
    assert of_blocks(tmp_path, jobs.format("7|PENDING", "PartitionTimeLimit")) == (
        "  cpu: job 7 is refused: PartitionTimeLimit, it asks for more time than its partition allows"
        " (resource runtime)\n  cpu.repeat2: no job is in Slurm's queue"
    )
    waiting = of_blocks(tmp_path, jobs.format("7|PENDING", "Resources"))
    assert waiting.startswith("  cpu: job 7 is pending (Resources)\n")
    log("cpu", tmp_path / "logs", "visit 7: sgemm/a in 9.9 s\n")
    log("cpu.repeat2", tmp_path / "logs", "error: no\n")
    assert of_blocks(tmp_path, jobs.format("7|RUNNING", "None")) == (
        "  cpu: job 7 is running; visit 7: sgemm/a in 9.9 s\n  cpu.repeat2: ended; error: no"
    )
    assert of_blocks(tmp_path, jobs.format("8|PENDING", "Priority,x")).startswith(
        "  cpu: job 8 is pending (Priority); before that, visit 7: sgemm/a in 9.9 s\n"
    )


def test_a_kind_none_of_which_was_visited_is_judged_by_the_others(tmp_path: Path) -> None:
    storage = replace(STORAGE, visits=1)
    assert list(summary(states([storage], tmp_path), tmp_path, tmp_path))[-1].startswith(
        "1 cell and 1 visits to go; how long they take is known after"
    )
    record(sgemm(1), tmp_path, 30)
    *_, judged = summary(states([sgemm(1), storage], tmp_path), tmp_path, tmp_path)
    assert judged == "1 cell and 1 visits to go: about 15 s, and what precision asks for"


def test_a_finished_study_says_so(tmp_path: Path) -> None:
    record(sgemm(1), tmp_path, 30)
    assert list(summary(states([sgemm(1)], tmp_path), tmp_path, tmp_path)) == [
        "sgemm: 1 done",
        "every cell was measured",
    ]


def test_what_has_records_alone_is_done(tmp_path: Path) -> None:
    write_cell(tmp_path / "raw" / sgemm(1).path, {RUNS.name: [run_row(sgemm(1), datetime.now(UTC))]})
    assert [one.state for one in states([sgemm(1)], tmp_path)] == ["done"]


def test_a_cell_whose_settings_changed_is_to_do(tmp_path: Path) -> None:
    record(sgemm(1), tmp_path, 30)
    write_cell(tmp_path / "raw" / sgemm(1).path, {RUNS.name: [run_row(sgemm(1), datetime.now(UTC))]})
    assert [one.state for one in states([replace(sgemm(1), samples=2)], tmp_path)] == ["to do"]


def test_what_else_a_cell_is_measured_with_counts(tmp_path: Path) -> None:
    config = {"networks": {}, "commands": {}, "storage": {"jpeg": {"generate": 16}, "own": {}}}
    generated, own = (replace(STORAGE, storage=name) for name in ("jpeg", "own"))
    also = inputs_by_config(config)
    assert also(own) == also(sgemm(1)) == ""
    write_cell(
        measurement(generated, tmp_path / "visits", again=False, inputs=also(generated)).visit_folder(1),
        {RUNS.name: [run_row(generated, datetime.now(UTC))]},
    )
    assert [one.state for one in states([generated], tmp_path, also)] == ["started"]
    config["storage"]["jpeg"]["generate"] = 32
    assert [one.state for one in states([generated], tmp_path, inputs_by_config(config))] == ["to do"]


def test_a_cell_that_is_measured_again_is_started(tmp_path: Path) -> None:
    record(sgemm(1), tmp_path, 30)
    again = measurement(sgemm(1), tmp_path / "visits", again=True)
    write_cell(again.visit_folder(1), {RUNS.name: [run_row(sgemm(1), datetime.now(UTC))]})
    assert [one.state for one in states([sgemm(1)], tmp_path)] == ["started"]
