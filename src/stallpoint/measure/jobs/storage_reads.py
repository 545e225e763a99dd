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
from stallpoint.records.origins import is_uncached
from stallpoint.records.tables import CONVERSIONS, STORAGE_OPERATIONS, STORAGE_PASSES, STORAGE_READS
from stallpoint.storage import SampleSet, Storage
from stallpoint.storage.convert import conversion_of
from stallpoint.storage.samples import Extent
from stallpoint.storage.tokens import TokenSequences
from stallpoint.study.kinds.storage_kind import CHECKPOINT_READ, CHECKPOINT_WRITE, StorageCell
from stallpoint.text import Progress

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_ALL_CACHES = "3"  # Linux drops the page cache and cached metadata if this text is written to `DROP_CACHES`
_DECODED = Images(224)
"""Input for which images are decoded: that of most networks, 224 pixels wide."""
_CHUNK = 1 << 20
"""Bytes of a checkpoint that one call writes or reads."""


def measure(cell: StorageCell, world: World, recorder: Recorder) -> None:
    """Time each read of ``cell.samples`` samples on every worker, for all orders and cache states.

    A second read of a sample would not be cold. So in a pass no two reads, of any workers, are of the same sample,
    except in random order. Workers read fewer samples of a small training set; `CannotRun` if there are fewer samples
    than workers.
    """
    node = world.comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        with closing(Storage(cell.storage, Path(cell.storage_path), cell.storage_format).open()) as sample_set:
            recorder.excluded_samples = sample_set.excluded
            if sample_set.in_memory:
                raise CannotRun(
                    f"storage {cell.storage}: its file is compressed and read at once, not by samples; decompress it"
                )
            if sample_set.samples < world.size:
                raise CannotRun(
                    f"storage {cell.storage} has {sample_set.samples} samples, fewer than the {world.size} workers "
                    "that read at once, each its own"
                )
            _ReadVisit(cell, world, recorder, node, sample_set).run()
    except OSError as error:  # a failed read of an open file does not name the file
        raise Unreadable(f"{error.filename or cell.storage_path}: {reason(error)}") from error
    finally:
        node.Free()  # some libraries have few communicators, which many visits would use up


@dataclass(frozen=True)
class _ReadPass:
    """One pass over the samples `indices` of this worker."""

    order: str
    cache: str
    readers: int
    indices: list[int]


class _ReadVisit:
    def __init__(self, cell: StorageCell, world: World, recorder: Recorder, node: MPI.Comm, samples: SampleSet) -> None:
        self._cell, self._world, self._keep, self._node, self._stored = cell, world, recorder, node, samples
        self._source = Source(samples.path, server=samples.server)
        self._droppable = bool(node.allreduce(cell.drop_caches and os.access(DROP_CACHES, os.W_OK), MPI.LAND))
        self._samples_by_order = _samples_by_order(samples.samples, cell.samples, world.rank, world.size, cell.seed)
        memory = node_memory() if node.rank == 0 else 0
        self._facts = {
            "filesystem": self._source.type,
            "locality": self._source.locality,
            "source": "" if cell.anonymise else self._source.mounted,
            "set_bytes": samples.total_bytes,
            "memory_bytes": world.comm.allreduce(memory),
        }

    def run(self) -> None:
        """Do all passes, then time file look-ups, decoding and a checkpoint."""
        if self._world.rank == 0 and self._keep.visit == 1 and (conversion := conversion_of(self._stored.path)):
            self._keep.add(CONVERSIONS, **conversion)
        passes = list(self._passes())
        progress = Progress("pass", [len(read_pass.indices) for read_pass in passes], silent=self._world.rank > 0)
        begin = time.perf_counter()
        for count, read_pass in enumerate(passes, start=1):
            self._read(read_pass)
            progress.tell(count)
        self._look_up(self._samples_by_order["shuffled"])
        self._decode(self._samples_by_order["shuffled"])
        if self._cell.checkpoint_bytes and self._world.rank == 0:
            self._checkpoint(self._cell.checkpoint_bytes)
        self._world.comm.Barrier()
        self._keep.measuring += time.perf_counter() - begin

    def _passes(self) -> Iterator[_ReadPass]:
        """Yield the passes of a visit; the first pass reads files not opened by any visit, as long as there are any."""
        has_untouched_files = not self._droppable and not self._stored.keep_open
        if has_untouched_files and (
            unread := _unread_samples(self._samples_by_order, self._keep.visit, self._world.rank, self._world.size)
        ):
            yield _ReadPass("shuffled", "untouched", 1, unread)
        for order in ("sequential", "shuffled", "random"):
            for readers in sorted({1, self._cell.readers}):
                for cache in ("cold", "warm"):
                    yield _ReadPass(order, cache, readers, self._samples_by_order[order])

    def _read(self, read_pass: _ReadPass) -> None:
        """Prepare the caches for the pass, do the pass, and record how many bytes came from where."""
        # Without a barrier, a worker still in the previous pass would cache again what other workers have dropped.
        self._world.comm.Barrier()
        metadata, cached_share = self._prepare(read_pass)
        self._world.comm.Barrier()
        before = self._source.read()
        self._world.comm.Barrier()
        requested = self._time(read_pass)
        self._world.comm.Barrier()
        counted = self._source.read().since(before)
        node_requested = self._node.allreduce(requested)
        bytes_origin = origin(self._source, counted, requested, node_requested, cached_share)
        cache_answer = server_cache(self._source, bytes_origin, self._stored.total_bytes, self._cell.server_memory)
        self._keep.add(
            STORAGE_PASSES, order=read_pass.order, cache=read_pass.cache, readers=read_pass.readers,
            metadata=metadata, resident=cached_share,
            bytes=requested, node_bytes=node_requested, process_bytes=counted.process, device_bytes=counted.device,
            disk_bytes=counted.disks, server_bytes=counted.server, network_bytes=counted.network, origin=bytes_origin,
            server_cache=cache_answer, uncached=is_uncached(bytes_origin, cache_answer), **self._facts,
        )  # fmt: skip

    def _prepare(self, read_pass: _ReadPass) -> tuple[str, float | None]:
        """Prepare the caches for the pass; return the state of the metadata cache, and the share of the pass's pages
        that the page cache holds."""
        if read_pass.cache == "untouched":  # only an open file shows its pages in the page cache
            return "unknown", None
        if read_pass.cache == "warm":
            for index in read_pass.indices:
                self._stored.read(index)
        else:
            self._stored.close()  # while a file is open, the kernel does not drop its metadata
            drop(_files(self._stored, read_pass.indices))
        self._world.comm.Barrier()
        cached_share = share_in_cache(_extents(self._stored, read_pass.indices))
        if read_pass.cache == "cold" and self._drop_all():
            return "cold", cached_share
        return "warm", cached_share

    def _drop_all(self) -> bool:
        """Let one worker of each node drop the node's caches if this is permitted; return whether this is permitted."""
        self._node.Barrier()
        if self._droppable and self._node.rank == 0:
            DROP_CACHES.write_text(_ALL_CACHES)
        self._world.comm.Barrier()
        return self._droppable

    def _time(self, read_pass: _ReadPass) -> int:
        """Read and time each sample of the pass, on all workers at once; return the bytes requested."""
        pass_start = time.perf_counter()

        def timed_read(index: int) -> tuple[float, float, int]:
            start = time.perf_counter()
            data = self._stored.read(index)
            return start - pass_start, time.perf_counter() - start, len(data)

        if read_pass.readers == 1:
            rows = [timed_read(index) for index in read_pass.indices]
        else:
            with ThreadPoolExecutor(read_pass.readers, "reader") as pool:
                rows = list(pool.map(timed_read, read_pass.indices))
        starts, seconds, sizes = map(list, zip(*rows, strict=True))
        first = (self._keep.visit - 1) * len(rows)
        self._keep.add(
            STORAGE_READS, order=read_pass.order, cache=read_pass.cache, readers=read_pass.readers,
            sample=list(range(first, first + len(rows))), start=starts, seconds=seconds, bytes=sizes,
        )  # fmt: skip
        return sum(sizes)

    def _look_up(self, indices: list[int]) -> None:
        """Time stat and open of the samples' files, one after the other: the cost of many small files."""
        files = sorted(_files(self._stored, indices))
        for operation, call in (("stat", os.stat), ("open", _open_and_close)):
            for metadata in ("cold", "warm") if self._droppable else ("warm",):
                if metadata == "cold":
                    self._drop_all()
                else:
                    for file in files:
                        call(file)
                    self._world.comm.Barrier()
                self._operations(operation, metadata, [(_timed(call, file), 0) for file in files])

    def _decode(self, indices: list[int]) -> None:
        """Time the decoding of images or tokens, without reading. Texts and sounds are decoded by users' networks."""
        rows = []
        try:
            sample_decoder = decoder(self._stored, _inputs_of(self._stored))
            buffers = sample_decoder.buffers(1)
            for index in indices:
                data = self._stored.read(index)
                start = time.perf_counter()
                sample_decoder.decode(index, data, buffers, 0)
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
        chunk = np.random.default_rng(self._cell.seed).bytes(min(size, _CHUNK))
        try:
            with tempfile.TemporaryFile(dir=self._stored.path, buffering=0) as file:
                start = time.perf_counter()
                for begin in range(0, size, _CHUNK):
                    file.write(chunk[: size - begin])
                os.fsync(file.fileno())
                write_seconds = time.perf_counter() - start
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                file.seek(0)
                buffer, before = bytearray(_CHUNK), self._source.read()
                start = time.perf_counter()
                while file.readinto(buffer):
                    pass
                read_seconds = time.perf_counter() - start
                counted = self._source.read().since(before)
        except OSError:  # the folder is read-only, or the disk is full
            return
        self._operations(CHECKPOINT_WRITE, "warm", [(write_seconds, size)])
        bytes_origin = origin(self._source, counted, size, size, None)
        self._operations(CHECKPOINT_READ, "warm", [(read_seconds, size)], bytes_origin)

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
    """Return the samples that a worker reads, one list for each order of reading, and a list ``rest``.

    ``shuffled`` is the worker's part of a permutation, which is the same for all workers. ``rest`` has all samples that
    no worker reads in any order, as permuted.
    """
    count = min(wanted, samples // ranks)
    permutation = np.random.default_rng(seed).permutation(samples)
    random_samples = [np.random.default_rng([seed, number]).integers(samples, size=count) for number in range(ranks)]
    own_part = slice(rank * count, (rank + 1) * count)
    is_read = np.zeros(samples, np.bool_)
    is_read[: ranks * count] = True
    is_read[permutation[: ranks * count]] = True
    is_read[np.concatenate(random_samples)] = True
    parts = {
        "sequential": np.arange(samples)[own_part],
        "shuffled": permutation[own_part],
        "random": random_samples[rank],
        "rest": permutation[~is_read[permutation]],
    }
    return {name: [int(index) for index in part] for name, part in parts.items()}


def _unread_samples(parts: dict[str, list[int]], visit: int, rank: int, ranks: int) -> list[int]:
    """Return samples that no worker of the cell reads in earlier visits or other passes; empty if too few are left.

    The list ``rest`` is divided among visits, and each visit's part among ranks; parts are consecutive.
    """
    count = len(parts["shuffled"])
    first = (visit - 1) * ranks * count
    if first + ranks * count > len(parts["rest"]):
        return []
    return parts["rest"][first + rank * count :][:count]


def _extents(sample_set: SampleSet, indices: Sequence[int]) -> list[Extent]:
    """Return each sample's extent, its place in a file; empty if the library that reads the format does not tell it."""
    return [extent for index in indices if (extent := sample_set.extent(index))]


def _files(sample_set: SampleSet, indices: Sequence[int]) -> set[Path]:
    """Return the files that hold the samples; all files of the training set if extents are unknown."""
    return {extent.path for extent in _extents(sample_set, indices)} or set(sample_set.files())


def _inputs_of(sample_set: SampleSet) -> Inputs:
    if isinstance(sample_set, TokenSequences):
        return Tokens(sample_set.length, 1 << 32)
    return _DECODED


def _open_and_close(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _timed(call: Callable[[Path], object], path: Path) -> float:
    start = time.perf_counter()
    call(path)
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


def share_in_cache(extents: Sequence[Extent]) -> float | None:
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
        status = _LIBC.mincore(address, ctypes.c_size_t(length), vector)
        del view
    if status:
        raise OSError(ctypes.get_errno(), f"mincore: {os.strerror(ctypes.get_errno())}", str(extent.path))
    return (pages & 1).astype(np.bool_)


_LIBC = ctypes.CDLL(None, use_errno=True)
