"""What every program of the workflow does around its work: messages to terminal and log, errors in plain words."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import TextIOBase
from pathlib import Path
from typing import Literal, TextIO

from stallpoint.errors import EXIT_BAD_INPUT, InputError

CAUSES = "STALLPOINT_CAUSES"
"""Variable of the environment: ``log`` where whoever started the program shows the end of its log when it fails."""


class _Tee(TextIOBase):
    """A text stream that writes to two."""

    def __init__(self, first: TextIO, second: TextIO) -> None:
        self._streams = first, second

    def write(self, text: str) -> int:
        for stream in self._streams:
            stream.write(text)
            stream.flush()
        return len(text)


@contextmanager
def program(log: Path | None = None, mode: Literal["w", "a"] = "w") -> Iterator[None]:
    """Run the block as a program: what it prints to stderr also goes to `log`, opened in this `mode`.

    An `InputError` ends it with the message alone (no traceback) and exit status 2, a defect with its traceback
    and exit status 1. Why it ends goes to `log` alone where `CAUSES` says so.
    """
    if not log:
        with _ending(None):
            yield
        return
    shown = os.environ.get(CAUSES) == "log"
    with (
        _opened(log, mode) as file,
        redirect_stderr(_Tee(sys.stderr, file)),
        _ending(file if shown else None),
    ):
        yield


def _opened(log: Path, mode: Literal["w", "a"]) -> TextIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open(mode, encoding="utf-8")
    except OSError as error:  # a file system that is read-only, or full
        print(f"error: {log}: {error.strerror}; the log cannot be written", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


@contextmanager
def _ending(causes: TextIO | None) -> Iterator[None]:
    """Write why the block ends to `causes`, or to stderr."""
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=causes or sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except Exception:
        traceback.print_exc(file=causes or sys.stderr)
        sys.exit(1)
