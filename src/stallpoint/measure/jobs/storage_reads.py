"""Reads of the training set from all workers at once: in order, shuffled and at random, page cache cold and warm.

Passes only read: decoding, file look-ups and checkpoints are timed separately. Cold and warm refer to the nodes' page
cache; the table ``storage_passes`` says whether caches beyond the nodes may have answered (`origin`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stallpoint.errors import CannotRun, InputError, Unreadable, reason
from stallpoint.measure.machine.environment import node_memory
from stallpoint.measure.machine.origin import Source, origin, server_cache
from stallpoint.measure.mpi import MPI
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training.decoding import decoder
from stallpoint.measure.world import World
from stallpoint.networks.inputs import Images, Inputs, Tokens
from stallpoint.records.origins import uncached
from stallpoint.records.tables import CONVERSIONS, STORAGE_OPERATIONS, STORAGE_PASSES, STORAGE_READS
from stallpoint.storage import SampleSet, Storage
from stallpoint.storage.convert import conversion_of
from stallpoint.storage.samples import Extent
from stallpoint.storage.tokens import TokenSequences
from stallpoint.study.kinds.storage_kind import CHECKPOINT_READ, CHECKPOINT_WRITE, StorageCell
from stallpoint.text import Progress

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_ALL_CACHES = "3"  # written to `DROP_CACHES`, it drops both the page cache and cached metadata
_DECODED = Images(224)
"""Input for which images are decoded: that of most networks, 224 pixels wide."""
_CHUNK = 1 << 20
"""Bytes of a checkpoint that one call writes or reads."""


def measure(cell: StorageCell, world: World, keep: Recorder) -> None:
    """Time each read of ``cell.samples`` samples on every worker, for all orders and cache states.

    A second read of a sample would not be cold. So in a pass no two reads, of any workers, are of the same sample,
    except in random order. Workers read fewer samples of a small training set; `CannotRun` if there are fewer samples
    than workers.
    """
    node = world.comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        with closing(Storage(cell.storage, Path(cell.storage_path), cell.storage_format).open()) as stored:
            keep.excluded_samples = stored.excluded
            if stored.in_memory:
                raise CannotRun(
                    f"storage {cell.storage}: its file is compressed and read at once, not by samples; decompress it"
                )
            if stored.samples < world.size:
                raise CannotRun(
                    f"storage {cell.storage} has {stored.samples} samples, fewer than the {world.size} workers that "
                    "read at once, each its own"
                )
            _ReadVisit(cell, world, keep, node, stored).run()
    except OSError as error:  # a failed read of an open file does not name the file
        raise Unreadable(f"{error.filename or cell.storage_path}: {reason(error)}") from error
    finally:
        node.Free()  # processes make many visits, and some libraries have few communicators


@dataclass(frozen=True)
class _ReadPass:
    """One pass over the samples `indices` of this worker."""

    order: str
    cache: str
    readers: int
    indices: list[int]


class _ReadVisit:
    def __init__(self, cell: StorageCell, world: World, keep: Recorder, node: MPI.Comm, stored: SampleSet) -> None:
        self._cell, self._world, self._keep, self._node, self._stored = cell, world, keep, node, stored
        self._source = Source(stored.path, server=stored.server)
        self._droppable = bool(node.allreduce(cell.drop_caches and os.access(DROP_CACHES, os.W_OK), MPI.LAND))
        self._samples_by_order = _samples_by_order(stored.samples, cell.samples, world.rank, world.size, cell.seed)
        memory = node_memory() if node.rank == 0 else 0
        self._facts = {
            "filesystem": self._source.type,
            "locality": self._source.locality,
            "source": "" if cell.anonymise else self._source.mounted,
            "set_bytes": stored.total_bytes,
            "memory_bytes": world.comm.allreduce(memory),
        }

    def run(self) -> None:
        """Do all passes, then time file look-ups, decoding and a checkpoint."""
        if self._world.rank == 0 and self._keep.visit == 1 and (made := conversion_of(self._stored.path)):
            self._keep.add(CONVERSIONS, **made)
        passes = list(self._passes())
        progress = Progress("pass", [len(one.indices) for one in passes], silent=self._world.rank > 0)
        begin = time.perf_counter()
        for done, one in enumerate(passes, start=1):
            self._read(one)
            progress.tell(done)
        self._look_up(self._samples_by_order["shuffled"])
        self._decode(self._samples_by_order["shuffled"])
        if self._cell.checkpoint_bytes and self._world.rank == 0:
            self._checkpoint(self._cell.checkpoint_bytes)
        self._world.comm.Barrier()
        self._keep.measuring += time.perf_counter() - begin

    def _passes(self) -> Iterator[_ReadPass]:
        """Yield the passes of a visit; the first reads files that no visit has opened yet, as long as there are any."""
        one_each = not self._droppable and not self._stored.keep_open
        if one_each and (
            fresh := _unread_samples(self._samples_by_order, self._keep.visit, self._world.rank, self._world.size)
        ):
            yield _ReadPass("shuffled", "untouched", 1, fresh)
        for order in ("sequential", "shuffled", "random"):
            for readers in sorted({1, self._cell.readers}):
                for cache in ("cold", "warm"):
                    yield _ReadPass(order, cache, readers, self._samples_by_order[order])

    def _read(self, one: _ReadPass) -> None:
        """Prepare the caches for the pass, do the pass, and record how many bytes came from where."""
        # Without a barrier, a worker still in the previous pass would cache again what other workers have dropped.
        self._world.comm.Barrier()
        metadata, resident = self._prepare(one)
        self._world.comm.Barrier()
        before = self._source.read()
        self._world.comm.Barrier()
        asked = self._time(one)
        self._world.comm.Barrier()
        moved = self._source.read().since(before)
        node_asked = self._node.allreduce(asked)
        came_from = origin(self._source, moved, asked, node_asked, resident)
        beyond = server_cache(self._source, came_from, self._stored.total_bytes, self._cell.server_memory)
        self._keep.add(
            STORAGE_PASSES, order=one.order, cache=one.cache, readers=one.readers, metadata=metadata, resident=resident,
            bytes=asked, node_bytes=node_asked, process_bytes=moved.process, device_bytes=moved.device,
            disk_bytes=moved.disks, server_bytes=moved.server, network_bytes=moved.network, origin=came_from,
            server_cache=beyond, uncached=uncached(came_from, beyond), **self._facts,
        )  # fmt: skip

    def _prepare(self, one: _ReadPass) -> tuple[str, float | None]:
        """Prepare the caches for the pass; return the state of the metadata cache, and the share of the pass's pages
        that the page cache holds."""
        if one.cache == "untouched":  # only an open file shows its pages in the page cache
            return "unknown", None
        if one.cache == "warm":
            for index in one.indices:
                self._stored.read(index)
        else:
            self._stored.close()  # while a file is open, the kernel does not drop its metadata
            drop(_files(self._stored, one.indices))
        self._world.comm.Barrier()
        resident = resident_share(_extents(self._stored, one.indices))
        if one.cache == "cold" and self._drop_all():
            return "cold", resident
        return "warm", resident

    def _drop_all(self) -> bool:
        """Drop all caches of every node, if permitted; one worker of each node does it. Return whether permitted."""
        self._node.Barrier()
        if self._droppable and self._node.rank == 0:
            DROP_CACHES.write_text(_ALL_CACHES)
        self._world.comm.Barrier()
        return self._droppable

    def _time(self, one: _ReadPass) -> int:
        """Read and time each sample of the pass, on all workers at once; return the bytes requested."""
        began = time.perf_counter()

        def timed(index: int) -> tuple[float, float, int]:
            start = time.perf_counter()
            data = self._stored.read(index)
            return start - began, time.perf_counter() - start, len(data)

        if one.readers == 1:
            rows = [timed(index) for index in one.indices]
        else:
            with ThreadPoolExecutor(one.readers, "reader") as pool:
                rows = list(pool.map(timed, one.indices))
        starts, seconds, sizes = map(list, zip(*rows, strict=True))
        first = (self._keep.visit - 1) * len(rows)
        self._keep.add(
            STORAGE_READS, order=one.order, cache=one.cache, readers=one.readers,
            sample=list(range(first, first + len(rows))), start=starts, seconds=seconds, bytes=sizes,
        )  # fmt: skip
        return sum(sizes)

    def _look_up(self, indices: list[int]) -> None:
        """Time stat and open of the samples' files, one after the other: the cost of many small files."""
        files = sorted(_files(self._stored, indices))
        for operation, do in (("stat", os.stat), ("open", _open_and_close)):
            for metadata in ("cold", "warm") if self._droppable else ("warm",):
                if metadata == "cold":
                    self._drop_all()
                else:
                    for file in files:
                        do(file)
                    self._world.comm.Barrier()
                self._operations(operation, metadata, [(_timed(do, file), 0) for file in files])

    def _decode(self, indices: list[int]) -> None:
        """Time the decoding of images or tokens, without reading. Texts and sounds are decoded by users' networks."""
        rows = []
        try:
            decoding = decoder(self._stored, _inputs_of(self._stored))
            buffers = decoding.buffers(1)
            for index in indices:
                data = self._stored.read(index)
                start = time.perf_counter()
                decoding.decode(index, data, buffers, 0)
                rows.append((time.perf_counter() - start, len(data)))
        except Unreadable:
            raise
        except InputError:
            return
        self._operations("decode", "warm", rows)

    def _checkpoint(self, size: int) -> None:
        """Time the writing of a file of `size` bytes, with fsync, and a cold read of it. Skip both if writing fails.

        The file has no name and vanishes when it is closed, even if the job is killed.
        """
        # random bytes, as storages may compress zeros
        piece = np.random.default_rng(self._cell.seed).bytes(min(size, _CHUNK))
        try:
            with tempfile.TemporaryFile(dir=self._stored.path, buffering=0) as file:
                start = time.perf_counter()
                for begin in range(0, size, _CHUNK):
                    file.write(piece[: size - begin])
                os.fsync(file.fileno())
                written = time.perf_counter() - start
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                file.seek(0)
                buffer, before = bytearray(_CHUNK), self._source.read()
                start = time.perf_counter()
                while file.readinto(buffer):
                    pass
                read = time.perf_counter() - start
                moved = self._source.read().since(before)
        except OSError:  # a read-only folder, or a full disk
            return
        self._operations(CHECKPOINT_WRITE, "warm", [(written, size)])
        came_from = origin(self._source, moved, size, size, None)
        self._operations(CHECKPOINT_READ, "warm", [(read, size)], came_from)

    def _operations(
        self, operation: str, metadata: str, rows: Sequence[tuple[float, int]], came_from: str = ""
    ) -> None:
        first = (self._keep.visit - 1) * len(rows)
        self._keep.add(
            STORAGE_OPERATIONS, operation=operation, metadata=metadata, origin=came_from,
            sample=list(range(first, first + len(rows))),
            seconds=[seconds for seconds, _ in rows], bytes=[size for _, size in rows],
        )  # fmt: skip


def _samples_by_order(samples: int, wanted: int, rank: int, ranks: int, seed: int) -> dict[str, list[int]]:
    """Return the samples that a worker reads, by order.

    ``shuffled`` is the worker's part of a permutation, which is the same for all workers. ``rest`` has all samples that
    no worker reads in any order; they have the order of the permutation.
    """
    count = min(wanted, samples // ranks)
    permutation = np.random.default_rng(seed).permutation(samples)
    drawn = [np.random.default_rng([seed, one]).integers(samples, size=count) for one in range(ranks)]
    own = slice(rank * count, (rank + 1) * count)
    taken = np.zeros(samples, np.bool_)
    taken[: ranks * count] = True
    taken[permutation[: ranks * count]] = True
    taken[np.concatenate(drawn)] = True
    parts = {
        "sequential": np.arange(samples)[own],
        "shuffled": permutation[own],
        "random": drawn[rank],
        "rest": permutation[~taken[permutation]],
    }
    return {name: [int(index) for index in part] for name, part in parts.items()}


def _unread_samples(parts: dict[str, list[int]], visit: int, rank: int, ranks: int) -> list[int]:
    """Return samples that no worker of the cell reads in earlier visits or other passes; none if too few are left.

    The list ``rest`` is divided among visits, and each visit's part among ranks; parts are consecutive.
    """
    count = len(parts["shuffled"])
    first = (visit - 1) * ranks * count
    if first + ranks * count > len(parts["rest"]):
        return []
    return parts["rest"][first + rank * count :][:count]


def _extents(stored: SampleSet, indices: Sequence[int]) -> list[Extent]:
    """Return the extents of samples in files; none if the library that reads the format does not tell them."""
    return [extent for index in indices if (extent := stored.extent(index))]


def _files(stored: SampleSet, indices: Sequence[int]) -> set[Path]:
    """Return the files that hold the samples; all files of the training set if extents are unknown."""
    return {extent.path for extent in _extents(stored, indices)} or set(stored.files())


def _inputs_of(stored: SampleSet) -> Inputs:
    if isinstance(stored, TokenSequences):
        return Tokens(stored.length, 1 << 32)
    return _DECODED


def _open_and_close(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _timed(do: Callable[[Path], object], path: Path) -> float:
    start = time.perf_counter()
    do(path)
    return time.perf_counter() - start


def drop(files: set[Path]) -> None:
    """Drop the files' pages from this node's page cache; modified pages are written to the disk first."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def resident_share(extents: Sequence[Extent]) -> float | None:
    """Return the share of the pages of `extents` that are in this node's page cache; None if unknown.

    It is unknown without extents, and for files that this user neither owns nor may write (``man 2 mincore``).
    """
    if not extents or not all(_residency_is_visible(path) for path in {extent.path for extent in extents}):
        return None
    pages = [_resident_pages(extent) for extent in extents]
    return float(np.concatenate(pages).mean())


def _residency_is_visible(path: Path) -> bool:
    return path.stat().st_uid == os.geteuid() or os.access(path, os.W_OK)


def _resident_pages(extent: Extent) -> npt.NDArray[np.bool_]:
    """Return for each page of the extent whether it is in the page cache, by ``mincore``, which loads no page."""
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
