"""The two ways a step can end early: the input is wrong, or this machine cannot do it."""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from types import TracebackType

EXIT_BAD_INPUT = 2
"""Exit status of a program that was given something wrong."""


class InputError(ValueError):
    """Something the user gave is wrong; the message names the entry or file and what would be right.

    Programs print the message alone (no traceback) and exit with status 2.
    """


class CannotRun(RuntimeError):
    """The cell is valid but cannot run here (no such device, out of memory, MPI and scheduler disagree).

    The job records the reason and ends normally, so that the study goes on.
    """


class plain_errors(ContextDecorator):  # noqa: N801 (used like a function, as a decorator or in a with statement)
    """What the user got wrong ends the program with the message alone and exit status 2, without a traceback."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn an `InputError` into its message."""
        if isinstance(error, InputError):
            print(f"error: {error}", file=sys.stderr)
            sys.exit(EXIT_BAD_INPUT)
