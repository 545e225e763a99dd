"""Staging: copies of shared training sets on the nodes' own disks, made once in a job before reading.

Keuper & Pfreundt (2016, section IV) advise staging if a shared storage cannot feed all nodes. The first rank of each
node copies, on all nodes at once, while other ranks wait. A copy is complete or absent (it is renamed when every file
has its size), and is used by all cells of the job; at the job's end it is removed, unless the study keeps it. Copies in
use are locked. A killed job leaves copies that nobody locks; the next staging on the node removes them.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from stallpoint.errors import CannotRun, InputError, Unavailable, reason
from stallpoint.measure.job import Prepare, all_arrive
from stallpoint.measure.mpi import MPI
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.records.atomic import atomic
from stallpoint.records.tables import STAGING
from stallpoint.storage import Storage
from stallpoint.storage.samples import INDEX_FILE, existing_index
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.storage_kind import StorageCell
from stallpoint.study.kinds.train_kind import TrainCell

COPYING = 8
"""Number of files that a node copies at once, as a shared storage is slow to find each file."""
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS)
"""Error numbers by which a node's own disk refuses a copy."""
_LOCK, _KEPT, _OF_JOB = ".lock", "kept", "job"
_RETRY_INTERVAL = 0.1
"""Time between two attempts to get a lock, s."""


@dataclass(frozen=True)
class StagedCopy:
    """A training set staged on a node, as the rank that copied it describes it to other ranks."""

    folder: Path
    files: int
    samples: int
    bytes: int
    seconds: float
    """Time from the begin of staging on all nodes until the copy was complete, s."""
    made: bool
    """Whether this process made the copy; False if an earlier job, or another process of this job, made it."""


class Staging:
    """The training sets staged by the processes of `world`; a context manager that removes them at the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._node = world.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._prepared: dict[tuple[str, str, bool], Prepare] = {}
        self._locks: dict[Path, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for folder, lock in self._locks.items():
            if not folder.name.startswith(_KEPT) and _exclusive(lock):
                _remove(folder)
            os.close(lock)

    def stage(self, cell: Cell) -> Prepare:
        """Copy the cell's storage to its `stage_to`, if set, on all nodes; called on all ranks for the same cell.

        The returned function makes a visit read the copy, or raises the problem: `CannotRun` if a node's disk is full
        or cannot be written, `Unavailable` if the storage cannot be read.
        """
        if not isinstance(cell, TrainCell | StorageCell) or not cell.stage_to:
            return lambda cell, _keep: cell
        key = cell.storage_path, cell.stage_to, cell.stage_keep
        if key not in self._prepared:
            self._prepared[key] = self._on_all_nodes(cell)
        return self._prepared[key]

    def _on_all_nodes(self, cell: TrainCell | StorageCell) -> Prepare:
        all_arrive(self._world.comm, math.inf)
        found = self._attempt(cell) if self._node.rank == 0 else None
        all_arrive(self._world.comm, math.inf)  # sleep until all copies are made: the MPI calls below would spin
        copies = [one for one in self._world.comm.allgather(found) if one is not None]
        own = self._node.bcast(found)
        problem = next((one for one in copies if not isinstance(one, StagedCopy)), None)
        rows = [] if problem else [{"node": node, **_row(one)} for node, one in enumerate(copies) if one.made]

        def prepare(cell: TrainCell | StorageCell, keep: Recorder) -> TrainCell | StorageCell:
            if problem:
                raise problem
            while self._world.rank == 0 and rows:
                keep.add(STAGING, job_nodes=len(copies), **rows.pop(0))
            return replace(cell, storage_path=str(own.folder))

        return prepare

    def _attempt(self, cell: TrainCell | StorageCell) -> StagedCopy | CannotRun | InputError:
        """Stage the cell's storage on this node; return the copy, or the problem."""
        try:
            return self._on_this_node(cell)
        except (CannotRun, InputError) as problem:
            return problem
        except OSError as error:
            message = f"storage {cell.storage}: staging to {cell.stage_to}: {error.filename}: {reason(error)}"
            return CannotRun(message) if error.errno in _FULL else Unavailable(message)
        except Exception as error:  # the error is returned, so that every visit that needs the copy raises it
            return CannotRun(f"storage {cell.storage}: staging to {cell.stage_to}: {type(error).__name__}: {error}")

    def _on_this_node(self, cell: TrainCell | StorageCell) -> StagedCopy:
        begin = time.perf_counter()
        source = Path(cell.storage_path)
        sample_set = Storage(cell.storage, source, cell.storage_format).open()  # fails if files have another format
        samples, server = sample_set.samples, sample_set.server
        sample_set.close()
        if server:
            raise CannotRun(f"storage {cell.storage}: {server[0]} {server[1]} holds its samples; staging copies files")
        if not source.is_dir():
            raise InputError(f"storage {cell.storage}: {source} is no folder, and folders are staged; name the folder")
        files = _files(source)
        sizes = _sizes(files)
        home = _home(cell.stage_to)
        folder = home / f"{_KEPT if cell.stage_keep else _OF_JOB}-{_digest(source, files)}"
        _remove_leftovers(home)
        if folder not in self._locks:
            self._locks[folder] = _locked(folder)
        lock, is_own = self._locks[folder], False
        while not _is_complete(folder, sizes):
            # Copy only with an exclusive lock: then no other process copies, or reads an old copy.
            if _exclusive(lock):
                _copy(files, folder, sizes, cell.storage)
                is_own = True
            else:
                time.sleep(_RETRY_INTERVAL)
            fcntl.flock(lock, fcntl.LOCK_SH)
        seconds = time.perf_counter() - begin
        return StagedCopy(folder, len(sizes), samples, sum(sizes.values()), seconds, is_own)


def _row(copy: StagedCopy) -> dict[str, int | float]:
    return {"files": copy.files, "samples": copy.samples, "bytes": copy.bytes, "seconds": copy.seconds}


def _home(stage_to: str) -> Path:
    """Return the folder on this node that holds this user's staged training sets; it is made if needed."""
    folder = os.path.expandvars(stage_to.replace("$TMPDIR", tempfile.gettempdir()))
    if "$" in folder:
        raise InputError(f"stage_to: {stage_to}: no such variable on the node; a folder there, or $TMPDIR, is expected")
    home = Path(folder, f"stallpoint-staged-{os.getuid()}")
    home.mkdir(parents=True, exist_ok=True)
    return home


def _files(source: Path) -> dict[str, Path]:
    """Return all files of a training set by their names in the copy: those below `source`, and the set's index."""
    index = existing_index(source)
    return _below(source) | ({INDEX_FILE: index} if index else {})


def _below(folder: Path) -> dict[str, Path]:
    found = (Path(node, name) for node, _, names in os.walk(folder) for name in names)
    return {str(file.relative_to(folder)): file for file in sorted(found)}


def _sizes(files: dict[str, Path]) -> dict[str, int]:
    return {name: file.stat().st_size for name, file in files.items()}


def _digest(source: Path, files: dict[str, Path]) -> str:
    """Return a digest that identifies a training set and the present sizes and times of its files."""
    state = {name: (file.stat().st_size, file.stat().st_mtime_ns) for name, file in files.items()}
    return hashlib.sha256(repr((os.path.realpath(source), state)).encode()).hexdigest()[:16]


def _is_complete(folder: Path, sizes: dict[str, int]) -> bool:
    return folder.is_dir() and _sizes(_below(folder)) == sizes


def _copy(files: dict[str, Path], folder: Path, sizes: dict[str, int], storage: str) -> None:
    """Copy all files; `folder` appears once each file has its size."""
    for leftover in folder.parent.glob(f".{folder.name}.*"):  # incomplete copies, left by processes that were killed
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        with atomic(folder) as scratch:
            for parent in {(scratch / name).parent for name in sizes} | {scratch}:
                parent.mkdir(parents=True, exist_ok=True)
            with ThreadPoolExecutor(COPYING) as pool:
                for _ in pool.map(lambda name: shutil.copyfile(files[name], scratch / name), files):
                    pass
            if _sizes(_below(scratch)) != sizes:
                raise Unavailable(
                    f"storage {storage}: its files changed while it was staged; do not change it meanwhile"
                )
    except InputError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _FULL:
            raise CannotRun(f"storage {storage} cannot be staged: {error}") from error
        raise


def _locked(folder: Path) -> int:
    """Return the lock of a staged training set, shared with other processes that use the set."""
    file = folder.with_name(folder.name + _LOCK)
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):  # another process may have removed the set
            if os.fstat(lock).st_ino == file.stat().st_ino:
                return lock
        os.close(lock)


def _exclusive(lock: int) -> bool:
    """Make a lock exclusive; return whether this succeeded. It fails while another process uses the training set."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(folder: Path) -> None:
    """Remove a staged training set, which is locked exclusively, and its incomplete copies."""
    for one in (folder, *folder.parent.glob(f".{folder.name}.*")):
        shutil.rmtree(one, ignore_errors=True)
    folder.with_name(folder.name + _LOCK).unlink(missing_ok=True)


def _remove_leftovers(home: Path) -> None:
    for file in home.glob(f"{_OF_JOB}-*{_LOCK}"):
        lock = _locked(file.with_suffix(""))
        if _exclusive(lock):
            _remove(file.with_suffix(""))
        os.close(lock)
