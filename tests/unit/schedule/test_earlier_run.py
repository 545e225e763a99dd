"""What a killed run left is ended by the next one, once; what is another's is left alone."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from stallpoint.schedule.earlier_run import FILE, RUN_ENV, lock_message, take_over
from stallpoint.slurm.orphaned_jobs import WorkflowRun, known

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Snakemake's folder, locked."""
    monkeypatch.setenv(RUN_ENV, "")
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/0.output.lock").write_text("results/a\n")
    return tmp_path


@pytest.fixture
def process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that the run of this folder started, and that does not end when it is told to."""
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], env={**os.environ, RUN_ENV: str(folder)}, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout
        started.stdout.readline()
        yield started
        started.kill()


def written(folder: Path, **changes: object) -> None:
    """Write down a run that is this process's, with changes, and has the folder's name: no other test's."""
    (folder / FILE).write_text(json.dumps([asdict(replace(WorkflowRun.create(str(folder)), **changes))]))


def said(folder: Path) -> list[str]:
    return list(take_over(folder, folder / "locks", patience=0.5))


def test_what_a_killed_run_left_is_ended_and_its_lock_removed_and_that_is_said_once(
    folder: Path, process: subprocess.Popen[str]
) -> None:
    written(folder, began="before")
    (line,) = said(folder)
    assert "1 of its processes still ran and were ended" in line
    assert process.wait(60) == -signal.SIGKILL
    assert not (folder / "locks").exists()
    (run,) = known(folder / FILE)
    assert (run.is_alive, run.name) == (True, os.environ[RUN_ENV])
    assert said(folder) == []


def test_a_process_that_ends_when_told_to_has_time_for_it_beside_one_that_ends_at_once(folder: Path) -> None:
    saves = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(7)))"
    waits = "; print(flush=True); time.sleep(600)"
    started = [
        subprocess.Popen([sys.executable, "-c", text + waits], env={**os.environ, RUN_ENV: str(folder)},
                         stdout=subprocess.PIPE)
        for text in ("import time", saves)
    ]  # fmt: skip
    for process in started:
        assert process.stdout
        process.stdout.readline()
    written(folder, began="before")
    list(take_over(folder, folder / "locks", patience=60.0))
    assert [process.wait(60) for process in started] == [-signal.SIGTERM, 7]


def test_a_lock_alone_is_removed(folder: Path) -> None:
    written(folder, began="before")
    assert len(said(folder)) == 1
    assert not (folder / "locks").exists()


@pytest.mark.parametrize("changes", [{}, {"host": "elsewhere", "began": "before"}])
def test_a_run_that_goes_on_or_may_elsewhere_keeps_its_lock_and_processes(
    folder: Path, process: subprocess.Popen[str], changes: dict[str, str]
) -> None:
    written(folder, **changes)
    assert said(folder) == []
    assert (folder / "locks/0.output.lock").exists()
    assert process.poll() is None
    assert [run.name for run in known(folder / FILE)] == [str(folder), os.environ[RUN_ENV]]
    told = lock_message(folder, folder / "locks")
    assert f"user {os.getuid()} measures in this folder since 20" in told
    assert f"process {os.getpid()} on {changes.get('host', socket.gethostname())}" in told
    assert ("--unlock" in told) == bool(changes)


def test_processes_of_slurms_jobs_are_left_to_slurm(folder: Path) -> None:
    written(folder, began="before")
    env = {**os.environ, RUN_ENV: str(folder), "SLURM_JOB_ID": "4711"}
    with subprocess.Popen([sys.executable, "-c", DEAF], env=env, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout
        job.stdout.readline()
        (line,) = said(folder)
        assert "processes" not in line
        assert job.poll() is None
        job.kill()


def test_a_run_that_ended_well_is_not_spoken_of(folder: Path) -> None:
    written(folder, began="before")
    (folder / "locks/0.output.lock").unlink()
    assert said(folder) == []
