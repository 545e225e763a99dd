"""Interface of storage formats. A storage holds samples, each with a label; most samples are byte ranges of files."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stallpoint.errors import InputError, Unavailable, Unreadable, reason
from stallpoint.networks.inputs import Inputs
from stallpoint.records.atomic import atomic

INDEX_FILE = "stallpoint-index.parquet"
INDEXES = Path(".stallpoint", "indexes")
"""Folder of the indexes of read-only storages: in the working directory, which all nodes share."""

_NUMBER_COLUMNS = ("offset", "size", "label")
_EXCLUDED_KEY = b"stallpoint_left_out"
"""Key, in the index's metadata, of the number of excluded samples."""

PART = 1000
"""Number of samples that are written at once, and of each file in sets of several files: about 110 MB of ImageNet."""

Made: TypeAlias = tuple[bytes, int]
"""The bytes and the label of a sample that is to be written."""

ADVICE = "to look through the storage again, and to make a generated one anew: snakemake -R prepare_storage"


def cut_off_message(path: Path, offset: int) -> str:
    """Return the message for a file that now ends before the byte at `offset`, and was longer when indexed.

    A GlusterFS volume whose server went away can also return fewer bytes than requested.
    """
    return f"{path}: ends before byte {offset}: it was cut off, or the storage fails; {ADVICE}"


@dataclass(frozen=True)
class Extent:
    """The bytes of one sample: `size` bytes from `offset` on in the file `path`."""

    path: Path
    offset: int
    size: int


@dataclass(frozen=True)
class IndexEntry:
    """One row of an index: where a sample is (the path `file` is relative to the storage), and its label.

    If a format's library hides where samples are, `file` is the key of the sample.
    """

    file: str
    offset: int
    size: int
    label: int


@dataclass(frozen=True)
class SampleShape(ABC):
    """Shape of generated samples. Its fields are keys of a storage's entry in the study."""

    @abstractmethod
    def suits(self, takes: Inputs) -> bool:
        """Return whether samples of this shape are large enough for a network with these inputs."""


class SampleSet(ABC):
    """The samples of a storage.

    An index file holds the samples' locations, so that not every rank searches a million files of a network file
    system. The index is in the storage's folder, or in `INDEXES` if that folder is read-only.
    """

    kind: ClassVar[str]
    """Kind of samples: ``images`` or ``tokens``, as networks take them, or kinds that only storage cells read."""
    layout: ClassVar[str]
    """Expected content of the folder, for messages and documentation."""
    shape: ClassVar[type[SampleShape] | None] = None
    """Class of the shape of generated samples; None if their shapes vary, as in ImageNet."""
    in_folder: ClassVar[bool] = True
    """Whether a storage of the format is a folder; if not, nothing is read."""
    keep_open: ClassVar[bool] = True
    """Whether files stay open between reads, as each holds many samples."""

    @property
    def server(self) -> tuple[str, str] | None:
        """Return the kind and the address of the database server that holds the samples; None if files hold them."""
        return None

    def __init__(self, path: Path) -> None:
        self.path = path
        index = existing_index(path) if self.in_folder else None
        table = _read_index(index) if index else _index_table(self.scan(path))
        files = table["file"].combine_chunks()
        self._files: list[str] = files.dictionary.to_pylist()
        self._file: npt.NDArray[np.int32] = files.indices.to_numpy()
        self._offset, self._size, self._label = (table[name].to_numpy() for name in _NUMBER_COLUMNS)
        self.excluded = int((table.schema.metadata or {}).get(_EXCLUDED_KEY, 0))
        """Number of samples in the folder that cannot be decoded and are not in its index."""
        self._open: dict[int, int] = {}

    @classmethod
    def feeds(cls, takes: type[Inputs]) -> bool:
        """Return whether networks with inputs of the class `takes` can train on the format's samples."""
        return cls.kind == takes.kind

    @property
    def samples(self) -> int:
        return len(self._size)

    @property
    def total_bytes(self) -> int:
        """Return the size of all samples, bytes."""
        return int(self._size.sum())

    @property
    def classes(self) -> int:
        """Return the number of classes: the largest label plus 1."""
        return int(self._label.max()) + 1

    def size(self, index: int) -> int:
        """Return the size of the sample, bytes."""
        return int(self._size[index])

    def extent(self, index: int) -> Extent | None:
        """Return the part of a file that a read of the sample reads; None if it is unknown or no file is read."""
        return self._extent(index)

    def label(self, index: int) -> int:
        """Return the class of the sample, a number from 0 on."""
        return int(self._label[index])

    def name(self, index: int) -> str:
        """Return the sample's name for messages."""
        extent = self._extent(index)
        return f"{extent.path}, sample at byte {extent.offset}" if self.keep_open else str(extent.path)

    def files(self) -> list[Path]:
        """Return all files that hold samples."""
        return [self.path / file for file in self._files]

    def read(self, index: int) -> bytes:
        """Read the sample as stored, without decoding.

        Raises `Unreadable` if the file system refuses, `Unavailable` if the file ends before the sample.
        """
        # Open files are found by number: building a path would take nearly as long as a read from the page cache.
        file, size = self._open.get(int(self._file[index])), int(self._size[index])
        with suppress(OSError):  # if the read fails, it is repeated below, where errors are reported
            if file is not None and len(data := os.pread(file, size, int(self._offset[index]))) == size:
                return data
        extent = self._extent(index)
        try:
            with self._descriptor(int(self._file[index]), extent.path) as file:
                data = os.pread(file, extent.size, extent.offset)
        except OSError as error:
            raise Unreadable(f"{extent.path}: cannot be read ({reason(error)}); {ADVICE}") from error
        if len(data) < extent.size:
            raise Unavailable(cut_off_message(extent.path, extent.offset + extent.size))
        return data

    def close(self) -> None:
        """Close all files that reads kept open."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _extent(self, index: int) -> Extent:
        return Extent(self.path / self._files[self._file[index]], int(self._offset[index]), self.size(index))

    @contextmanager
    def _descriptor(self, number: int, path: Path) -> Iterator[int]:
        """Yield the descriptor of a file. If two threads open the file at once, only one descriptor is kept open."""
        file = self._open.get(number)
        if file is None:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if self.keep_open and (kept := self._open.setdefault(number, file)) != file:
                os.close(file)
                file = kept
        try:
            yield file
        finally:
            if not self.keep_open:
                os.close(file)

    @classmethod
    def exists_at(cls, path: Path) -> bool:
        """Return whether the storage exists: `path` has to be a folder, except for formats without one."""
        return not cls.in_folder or path.is_dir()

    @property
    def in_memory(self) -> bool:
        """Return whether samples are read from memory, so that timed reads say nothing about a file system."""
        return not self.in_folder

    @classmethod
    @abstractmethod
    def scan(cls, path: Path) -> Iterable[IndexEntry]:
        """Find all samples below `path`, in a fixed order."""

    @abstractmethod
    def check(self, index: int, data: bytes) -> None:
        """Decode the stored bytes of the sample; raise `InputError` naming the file of a bad sample."""

    def facts(self) -> dict[str, int]:
        """Return the format's own entries of a manifest; by default ``classes``, the number of different labels."""
        return {"classes": len(np.unique(self._label))}

    @classmethod
    def synthetic(cls, samples: int, seed: int, shape: SampleShape | None) -> Iterable[Made]:
        """Yield synthetic samples, to be encoded by `stored`; equal seeds give equal samples."""
        raise NotImplementedError

    @classmethod
    def stored(cls, data: bytes, name: str, shape: SampleShape | None) -> bytes:
        """Return the bytes that the format stores for the sample `data`, which messages call `name`."""
        return data

    @classmethod
    def begin(cls, path: Path, samples: int, shape: SampleShape | None) -> None:
        """Create the new folder `path` for a set of `samples` samples (of `shape`, if the format has one)."""
        path.mkdir(parents=True)

    @classmethod
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        """Write consecutive samples, encoded by `stored`; the number of the first is `first`, a multiple of `PART`.

        A part has `PART` samples, the last part may have fewer. Parts may be written in any order, and more than once.
        """
        raise NotImplementedError

    @classmethod
    def write(cls, path: Path, new_samples: Iterable[Made], samples: int, shape: SampleShape | None = None) -> None:
        """Create the folder `path` and write all samples that `made` yields."""
        cls.begin(path, samples, shape)
        unwritten_samples = iter(new_samples)
        for first in range(0, samples, PART):
            part = enumerate(islice(unwritten_samples, PART), first)
            cls.write_part(path, first, [(cls.stored(data, f"sample {n}", shape), label) for n, (data, label) in part])

    @classmethod
    def index(cls, path: Path, excluded: Collection[int] = ()) -> None:
        """Write the index file of `path`; `excluded` are the numbers of samples that it shall not have."""
        if not cls.in_folder:
            return
        table = _index_table(entry for index, entry in enumerate(cls.scan(path)) if index not in excluded)
        table = table.replace_schema_metadata({_EXCLUDED_KEY: str(len(excluded))})
        shared_index = _shared_index_file(path)
        is_writable = os.access(path, os.W_OK)
        with atomic(path / INDEX_FILE if is_writable else shared_index) as scratch:
            pq.write_table(table, scratch)
        if is_writable:
            shared_index.unlink(missing_ok=True)


def existing_index(path: Path) -> Path | None:
    """Return the index file of the folder; None without one. A file in `INDEXES` is newer than one in the folder."""
    return next((index for index in (_shared_index_file(path), path / INDEX_FILE) if index.exists()), None)


def _shared_index_file(path: Path) -> Path:
    return (
        INDEXES / f"{hashlib.sha256(os.path.realpath(path).encode(errors='surrogateescape')).hexdigest()[:16]}.parquet"
    )


def _index_table(entries: Iterable[IndexEntry]) -> pa.Table:
    """Return index entries as an Arrow table; file names are dictionary-encoded."""
    rows = list(entries)
    try:
        files = pa.array([entry.file for entry in rows], pa.string()).dictionary_encode()
    except UnicodeEncodeError as error:
        name = error.object.encode(errors="surrogateescape")
        raise InputError(f"{name!r}: a file name that is no UTF-8; rename it (convmv renames many)") from None
    number_columns = {name: pa.array([getattr(entry, name) for entry in rows], pa.int64()) for name in _NUMBER_COLUMNS}
    return pa.table({"file": files, **number_columns})


def _read_index(path: Path) -> pa.Table:
    try:
        return pq.read_table(path).select(["file", *_NUMBER_COLUMNS])
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise Unavailable(f"{path}: not a readable index ({error}); {ADVICE}") from error
