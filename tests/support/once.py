"""What is made once for all processes of a run of the tests (pytest-xdist), which read it from a file."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Once(Protocol):
    """``once(make)``: what `make` returns, made by the first process that asks for it and read by the others."""

    def __call__(self, make: Callable[[], T]) -> T: ...


def in_folder(base: Path) -> Once:
    """Things are kept in `base`, a folder of this run alone, by the names of the functions that make them."""
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # each worker has a folder of its own in it

    def once(make: Callable[[], Any]) -> Any:
        file = folder / f"{make.__module__}.{make.__qualname__}.pickle"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_bytes(pickle.dumps(make()))
        return pickle.loads(file.read_bytes())

    return once
