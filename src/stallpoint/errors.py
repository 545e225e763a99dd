"""The two ways a step can end early: the input is wrong, or this machine cannot do it."""

from __future__ import annotations

import errno

EXIT_BAD_INPUT = 2
"""Exit status of a program that was given something wrong."""
EXIT_FAILED = 3
"""Exit status of processes that recorded why the cell cannot run here and were then ended by force."""


LONGEST_LINE, MOST_LINES = 1000, 20
"""Characters of a line of a message, and its lines: what was given may be long, and much of it wrong."""


class InputError(ValueError):
    """Something the user gave is wrong; the message names the entry or file and what would be right.

    Programs print the message alone (no traceback) and exit with status 2. What is too long to be read is shortened.
    """

    def __init__(self, message: str) -> None:
        lines = [_shortened(line) for line in message.split("\n")]
        if len(lines) > MOST_LINES + 1:  # one more is as long as saying so, and may say so already
            lines[MOST_LINES:] = [f"... and {len(lines) - MOST_LINES} more lines"]
        super().__init__("\n".join(lines))


class Unreadable(InputError):
    """Something that was there and whole before cannot be read any more: the storage fails, or went away.

    It ends the job with the reason and is no cell's result: storages come back, and the next job goes on from there.
    """


def _shortened(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    between = " ... "
    part = (LONGEST_LINE - len(between)) // 2
    return f"{line[:part]}{between}{line[-part:]}"


class CannotRun(RuntimeError):
    """The cell is valid but cannot run here (no such device, out of memory, MPI and scheduler disagree).

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
    errno.EBADFD: "the storage is gone (a file that was open is not any more)",  # GlusterFS, after a reconnection
}


def refusal(error: OSError) -> str:
    """What the file system refuses a program, in words; nothing where it is something else."""
    return _REFUSED.get(error.errno or 0, "")


def reason(error: OSError) -> str:
    """What the file system refuses a program, or the system's own words."""
    return refusal(error) or str(error.strerror)
