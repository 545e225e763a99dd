"""A training set as every format shows it: samples that are byte ranges of files, each with a label."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Inputs
from stallpoint.parquet import atomic

INDEX_FILE = "stallpoint-index.parquet"

_NUMBERS = ("offset", "size", "label")


REPAIR = "to look through the storage again, and to make a generated one anew: snakemake -R prepare_storage"


@dataclass(frozen=True)
class Extent:
    """The bytes of one sample: `size` bytes from `offset` on in the file `path`."""

    path: Path
    offset: int
    size: int


@dataclass(frozen=True)
class Entry:
    """One line of an index: a sample's extent (file relative to the storage) and label."""

    file: str
    offset: int
    size: int
    label: int


@dataclass(frozen=True)
class Shape(ABC):
    """The shape of samples that are generated; its fields are keys of a storage entry."""

    @abstractmethod
    def suits(self, takes: Inputs) -> bool:
        """Whether samples of this shape are enough for a network that takes `takes`."""


class SampleSet(ABC):
    """The samples of a storage.

    What lies where is found once and, when the folder can be written, kept in its index file:
    looking through a million files of a network file system takes minutes.
    """

    kind: ClassVar[str]
    """What the samples are: ``images`` or ``tokens``, as networks take them."""
    layout: ClassVar[str]
    """What the format expects in its folder, for messages."""
    shape: ClassVar[type[Shape] | None] = None
    """What generated samples can be asked to be; None: they are of many shapes, as ImageNet's are."""
    keep_open: ClassVar[bool]
    """Whether files stay open between reads: they hold many samples each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        index = path / INDEX_FILE
        table = _read_index(index) if index.exists() else _to_table(self.scan(path))
        files = table["file"].combine_chunks()
        self._files: list[str] = files.dictionary.to_pylist()
        self._file: npt.NDArray[np.int32] = files.indices.to_numpy()
        self._offset, self._size, self._label = (table[name].to_numpy() for name in ("offset", "size", "label"))
        self._open: dict[int, int] = {}

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self._size)

    @property
    def total_bytes(self) -> int:
        """Size of all samples together."""
        return int(self._size.sum())

    def extent(self, index: int) -> Extent:
        """Where the sample lies."""
        return Extent(self.path / self._files[self._file[index]], int(self._offset[index]), int(self._size[index]))

    def label(self, index: int) -> int:
        """Class of the sample, from 0."""
        return int(self._label[index])

    def files(self) -> list[Path]:
        """All files that hold samples."""
        return [self.path / file for file in self._files]

    def read(self, index: int) -> bytes:
        """The sample as it is stored: input only, no decoding."""
        # Of an open file no path is made: that would take longer than much of a read from the page cache.
        file, size = self._open.get(int(self._file[index])), int(self._size[index])
        with suppress(OSError):  # which is said below
            if file is not None and len(data := os.pread(file, size, int(self._offset[index]))) == size:
                return data
        extent = self.extent(index)
        try:
            with self._descriptor(int(self._file[index]), extent.path) as file:
                data = os.pread(file, extent.size, extent.offset)
        except OSError as error:
            raise InputError(f"{extent.path}: cannot be read ({error.strerror}); {REPAIR}") from error
        if len(data) < extent.size:
            raise InputError(f"{extent.path}: ends before byte {extent.offset + extent.size}; {REPAIR}")
        return data

    def close(self) -> None:
        """Close the files kept open."""
        while self._open:
            os.close(self._open.popitem()[1])

    @contextmanager
    def _descriptor(self, number: int, path: Path) -> Iterator[int]:
        """The open file; ``setdefault`` keeps one descriptor where two threads open at once."""
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

    @staticmethod
    @abstractmethod
    def scan(path: Path) -> Iterable[Entry]:
        """Find all samples below `path`, in a fixed order."""

    @abstractmethod
    def check(self, index: int, data: bytes) -> None:
        """Decode the sample from its stored bytes; `InputError` names the file of a bad one."""

    @abstractmethod
    def facts(self) -> dict[str, int]:
        """What the format knows of its samples beside their number and sizes."""

    @classmethod
    def index(cls, path: Path) -> None:
        """Look through `path` and keep what was found in its index file, where the folder can be written."""
        if os.access(path, os.W_OK):
            table = _to_table(cls.scan(path))
            with atomic(path / INDEX_FILE) as scratch:
                pq.write_table(table, scratch)


def _to_table(entries: Iterable[Entry]) -> pa.Table:
    """An index as an Arrow table, file names as a dictionary."""
    rows = list(entries)
    files = pa.array([entry.file for entry in rows], pa.string()).dictionary_encode()
    numbers = {name: pa.array([getattr(entry, name) for entry in rows], pa.int64()) for name in _NUMBERS}
    return pa.table({"file": files, **numbers})


def _read_index(path: Path) -> pa.Table:
    try:
        return pq.read_table(path).select(["file", *_NUMBERS])
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise InputError(f"{path}: not a readable index ({error}); {REPAIR}") from error
