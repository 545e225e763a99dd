"""Jobs that a killed run left in Slurm's queue are found by its name, cancelled, and said."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stallpoint.slurm import orphaned_jobs
from stallpoint.slurm.orphaned_jobs import FILE, WorkflowRun, cancel, known

DEAD = WorkflowRun("dead", "elsewhere", 1, "5")
QUEUE = """7|RUNNING|dead|rule_measure_cpu_wildcards_cpu|None
8|PENDING|dead|rule_prepare_storage_wildcards_jpeg|Resources
9|RUNNING|other|rule_measure_cpu_wildcards_cpu|None
10|RUNNING|dead|(null)|None
"""


class Slurm:
    """Answers to `squeue`, the last one again and again; what was asked."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.cancelled: list[str] = []

    def __call__(self, command: Sequence[str]) -> str | None:
        if command[0] == "scancel":
            self.cancelled += command[1:]
            return ""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def told(file: Path, run: WorkflowRun, slurm: Slurm, *, locked: bool = False) -> list[str]:
    return list(cancel(file, run, slurm, pause=0, patience=0.05, locked=locked))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file after a run that was killed."""
    file = tmp_path / "schedule" / FILE
    assert told(file, DEAD, Slurm("not asked")) == []
    return file


def test_jobs_of_a_run_that_was_killed_are_cancelled_and_waited_for(file: Path) -> None:
    slurm = Slurm(QUEUE, QUEUE.replace("RUNNING", "COMPLETING"), "")
    this = WorkflowRun.create("this")
    assert told(file, this, slurm) == [
        "job 7 (measure_cpu) was left behind by an earlier run: cancelled; what it finished is kept",
        "job 8 (prepare_storage) was left behind by an earlier run: cancelled; what it finished is kept",
    ]
    assert slurm.cancelled == ["7", "8"]
    assert slurm.answers == [""], "until they are gone"
    assert known(file) == [DEAD, this], "should this one be killed while it waits"
    assert told(file, WorkflowRun.create("next"), slurm) == []
    assert [run.name for run in known(file)] == ["next"]


def test_jobs_on_other_clusters_are_cancelled_there(file: Path) -> None:
    slurm = Slurm(f"CLUSTER: cpu\n{QUEUE}CLUSTER: gpu\n7|RUNNING|dead|rule_measure_gpu_wildcards_gpu|None\n", "")
    told(file, WorkflowRun.create("this"), slurm)
    assert slurm.cancelled == ["--clusters=cpu", "7", "8", "--clusters=gpu", "7"]


def test_jobs_of_a_run_that_goes_on_are_left_alone(file: Path) -> None:
    this = WorkflowRun.create("dead")
    assert this.is_alive
    file.unlink()
    told(file, this, Slurm(""))
    slurm = Slurm(QUEUE)
    lines = told(file, WorkflowRun.create("second"), slurm)
    assert len(lines) == 2
    assert all("belongs to a run that goes on" in line for line in lines)
    assert slurm.cancelled == []
    assert [run.name for run in known(file)] == ["dead", "second"]


def test_jobs_of_a_run_elsewhere_are_left_alone_while_another_run_holds_the_lock(file: Path) -> None:
    slurm, this = Slurm(QUEUE), WorkflowRun.create("this")
    lines = told(file, this, slurm, locked=True)
    assert len(lines) == 2
    assert all("belongs to a run on elsewhere, which may go on: not cancelled" in line for line in lines)
    assert slurm.cancelled == []
    assert known(file) == [DEAD, this]
    told(file, this, slurm)
    assert slurm.cancelled == ["7", "8"]


def test_a_process_that_got_the_same_number_is_not_the_run() -> None:
    this = WorkflowRun.create("a")
    assert not WorkflowRun("a", this.host, this.pid, this.began + "0").is_alive
    assert not WorkflowRun("a", "elsewhere", this.pid, this.began).is_alive
    assert not WorkflowRun("a", this.host, 2**22 + 1, "").is_alive


def test_a_queue_that_does_not_answer_is_said_and_nothing_is_forgotten(file: Path) -> None:
    (line,) = told(file, WorkflowRun.create("this"), Slurm(None))
    assert line.startswith("Slurm does not report its jobs")
    assert [run.name for run in known(file)] == ["dead", "this"]


def test_a_job_that_does_not_end_is_said(file: Path) -> None:
    assert (
        told(file, WorkflowRun.create("this"), Slurm(QUEUE))[-1] == "job 7, 8 is still there 0 s after it was cancelled"
    )


@pytest.mark.parametrize("text", ["", "[", "[1]", '[{"name": "a"}]', "{}"])
def test_a_file_that_is_none_is_no_run(file: Path, text: str) -> None:
    file.write_text(text)
    assert known(file) == []
    assert orphaned_jobs.known(file.with_name("nosuch")) == []
