import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stallpoint.cells import Cell, SgemmCell, StorageCell
from stallpoint.durations import in_words
from stallpoint.measure.progress import INTERVAL, Progress
from stallpoint.parquet import write_cell
from stallpoint.progress import states, summary
from stallpoint.records import RUNS
from stallpoint.runs import run_row

COMMON = {
    "hardware": "cpu", "nodes": 1, "workers_per_node": 1, "device": "cpu", "threads_per_worker": 1, "seed": 1,
    "precision": "float32", "anonymise": True,
}  # fmt: skip


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
        clock.time += INTERVAL / 10
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
    return SgemmCell(**COMMON, repeat=repeat, network="alexnet", batches=[1], samples=1, own_network=None)


def record(cell: Cell, raw: Path, seconds: float, failure: str = "") -> None:
    row = {**run_row(cell, datetime.now(UTC), failure=failure), "duration": seconds}
    write_cell(raw / cell.path, {RUNS.name: [row]})


def log(cell: Cell, logs: Path, text: str) -> Path:
    path = logs / f"{cell.path}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_records_and_logs_say_how_far_a_study_is(tmp_path: Path) -> None:
    raw, logs = tmp_path / "raw", tmp_path / "logs"
    cells = [sgemm(repeat) for repeat in range(1, 7)]
    record(cells[0], raw, 20)
    record(cells[1], raw, 40)
    record(cells[2], raw, 1, failure="out of memory")
    log(cells[0], logs, "product 9/9 after 20 s\n")
    log(cells[3], logs, "a warning\nproduct 3/9 after 12 s, about 24 s left\nanother warning\n")
    old = log(cells[4], logs, "error: no such device\n")
    os.utime(old, (time.time() - 600,) * 2)
    lines = list(summary(states(cells, raw, logs)))
    assert lines == [
        "sgemm: 2 done, 1 failed, 2 started, 1 left",
        f"  {cells[3].path}: product 3/9 after 12 s, about 24 s left",
        f"  {cells[4].path}: error: no such device (nothing new for 10 min 0 s)",
        "3 cells to go: about 1 min 30 s if one runs at a time",
    ]


def test_a_kind_none_of_which_is_done_is_judged_by_the_others(tmp_path: Path) -> None:
    storage = StorageCell(
        **COMMON, repeat=1, storage="local", storage_path="data", storage_format="files", samples=1
    )  # fmt: skip
    assert list(summary(states([storage], tmp_path, tmp_path)))[-1].startswith(
        "1 cell to go; how long they take is not"
    )
    record(sgemm(1), tmp_path, 30)
    *_, judged = summary(states([sgemm(1), storage], tmp_path, tmp_path))
    assert judged == "1 cell to go: about 30 s if one runs at a time"


def test_a_finished_study_says_so(tmp_path: Path) -> None:
    record(sgemm(1), tmp_path, 30)
    assert list(summary(states([sgemm(1)], tmp_path, tmp_path))) == ["sgemm: 1 done", "every cell was measured"]


def test_a_cell_measured_again_is_started_once_its_records_are_gone(tmp_path: Path) -> None:
    cell = replace(sgemm(1), samples=2)
    log(cell, tmp_path, "")
    (state,) = states([cell], tmp_path, tmp_path)
    assert (state.state, state.words) == ("started", "no step done yet")
