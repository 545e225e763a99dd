"""Format ``lmdb``: an LMDB of Caffe's Datum messages, as ``convert_imageset --encoded`` makes it.

Each value of the database is a message Datum, of which caffe.proto numbers the fields: an encoded image (4), its label
(5) and whether it is encoded (7). LMDB maps its file into memory, and hides where in the file a value is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from stallpoint.errors import InputError, Unavailable, Unreadable
from stallpoint.records.protobuf import fields, integer_field, message
from stallpoint.storage.images import EncodedImages
from stallpoint.storage.samples import ADVICE, IndexEntry, Made

LMDB_FILE = "data.mdb"
_DATA, _LABEL, _ENCODED = 4, 5, 7
_SPARE_BYTES = 2**26
"""Bytes of the map beyond the samples, for LMDB's own pages."""
_WRITE_LOCK = threading.Lock()
"""Lock of writers: a process may open an LMDB only once, for one writer."""


class LmdbImages(EncodedImages):
    """Images in an LMDB. The index holds each image's key, where other formats have a file name."""

    layout = f"{LMDB_FILE}, an LMDB of Caffe's Datum with encoded images"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._opened: Any = None
        self._first = threading.Lock()

    @classmethod
    @override
    def scan(cls, path: Path) -> Iterator[IndexEntry]:
        """Yield all values, in the order of their keys; `offset` is the position of the image in its value."""
        if not (path / LMDB_FILE).exists():
            return
        environment = _SHARED_ENVIRONMENTS.open(path)
        try:
            with environment.begin(buffers=True) as transaction:
                for key, value in transaction.cursor():
                    name = bytes(key).decode("latin-1")
                    try:
                        datum: dict[int, Any] = dict(fields(value, (0, len(value))))
                        if not datum.get(_ENCODED):
                            raise ValueError("no Datum with an encoded image")
                        begin, end = datum[_DATA]
                        yield IndexEntry(name, begin, end - begin, int(datum.get(_LABEL, 0)))
                    except (ValueError, KeyError, TypeError) as error:
                        raise InputError(f"{path / LMDB_FILE}, key {name}: {error}; expected {cls.layout}") from None
        finally:
            _SHARED_ENVIRONMENTS.close(path)

    @override
    def read(self, index: int) -> bytes:
        import lmdb

        key, begin = self._files[self._file[index]].encode("latin-1"), int(self._offset[index])
        try:
            with self._environment.begin(buffers=True) as transaction:
                value = transaction.get(key)
                if value is None or len(value) < begin + self.size(index):
                    raise Unavailable(f"{self.name(index)}: is not there any more, or shorter; {ADVICE}")
                return bytes(value[begin : begin + self.size(index)])
        except lmdb.Error as error:
            raise Unreadable(f"{self.name(index)}: cannot be read ({error}); {ADVICE}") from error

    @override
    def extent(self, index: int) -> None:
        """Return None, because LMDB hides where in its file a value is."""

    @override
    def name(self, index: int) -> str:
        return f"{self.path / LMDB_FILE}, key {self._files[self._file[index]]}"

    @override
    def files(self) -> list[Path]:
        return [self.path / LMDB_FILE]

    @property
    def _environment(self) -> Any:
        """Open the LMDB in the first thread that reads."""
        with self._first:
            self._opened = self._opened or _SHARED_ENVIRONMENTS.open(self.path)
            return self._opened

    @override
    def close(self) -> None:
        if self._opened:
            _SHARED_ENVIRONMENTS.close(self.path)
            self._opened = None

    @classmethod
    @override
    def write_part(cls, path: Path, first: int, part: Sequence[Made]) -> None:
        """Write the part in one transaction; the keys are the numbers of the samples."""
        import lmdb

        file = path / LMDB_FILE
        with _WRITE_LOCK:
            used_bytes = file.stat().st_size if file.exists() else 0
            size = used_bytes + 2 * sum(len(data) for data, _ in part) + _SPARE_BYTES
            with lmdb.open(str(path), map_size=size, lock=False) as environment, environment.begin(write=True) as txn:
                for number, (data, label) in enumerate(part, first):
                    datum = message(_DATA, data) + integer_field(_LABEL, label) + integer_field(_ENCODED, 1)
                    txn.put(f"{number:08d}".encode(), datum)


class _SharedEnvironments:
    """LMDBs that are open for reading. All readers of an LMDB share it, as a process may open it only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Any, int]] = {}

    def open(self, path: Path) -> Any:
        """Return the LMDB in folder `path`, which the caller must `close`."""
        with self._lock:
            key = os.path.realpath(path)
            environment, users = self._open.get(key) or (_open_environment(path), 0)
            self._open[key] = environment, users + 1
            return environment

    def close(self, path: Path) -> None:
        """Count a reader of the LMDB as gone; close the LMDB after the last reader."""
        with self._lock:
            key = os.path.realpath(path)
            environment, users = self._open.pop(key)
            if users > 1:
                self._open[key] = environment, users - 1
            else:
                environment.close()


_SHARED_ENVIRONMENTS = _SharedEnvironments()


def _open_environment(path: Path) -> Any:
    """Open the LMDB for reading; raise `InputError` for a foreign or truncated file, which would crash the process."""
    import lmdb

    try:
        environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False, create=False)
    except lmdb.Error as error:
        raise InputError(f"{path / LMDB_FILE}: not a readable LMDB ({error})") from None
    needed_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if (path / LMDB_FILE).stat().st_size < needed_bytes:
        environment.close()
        raise InputError(f"{path / LMDB_FILE}: has less than its {needed_bytes} bytes; it is cut off")
    return environment
