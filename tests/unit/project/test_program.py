"""How programs of the workflow end."""

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stallpoint.cli import main
from stallpoint.errors import CAUSES_KEY, InputError, program


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("network: unknown 'alexnot'"), "network: unknown 'alexnot'"),
        (OSError(errno.ENOSPC, "as the system says it", "a.zip"), "a.zip: no space left on the device"),
    ],
)
def test_bad_input_or_a_full_disk_ends_with_the_message_alone(
    error: Exception, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(CAUSES_KEY, raising=False)
    with pytest.raises(SystemExit) as ended, program(tmp_path / "logs" / "job.log"):
        raise error
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert (tmp_path / "logs" / "job.log").read_text() == f"error: {message}\n"


def test_a_long_message_is_shortened_once() -> None:
    message = str(InputError("\n".join(["x" * 5000, *map(str, range(99))])))
    lines = message.split("\n")
    assert len(lines) == 21
    assert len(lines[0]) <= 1000
    assert " ... " in lines[0]
    assert lines[-1] == "... and 80 more lines"
    assert str(InputError(message)) == message


def test_a_log_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder would be")
    with pytest.raises(SystemExit) as ended, program(tmp_path / "logs" / "a" / "job.log"):
        pytest.fail("it goes on")
    assert ended.value.code == 2
    log = tmp_path / "logs" / "a" / "job.log"
    assert capsys.readouterr().err == f"error: {log}: Not a directory; the log cannot be written\n"


def test_a_defect_leaves_its_traceback_in_the_log_and_has_a_status_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended, program(tmp_path / "job.log"):
        raise ZeroDivisionError
    assert ended.value.code == 70
    assert "ZeroDivisionError" in (tmp_path / "job.log").read_text()


def test_whoever_shows_the_log_gets_the_cause_there_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CAUSES_KEY, "log")
    with pytest.raises(SystemExit) as ended, program(tmp_path / "job.log"):
        raise InputError("network: unknown 'alexnot'")
    assert ended.value.code == 2
    assert capsys.readouterr().err == ""
    assert (tmp_path / "job.log").read_text() == "error: network: unknown 'alexnot'\n"


@pytest.mark.parametrize(("causes", "shown"), [("log", False), ("", True)])
def test_ctrl_c_leaves_no_traceback_where_the_run_says_that_it_stops(causes: str, shown: bool) -> None:
    code = "import stallpoint.errors; raise KeyboardInterrupt"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, env={**os.environ, CAUSES_KEY: causes}, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGINT
    assert ("Traceback" in ended.stderr) == shown


def test_an_answer_that_nobody_reads_ends_quietly(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as ended, program():
            print("the answer")
    assert ended.value.code == 128 + 13
    assert capfd.readouterr() == ("", "")


def test_a_terminal_without_a_character_gets_another_one_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    with program():
        print("Größe of \udcff: 2 µs")
    assert shown.getvalue() == b"Gr??e of ?: 2 ?s\n"


def test_a_subcommand_that_is_misspelt_is_suggested_and_completion_knows_all_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["expalin"]) == 2
    assert "did you mean  stallpoint explain" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "did you mean  stallpoint explain" in capsys.readouterr().err
    assert main(["--version"]) == main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("stallpoint ")
    assert main(["--completion"]) == 0
    script = tmp_path / "completion"
    script.write_text(f"""{capsys.readouterr().out}
COMP_WORDS=(stallpoint explain --work) COMP_CWORD=2; _stallpoint; echo "${{COMPREPLY[@]}}"
COMP_WORDS=(stallpoint c) COMP_CWORD=1; _stallpoint; echo "${{COMPREPLY[@]}}"
""")
    shown = subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["--workers --workers-per-node", "compare check"]
