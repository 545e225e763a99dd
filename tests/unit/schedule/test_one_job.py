"""One job at a time holds the turns of a block: another ends, one whose holder died takes over."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallpoint.errors import InputError
from stallpoint.schedule import one_job
from stallpoint.schedule.one_job import file_of, hold, holder

STALE = 0.3


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return file_of(tmp_path / "schedule" / "cpu.repeat2.json")


def left_by(file: Path, **who: object) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"who": "Slurm job 7 on node1", "host": "elsewhere", "pid": 1, "token": "a", **who}))


def test_the_file_is_there_while_it_is_held(file: Path) -> None:
    with hold(file, "Slurm job 7 on node1"):
        assert holder(file) == "Slurm job 7 on node1"
    assert holder(file) == ""
    assert list(file.parent.iterdir()) == []


def test_a_second_job_ends_and_names_the_first(file: Path) -> None:
    with hold(file, "Slurm job 7 on node1", beat_seconds=0.01):
        second = hold(file, "Slurm job 8 on node2", stale_seconds=60)
        with pytest.raises(InputError, match="Slurm job 7 on node1 measures these cells now"), second:
            pytest.fail("two at once")
        assert holder(file) == "Slurm job 7 on node1"


def test_a_file_that_nobody_renews_is_taken_over(file: Path) -> None:
    left_by(file)
    with hold(file, "job 8", stale_seconds=STALE):
        assert holder(file) == "job 8"
    assert list(file.parent.iterdir()) == []


def test_a_holder_that_died_on_this_machine_is_not_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    left_by(file, host="here", pid=gone.pid)
    assert holder(file) == ""
    with hold(file, "job 8", stale_seconds=float("inf")):
        assert holder(file) == "job 8"


def test_a_holder_lives_whose_file_another_text_replaced_and_none_whose_file_is_gone(file: Path) -> None:
    assert not one_job._is_alive(file, "a", STALE)
    left_by(file)
    assert one_job._is_alive(file, "a", STALE)
    assert not one_job._is_alive(file, file.read_text(), STALE)


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_a_file_whose_writer_was_killed_is_taken_over(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with hold(file, "job 8", stale_seconds=STALE):
        assert holder(file) == "job 8"


def test_of_several_that_find_it_stale_one_takes_over(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_by(file)
    left, passed = file.read_text(), []
    start, held, ended = threading.Barrier(4), [], threading.Barrier(4)

    def sleep(seconds: float) -> None:
        """Time passes until one takes over: who is slow to do so, or to renew the file, is not late."""
        if [*file.parent.iterdir()] == [file] and file.read_text() == left:
            passed.append(seconds)

    monkeypatch.setattr(one_job, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: sum(passed)))

    def job(number: int) -> None:
        start.wait()
        try:
            with hold(file, f"job {number}", beat_seconds=0.01):
                held.append(number)
                ended.wait(60)
        except InputError:
            ended.wait(60)

    jobs = [threading.Thread(target=job, args=(number,)) for number in range(4)]
    for one in jobs:
        one.start()
    for one in jobs:
        one.join()
    assert len(held) == 1


def test_a_claim_whose_owner_was_killed_does_not_last(file: Path) -> None:
    left_by(file)
    file.with_name(f".{file.name}.{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}").touch()
    with hold(file, "job 8", stale_seconds=STALE):
        assert holder(file) == "job 8"
    assert list(file.parent.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(file: Path) -> None:
    file.parent.write_text("a file where the folder would be")
    with pytest.raises(InputError, match=r"cpu.repeat2.running: File exists; a job that measures"), hold(file, "job"):
        pytest.fail("it goes on")


def test_who_loses_the_file_is_told_to_end(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        with hold(file, "job 7", beat_seconds=0.01):
            os.replace(_other(file), file)
            assert told.wait(60)
        assert holder(file) == "job 8", "it is the other's"
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "job 8 has taken over" in capfd.readouterr().err


def _other(file: Path) -> Path:
    other = file.with_name("other")
    other.write_text(json.dumps({"who": "job 8", "host": "elsewhere", "pid": 1, "token": "b"}))
    return other
