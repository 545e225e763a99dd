"""What every program of the workflow does around its work: messages to terminal and log, errors in plain words."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, suppress
from io import TextIOBase
from pathlib import Path
from typing import Literal, TextIO

from stallpoint.errors import EXIT_BAD_INPUT, InputError, reason, refusal

CAUSES = "STALLPOINT_CAUSES"
"""Variable of the environment: ``log`` where whoever started the program shows the end of its log when it fails."""


class _Log(TextIOBase):
    """A file in which no text waits to be written: where the disk is full, closing it does not fail for that."""

    def __init__(self, path: Path, mode: Literal["w", "a"]) -> None:
        self._file = path.open(f"{mode}b", buffering=0)

    def write(self, text: str) -> int:
        self._file.write(text.encode())
        return len(text)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Tee(TextIOBase):
    """A text stream that also goes to a log, unless the disk refuses that: what is to be said is said."""

    def __init__(self, stream: TextIO, log: _Log) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        self._stream.write(text)
        self._stream.flush()
        with suppress(OSError):
            self._log.write(text)
        return len(text)


@contextmanager
def program(log: Path | None = None, mode: Literal["w", "a"] = "w") -> Iterator[None]:
    """Run the block as a program: what it prints to stderr also goes to `log`, opened in this `mode`.

    An `InputError`, and what the file system refuses, ends it with the message alone (no traceback) and exit status 2,
    a defect with its traceback and exit status 1. Why it ends goes to `log` alone where `CAUSES` says so.
    """
    if not log:
        with _ending(None):
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
    """Exit status and message."""
    if isinstance(error, InputError):
        return EXIT_BAD_INPUT, f"error: {error}\n"
    if isinstance(error, OSError) and (refused := refusal(error)):
        return EXIT_BAD_INPUT, f"error: {f'{error.filename}: ' if error.filename else ''}{refused}\n"
    return 1, "".join(traceback.format_exception(error))
