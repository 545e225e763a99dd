"""Cells that die while they are measured, each in a way of its own.

Where the variable ``DYING`` holds JSON, path of a cell, or a part of it -> way (one of `WAYS`), the last rank of such
a cell dies before it measures anything, while the others begin (`forked.change`).
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any


def raise_exception() -> None:
    raise RuntimeError("planted")


WAYS: dict[str, tuple[Callable[[], object], str]] = {
    "exception": (raise_exception, "RuntimeError: planted"),
    "SystemExit": (lambda: sys.exit(0), "SystemExit: 0"),
    "segfault": (lambda: ctypes.string_at(0), "Segmentation fault (signal 11) twice"),
    "kill": (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed (signal 9) twice, reason unknown: most likely"),
    "exit": (lambda: os._exit(0), " twice, reason unknown"),
}
"""How a cell dies -> what does it, and a part of the reason that its record then gives."""
VARIABLE = "DYING"


def plant() -> None:
    """Let cells die as the variable says."""
    from stallpoint.study.job_kind import JobKind

    ways, measured = json.loads(os.environ[VARIABLE]), JobKind.measure

    def measure(kind: JobKind) -> Callable[..., None]:
        from stallpoint.measure import job

        job._GRACE = 0.2

        def dying(cell: Any, world: Any, keep: Any) -> None:
            way = next((way for part, way in ways.items() if part in cell.path), "")
            if way and world.rank == world.size - 1:
                WAYS[way][0]()
            measured(kind)(cell, world, keep)

        return dying

    JobKind.measure = measure  # type: ignore[method-assign]
