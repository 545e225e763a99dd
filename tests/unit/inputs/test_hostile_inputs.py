"""Streams, limits and what a terminal would obey: each is answered or refused in one line."""

import io
import os
import threading
import zipfile
from pathlib import Path

import pytest

from stallpoint import errors
from stallpoint.base.section import Finding
from stallpoint.base.section_texts import in_terminal
from stallpoint.cli import main
from stallpoint_files import explain_command
from stallpoint_files.studies import study_results
from stallpoint_files.tables import grids
from stallpoint_files.training import training_logs

RATES = "gpus,img/s\n1,100\n2,190\n4,340\n8,342\n16,335\n"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the status of ``stallpoint explain`` and all that it said."""
    try:
        status = main(["explain", *arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    said = capsys.readouterr()
    return status, said.out + said.err


def test_a_pipe_is_read_like_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_text, args=(RATES,), daemon=True).start()
    status, text = told(capsys, str(pipe))
    assert status == 1
    assert "stops getting faster at 4" in text
    assert f"{pipe}: waiting for what is written to it" in text


def test_what_is_wrong_in_the_standard_input_is_said_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"gpus,img/s\n1,100\n2,fast\n")))
    status, text = told(capsys, "-")
    assert (status, text.partition(",")[0]) == (2, "error: standard input")


def test_a_stream_without_end_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain_command, "MAX_BYTES", 2**20)
    assert told(capsys, "/dev/zero") == (2, "error: /dev/zero: more than 1 MiB from a stream; name a file\n")


def test_a_pattern_that_does_not_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training_logs, "MAX_SEARCH_SECONDS", 0.2)
    log = tmp_path / "log.txt"
    log.write_text("a" * 40 + "!\n")
    status, text = told(capsys, "--pattern", "(?P<rate>(a+)+)$", str(log))
    assert status == 2
    assert "took more than 0.2 s" in text


def test_a_limit_of_time_is_gone_after_its_block() -> None:
    with errors.search_limit(60, "nothing"):
        pass
    assert errors.signal.getitimer(errors.signal.ITIMER_REAL)[0] == 0


def test_a_table_of_too_many_rows_is_refused_by_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grids, "MAX_ROWS", 50)
    monkeypatch.setattr(grids, "_PREFIX", 20)
    table = tmp_path / "many.csv"
    table.write_text("gpus,img/s\n" + "".join(f"{1 + row % 8},100\n" for row in range(200)))
    assert told(capsys, str(table)) == (2, f"error: {table}: more than 50 rows; give those of one study\n")


@pytest.mark.parametrize("mark", ["\x1b]0;owned\x07", "\x9b31m", "‮", "⁦", "\x08"])
def test_nothing_that_a_terminal_obeys_reaches_it(mark: str) -> None:
    shown = in_terminal([Finding("rates", f"a{mark}b", "is read")])
    assert not set(mark) & set(shown) - set("0;ow]ned31m[")
    assert "b: is read" in shown
    assert mark[0] not in str(errors.InputError(f"no {mark} file"))


def test_a_zip_that_grows_beyond_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_results, "MIN_UNPACKED", 1000)
    with zipfile.ZipFile(tmp_path / "logs.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("log.txt", "0" * 1_000_000)
    with pytest.raises(errors.InputError, match="GiB when unpacked; name the files"):
        study_results.unpack(tmp_path / "logs.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()
