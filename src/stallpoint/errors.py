"""The two ways a step can end early: the input is wrong, or this machine cannot do it."""

EXIT_BAD_INPUT = 2
"""Exit status of a program that was given something wrong."""
EXIT_FAILED = 3
"""Exit status of processes that recorded why the cell cannot run here and were then ended by force."""


class InputError(ValueError):
    """Something the user gave is wrong; the message names the entry or file and what would be right.

    Programs print the message alone (no traceback) and exit with status 2.
    """


class CannotRun(RuntimeError):
    """The cell is valid but cannot run here (no such device, out of memory, MPI and scheduler disagree).

    The job records the reason and ends normally, so that the study goes on.
    """
