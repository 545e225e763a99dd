"""Errors that end a step of a study, and how programs report errors: in plain words, to terminal and log."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, suppress
from io import TextIOBase, TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Literal, TextIO

from typing_extensions import override

from stallpoint.text import for_terminal

EXIT_BAD_INPUT = 2
"""Exit status of a program with invalid input."""
EXIT_BAD_NEWS, EXIT_UNDECIDED = 1, 3
"""Exit statuses of answers: training stops getting faster, or something is wrong; the files do not decide it."""
EXIT_FAILED = 3
"""Exit status of processes that were ended by force after one recorded why the cell cannot run here."""
EXIT_DEFECT = os.EX_SOFTWARE
"""Exit status of a program that ends by a defect of stallpoint; no answer has this status."""
EXIT_UNREAD_OUTPUT = 128 + signal.SIGPIPE
"""Exit status, as shells report it, of a program whose output is not read any more."""


MAX_LINE_LENGTH, MAX_LINES = 1000, 20
"""Largest length of a line, and number of lines, of a message that may quote invalid input."""


class InputError(ValueError):
    """Invalid input of the user; the message names the entry or file and what would be right.

    Programs print only the message (no traceback) and exit with status 2. Long messages are shortened.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shorten(for_terminal(message)))


class Unavailable(InputError):
    """Failure of a disk or storage that worked before: it is full, read-only, gone, or changed.

    The visit ends with the reason, but the cell does not count as failed: the storage may come back for the next job.
    """


class Unreadable(Unavailable):
    """Error that a file which was complete before cannot be read: its storage fails, or is not mounted any more."""


def shorten(message: str) -> str:
    """Return the message with the middle of long lines left out; lines beyond `MAX_LINES` are only counted."""
    lines = [_shortened_line(line) for line in message.split("\n")]
    if len(lines) > MAX_LINES + 1:  # to replace a single line by "1 more line" would save nothing
        lines[MAX_LINES:] = [f"... and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


def _shortened_line(line: str) -> str:
    if len(line) <= MAX_LINE_LENGTH:
        return line
    ellipsis = " ... "
    half_length = (MAX_LINE_LENGTH - len(ellipsis)) // 2
    return f"{line[:half_length]}{ellipsis}{line[-half_length:]}"


MAX_SEARCH_SECONDS = 20.0
"""Longest time that a user's regular expression may take to search a program's output, s."""


@contextmanager
def search_limit(seconds: float, search_description: str) -> Iterator[None]:
    """Raise `InputError` if the block, a search by a user's regular expression, takes longer than `seconds`.

    Some expressions would take forever. Threads other than the main thread cannot be interrupted, and have no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_timeout(*_: object) -> None:
        raise InputError(f"{search_description} took more than {seconds:g} s: no repeated group in a repeated one")

    previous_handler = signal.signal(signal.SIGALRM, on_timeout)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


class CannotRun(RuntimeError):
    """Error that a valid cell cannot run here: no such device, out of memory, or MPI and scheduler disagree.

    The job records the reason and goes on with other cells.
    """


_REFUSAL_WORDS = {
    **dict.fromkeys((errno.ENOSPC, errno.EFBIG), "no space left on the device"),
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "the file system is read-only",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "no permission to write there"),
    errno.ENAMETOOLONG: "the name is longer than the file system takes",
    errno.EIO: "the storage fails (input/output error)",
    errno.ESTALE: "the storage is gone (stale file handle)",
    errno.ENOTCONN: "the storage is gone (its server is not connected)",
    errno.EBADFD: "the storage is gone (a file that was open is not any more)",  # GlusterFS's error after a reconnect
}


def refusal(error: OSError) -> str:
    """Return words for an error with which a file system refuses an operation; empty for other errors."""
    return _REFUSAL_WORDS.get(error.errno or 0, "")


def may_recover(error: BaseException) -> bool:
    """Return whether the error's cause may go away: a disk or storage that is full, read-only, failing or missing."""
    if isinstance(error, OSError) and error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
        return bool(refusal(error))
    return isinstance(error, Unavailable)


def reason(error: OSError) -> str:
    """Return the words of `refusal` for an error, or the operating system's message if `refusal` is empty."""
    return refusal(error) or str(error.strerror)


CAUSES_KEY = "STALLPOINT_CAUSES"
"""Environment variable that is ``log`` if the caller of a program shows the end of its log when the program fails."""


def _print_unless_interrupted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the program, except for Ctrl-C, which the caller reports."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if os.environ.get(CAUSES_KEY) == "log":  # set before other modules are imported, as imports may fail
    sys.excepthook = _print_unless_interrupted


class _Log(TextIOBase):
    """Unbuffered log file, which can be closed even if the disk is full."""

    def __init__(self, path: Path, mode: Literal["w", "a"]) -> None:
        self._file = path.open(f"{mode}b", buffering=0)

    @override
    def write(self, text: str) -> int:
        self._file.write(text.encode())
        return len(text)

    @override
    def close(self) -> None:
        self._file.close()
        super().close()


class _Tee(TextIOBase):
    """Text stream that prints all text, and copies it to a log as long as the log's disk accepts it."""

    def __init__(self, stream: TextIO, log: _Log) -> None:
        self._stream, self._log = stream, log

    @override
    def write(self, text: str) -> int:
        self._stream.write(text)
        self._stream.flush()
        with suppress(OSError):
            self._log.write(text)
        return len(text)


@contextmanager
def program(log: Path | None = None, mode: Literal["w", "a"] = "w") -> Iterator[None]:
    """Run the block as a program. Its stderr is copied to the file `log`, opened in `mode`.

    After an `InputError`, or an operation that the file system refused, the program prints only the message, and exits
    with status 2. After any other error it prints a traceback, and exits with `EXIT_DEFECT`. If the environment
    variable `CAUSES_KEY` is ``log``, messages and tracebacks go to `log` only. A program without `log` writes its
    answer to standard output. If nobody reads the output any more, the program ends quietly with `EXIT_UNREAD_OUTPUT`.
    """
    if not log:
        with _exit_on_error(None), _readable_output():
            yield
        return
    with _exit_on_error(None):
        file = _open_log(log, mode)
    log_is_shown = os.environ.get(CAUSES_KEY) == "log"
    with closing(file), redirect_stderr(_Tee(sys.stderr, file)), _exit_on_error(file if log_is_shown else None):
        yield


def _open_log(log: Path, mode: Literal["w", "a"]) -> _Log:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return _Log(log, mode)
    except OSError as error:
        raise InputError(f"{log}: {reason(error)}; the log cannot be written") from error


@contextmanager
def _readable_output() -> Iterator[None]:
    """Replace characters that the terminal cannot show; exit quietly when nobody reads the output any more."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            yield
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's flush on exit then raises no error
        sys.exit(EXIT_UNREAD_OUTPUT)


@contextmanager
def _exit_on_error(error_log: _Log | None) -> Iterator[None]:
    """If the block raises an error, write the reason to `error_log` or to stderr, and exit."""
    try:
        yield
    except Exception as error:
        code, why = _status_and_message(error)
        try:
            (error_log or sys.stderr).write(why)
        except OSError:
            sys.stderr.write(why)
        sys.exit(code)


def _status_and_message(error: Exception) -> tuple[int, str]:
    """Return the exit status and the message for an error that ends a program."""
    if isinstance(error, InputError):
        return EXIT_BAD_INPUT, f"error: {error}\n"
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error.name or "")):
        return EXIT_BAD_INPUT, f"error: this needs {error.name}: pip install 'stallpoint[{extra}]'\n"
    if isinstance(error, OSError) and (refused := refusal(error)):
        return EXIT_BAD_INPUT, for_terminal(f"error: {f'{error.filename}: ' if error.filename else ''}{refused}") + "\n"
    return EXIT_DEFECT, "".join(traceback.format_exception(error))


def _extra_with(module: str) -> str:
    """Return the extra of this package that installs a module (such as ``altair.utils``); empty if there is none."""
    from importlib.metadata import PackageNotFoundError, requires  # imported only when a module is missing

    package = re.escape(module.partition(".")[0].replace("_", "-"))
    with suppress(PackageNotFoundError):
        found = (re.match(rf"{package}\b.*extra == .(\w+)", requirement) for requirement in requires(__package__) or ())
        return next((requirement[1] for requirement in found if requirement), "")
    return ""
