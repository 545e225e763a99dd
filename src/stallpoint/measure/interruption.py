"""Rescue of measured rows when a job gets a request to end (scancel, a time limit, Ctrl-C)."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from stallpoint.measure.recorder import Recorder
from stallpoint.records import parquet
from stallpoint.records.tables import ENVIRONMENTS, SLURM_JOBS
from stallpoint.study.cells import Cell

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PATIENCE = 60
"""Time that the forked process has to save rows, s."""


class Interruption:
    """A context in which SIGTERM and SIGINT call `save`, print the line that it returns, and end the process.

    Python runs no signal handler while the main thread waits inside MPI. So the signal's number arrives in a
    pipe, which another thread reads. A launcher kills its processes 30 s (srun) or 0.25 s (mpirun) after the
    signal, or as soon as one of them has ended. So a forked process calls `save`: it has a session of its own,
    which the launcher's signals do not reach.
    """

    def __init__(self, save: Callable[[], str]) -> None:
        self._save = save
        self._lock = threading.Lock()
        self._delayed = False

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._watcher = threading.Thread(target=self._watch, name="interruption", daemon=True)
        self._watcher.start()
        # Set the pipe before the handlers: a handler stops the main thread, and then only `_watch` ends the process.
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, self._stop_main_thread) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._writer)
        self._watcher.join()
        os.close(self._reader)

    @contextmanager
    def signals_delayed(self) -> Iterator[None]:
        """Delay signals until the block has ended."""
        self._delayed = True
        with self._lock:
            yield
        self._delayed = False

    def _watch(self) -> None:
        while number := os.read(self._reader, 1):
            if number[0] in _SIGNALS:
                with self._lock:
                    if not _in_own_session(lambda: self._save_and_report(number[0])):
                        self._save_and_report(number[0])
                    os._exit(128 + number[0])

    def _save_and_report(self, number: int) -> None:
        line = f"interrupted by {signal.Signals(number).name}: {self._save()}\n"
        with suppress(OSError):  # the launcher that reads this process's stderr may have ended already
            os.write(2, line.encode())

    def _stop_main_thread(self, *_: object) -> None:
        """Stop the main thread, so that the saving thread gets the CPU."""
        if not self._delayed:
            threading.Event().wait()


def _in_own_session(step: Callable[[], None]) -> bool:
    """Run `step` in a forked child in a session of its own, for at most `_PATIENCE` s; return whether it succeeded."""
    try:
        if child := os.fork():
            return os.waitpid(child, 0)[1] == 0
    except OSError:  # no child could be forked, or its exit status is unknown
        return False
    with suppress(BaseException):
        signal.alarm(_PATIENCE)  # the child may wait forever for a lock: threads that hold locks are not forked
        os.setsid()
        step()
        os._exit(0)
    os._exit(1)


def interrupted_folder(cell: Cell, folder: Path) -> Path:
    """Return the folder for rows of an unfinished visit: ``results/interrupted/<cell>`` for
    ``results/visits/<cell>/...``."""
    visits = next((parent for parent in folder.parents if parent.name in ("visits", "raw")), folder)
    return visits.parent / "interrupted" / cell.path


def spare_folder(folder: Path) -> Path:
    """Return a substitute for `folder`: its absolute path below this user's temporary folder. No two users and no two
    studies have the same substitute."""
    return Path(tempfile.gettempdir(), f"stallpoint-interrupted-{os.getuid()}", *folder.absolute().parts[1:])


def save_rows(recorder: Recorder, cell: Cell, rank: int, folder: Path) -> str:
    """Save this rank's rows so far, or save them in `spare_folder` if the results' disk is full. Return a line for the
    log that says where the rows are."""
    if all(table in (ENVIRONMENTS, SLURM_JOBS) for table in recorder.tables):
        return f"rank {rank} had measured nothing yet"
    main_folder = interrupted_folder(cell, folder)
    for target in (main_folder, spare_folder(main_folder)):
        with suppress(Exception):  # if the disk is full, the next folder may be on another disk
            for table in recorder.tables:
                parquet.write(table, recorder.arrow(table), target / f"rank~{rank}.{table.name}.parquet")
            return f"the rows of rank {rank} so far are in {target}"
    return f"the rows of rank {rank} are lost, neither results nor {tempfile.gettempdir()} can be written"
