"""numba is imported only when there is much to do, and compiles also where nothing can be written."""

import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import stallpoint
from stallpoint.errors import InputError
from stallpoint.loops import for_each

COMPILED = """
import numpy as np
from stallpoint.loops import compiled
from stallpoint.models.taskgraph import kernels
seconds, ones = np.array([[1.0, 2.0]]), np.ones((1, 2))
numbers = [np.array(of) for of in ([0, 0], [1, 1], [0, 1, 1], [1], [0, 1])]
start, end = np.empty((1, 2)), np.empty((1, 2))
run = compiled(kernels.run)
whole = run(seconds, seconds, ones, *numbers, start, end)
print(run.nopython_signatures != [], whole, start.tolist(), end.tolist())
"""


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_small_jobs_do_without_numba() -> None:
    program = """
import sys
import stallpoint.models.fitting
from stallpoint.models.taskgraph import Costs, MessageTimes, iteration_tasks, schedule
from stallpoint.strategies.presets import PRESETS
sent = [MessageTimes((layer,), 1) for layer in range(20)]
schedule(iteration_tasks(Costs(1, 1, [1] * 20, [2] * 20, sent, 1), PRESETS["wfbp"].preset, prefetch=True))
print("numba" in sys.modules)
"""
    assert run(program) == "False"


def test_a_read_only_installation_compiles_without_a_cache(tmp_path: Path) -> None:
    # Not even root can make a folder where a file is.
    shutil.copytree(
        Path(stallpoint.__file__).parent, tmp_path / "stallpoint", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in (tmp_path / "stallpoint").rglob("*/"):
        (folder / "__pycache__").touch()
    nowhere = tmp_path / "a file"
    nowhere.touch()
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= dict.fromkeys(("HOME", "XDG_CACHE_HOME"), str(nowhere / "home")) | {"NUMBA_CACHE_DIR": ""}
    assert run(COMPILED, **environment) == "True True [[0.0, 1.0]] [[1.0, 3.0]]"


def test_many_items_are_divided_among_processes_and_come_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)

    def halved(item: int) -> tuple[float, int]:
        if item == 1_000:
            raise InputError("one item is odd")
        return item / 2, os.getpid()

    halves, processes = zip(*for_each(halved, range(100)), strict=True)
    assert list(halves) == [item / 2 for item in range(100)]
    assert 1 <= len(set(processes)) <= 2
    assert os.getpid() not in processes
    assert for_each(halved, range(3)) == [(item / 2, os.getpid()) for item in range(3)]
    with pytest.raises(InputError, match="one item is odd"):
        for_each(halved, [*range(100), 1_000])


def test_copies_make_no_copies_and_threads_that_wait_are_no_reason_to_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)

    def inner(item: int) -> bool:
        return for_each(lambda _: os.getpid(), range(100)) == [os.getpid()] * 100

    ended = threading.Event()
    waiting = threading.Thread(target=ended.wait)
    waiting.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(for_each(inner, range(100)))
    ended.set()
