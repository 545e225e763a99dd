"""Errors that end a step, and their report by programs: in plain words, to terminal and log."""

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
"""Exit statuses of answers: training stops getting faster or something is to mend; the files do not decide it."""
EXIT_FAILED = 3
"""Exit status of a process that was ended by force after it recorded why the cell cannot run here."""
EXIT_DEFECT = os.EX_SOFTWARE
"""Exit status of a program that ends by a defect; no answer has this status."""
EXIT_UNREAD = 128 + signal.SIGPIPE
"""Exit status of a program whose output nobody reads any more, as shells report it."""


MAX_LINE_LENGTH, MAX_LINES = 1000, 20
"""Largest length of a message's line, and number of lines: invalid input may be long."""


class InputError(ValueError):
    """Invalid input of the user; the message names the entry or file and what would be right.

    Programs print only the message (no traceback) and exit with status 2. Long messages are shortened.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shortened(for_terminal(message)))


class Unavailable(InputError):
    """Failure of a disk or storage that worked before: full, read-only, gone, or changed.

    The visit ends with the reason, but no cell is recorded as failed: storages come back, and the next job continues.
    """


class Unreadable(Unavailable):
    """Error that a file which was complete before cannot be read: the storage fails, or is not mounted any more."""


def shortened(message: str) -> str:
    """Return the message without the middle of long lines, and with lines beyond `MAX_LINES` only counted."""
    lines = [_shortened(line) for line in message.split("\n")]
    if len(lines) > MAX_LINES + 1:  # a single line too many is kept: the remark that replaces it would be as long
        lines[MAX_LINES:] = [f"... and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


def _shortened(line: str) -> str:
    if len(line) <= MAX_LINE_LENGTH:
        return line
    between = " ... "
    part = (MAX_LINE_LENGTH - len(between)) // 2
    return f"{line[:part]}{between}{line[-part:]}"


MAX_SEARCH = 20.0
"""Longest time of a user's own regular expression on a program's output, s."""


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Run the block; `InputError` after `seconds`, as a user's regular expression may never end.

    Only the main thread is interrupted: elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise InputError(f"{what} took more than {seconds:g} s: no repeated group in a repeated one")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class CannotRun(RuntimeError):
    """Error that a valid cell cannot run here: no such device, out of memory, MPI and scheduler disagree.

    The job records the reason and ends normally, so that the study goes on.
    """


_REFUSED = {
    **dict.fromkeys((errno.ENOSPC, errno.EFBIG), "no space left on the device"),
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "the file system is read-only",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "no permission to write there"),
    errno.ENAMETOOLONG: "the name is longer than the file system takes",
    errno.EIO: "the storage fails (input/output error)",
    errno.ESTALE: "the storage is gone (stale file handle)",
    errno.ENOTCONN: "the storage is gone (its server is not connected)",
    errno.EBADFD: "the storage is gone (a file that was open is not any more)",  # of GlusterFS after a reconnection
}


def refusal(error: OSError) -> str:
    """Return the file system's refusal in words; empty for other errors."""
    return _REFUSED.get(error.errno or 0, "")


def comes_back(error: BaseException) -> bool:
    """Return whether a disk or storage caused the error, as full, read-only, failing or gone."""
    if isinstance(error, OSError) and error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
        return bool(refusal(error))
    return isinstance(error, Unavailable)


def reason(error: OSError) -> str:
    """Return the file system's refusal, or the operating system's words for another error."""
    return refusal(error) or str(error.strerror)


CAUSES = "STALLPOINT_CAUSES"
"""Environment variable: ``log`` if the caller shows the end of the program's log when it fails."""


def _shown_unless_interrupted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the program; Ctrl-C is reported by the caller instead."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if os.environ.get(CAUSES) == "log":  # set here, before slower imports, which may fail or be interrupted
    sys.excepthook = _shown_unless_interrupted


class _Log(TextIOBase):
    """An unbuffered file, which can be closed even if the disk is full."""

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
    """A text stream that is copied to a log, and printed even if the disk refuses the copy."""

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
    """Run the block as a program whose stderr is copied to `log`, opened in `mode`.

    An `InputError`, or a refusal of the file system, ends the program with the message alone and exit status 2, a
    defect with its traceback and `EXIT_DEFECT`. If `CAUSES` says so, only `log` gets the reason.

    Without `log`, standard output is the answer: the program ends quietly, with `EXIT_UNREAD`, once nobody reads it.
    """
    if not log:
        with _ending(None), _printing():
            yield
        return
    with _ending(None):
        file = _opened(log, mode)
    shown = os.environ.get(CAUSES) == "log"
    with closing(file), redirect_stderr(_Tee(sys.stderr, file)), _ending(file if shown else None):
        yield


def _opened(log: Path, mode: Literal["w", "a"]) -> _Log:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return _Log(log, mode)
    except OSError as error:
        raise InputError(f"{log}: {reason(error)}; the log cannot be written") from error


@contextmanager
def _printing() -> Iterator[None]:
    """Print on any terminal, with marks for characters that it lacks, as long as anybody reads the output."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            yield
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout again when it ends
        sys.exit(EXIT_UNREAD)


@contextmanager
def _ending(causes: _Log | None) -> Iterator[None]:
    """Write why the block ends to `causes`, or to stderr."""
    try:
        yield
    except Exception as error:
        code, why = _why(error)
        try:
            (causes or sys.stderr).write(why)
        except OSError:
            sys.stderr.write(why)
        sys.exit(code)


def _why(error: Exception) -> tuple[int, str]:
    """Return exit status and message."""
    if isinstance(error, InputError):
        return EXIT_BAD_INPUT, f"error: {error}\n"
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error.name or "")):
        return EXIT_BAD_INPUT, f"error: this needs {error.name}: pip install 'stallpoint[{extra}]'\n"
    if isinstance(error, OSError) and (refused := refusal(error)):
        return EXIT_BAD_INPUT, for_terminal(f"error: {f'{error.filename}: ' if error.filename else ''}{refused}") + "\n"
    return EXIT_DEFECT, "".join(traceback.format_exception(error))


def _extra_with(module: str) -> str:
    """Return the extra of this package that installs a module (``altair.utils``, ``vl_convert``); empty without one."""
    from importlib.metadata import PackageNotFoundError, requires  # only where a module is missing

    package = re.escape(module.partition(".")[0].replace("_", "-"))
    with suppress(PackageNotFoundError):
        found = (re.match(rf"{package}\b.*extra == .(\w+)", one) for one in requires(__package__) or ())
        return next((one[1] for one in found if one), "")
    return ""
