"""Reading the training set from all workers at once: in order and at random, page cache cold and warm.

Input only, nothing is decoded. The page cache meant is that of the nodes; what a file server or a disk
keeps is out of reach from here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stallpoint.cells import StorageCell
from stallpoint.errors import CannotRun
from stallpoint.measure.progress import Progress
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.records import STORAGE_READS
from stallpoint.storage import SampleSet, Storage
from stallpoint.storage.samples import Extent


def measure(cell: StorageCell, world: World, keep: Recorder) -> None:
    """Time each read of ``cell.samples`` samples on every worker, for both orders and both cache states.

    No sample is read twice in a pass, by one worker or by two, so that a cold read is cold; a small
    training set therefore gives each worker fewer samples.
    """
    stored = Storage(cell.storage, Path(cell.storage_path), cell.storage_format).open()
    keep.left_out = stored.left_out
    if stored.samples < world.size:
        raise CannotRun(
            f"storage {cell.storage} has {stored.samples} samples, fewer than the {world.size} workers that read at "
            "once, each its own"
        )
    count = min(cell.samples, stored.samples // world.size)
    random = np.random.default_rng(cell.seed).permutation(stored.samples)
    progress = Progress("read", [1] * 4 * count, silent=world.rank > 0)
    done = 0
    begin = time.perf_counter()
    for order, sequence in (("sequential", np.arange(stored.samples)), ("random", random)):
        own = [int(index) for index in sequence[world.rank * count :][:count]]
        stored.close()  # what a process has mapped, or keeps in its own memory, cannot be dropped
        extents = [extent for index in own if (extent := stored.extent(index))]
        # Who still reads in the order before would bring back what others have dropped.
        world.comm.Barrier()
        for cache in ("cold", "warm"):
            if cache == "cold":
                drop({extent.path for extent in extents} or set(stored.files()))
            else:
                for index in own:
                    stored.read(index)
            world.comm.Barrier()
            resident = resident_share(extents)
            for _ in _read_all(stored, own, world, keep, order, cache, resident):
                progress.tell(done := done + 1)
    keep.measuring += time.perf_counter() - begin
    stored.close()


def drop(files: set[Path]) -> None:
    """Drop the files' pages from this node's page cache; pages not yet on the disk are written first."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def resident_share(extents: Sequence[Extent]) -> float | None:
    """Share of the pages of `extents` in this node's page cache; None where that is not told.

    Libraries may hide extents, and the kernel tells only about files that this user owns or may write
    (``man 2 mincore``).
    """
    if not extents or not all(_is_told(path) for path in {extent.path for extent in extents}):
        return None
    pages = [_resident_pages(extent) for extent in extents]
    return float(np.concatenate(pages).mean())


def _is_told(path: Path) -> bool:
    return path.stat().st_uid == os.geteuid() or os.access(path, os.W_OK)


def _resident_pages(extent: Extent) -> npt.NDArray[np.bool_]:
    """For each page of the extent whether it is in the page cache; asking (``mincore``) brings none there."""
    begin = extent.offset - extent.offset % mmap.ALLOCATIONGRANULARITY
    length = extent.offset + extent.size - begin
    pages = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
    with extent.path.open("rb") as file, mmap.mmap(file.fileno(), length, prot=mmap.PROT_READ, offset=begin) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        address, vector = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(pages.ctypes.data)
        failed = _LIBC.mincore(address, ctypes.c_size_t(length), vector)
        del view
    if failed:
        raise OSError(ctypes.get_errno(), f"mincore: {os.strerror(ctypes.get_errno())}", str(extent.path))
    return (pages & 1).astype(np.bool_)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _read_all(
    stored: SampleSet, indices: list[int], world: World, keep: Recorder, order: str, cache: str, resident: float | None
) -> Iterator[None]:
    """One pass over the samples `indices`, a step for each; all workers begin together."""
    world.comm.Barrier()
    began = time.perf_counter()
    for sample, index in enumerate(indices):
        start = time.perf_counter()
        data = stored.read(index)
        seconds = time.perf_counter() - start
        keep.add(
            STORAGE_READS,
            order=order,
            cache=cache,
            resident=resident,
            sample=(keep.visit - 1) * len(indices) + sample,
            start=start - began,
            seconds=seconds,
            bytes=len(data),
        )
        yield
