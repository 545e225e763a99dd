"""A checksum over the whole of a Parquet file: the format's own covers pages, but not what says where and how they are.

It stands right before the footer, where no reader looks: a footer is found from the end of a file, all else by its
place from the beginning (https://parquet.apache.org/docs/file-format). Any reader reads such a file as any other.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

_SIGN = b"stallpoint sha256"
_LENGTH = len(_SIGN) + hashlib.sha256().digest_size
_END = 8
"""Bytes after the footer: its length, and PAR1."""
_PIECE = 2**20


def seal(path: Path) -> None:
    """Put the checksum into a file just written, which must be a Parquet file without one."""
    with path.open("r+b") as file:
        start, footer = _footer(file)
        digest = _digest(file, start, footer)
        file.seek(start)
        file.write(_SIGN + digest + footer)


def is_damaged(path: Path) -> bool:
    """Whether a file is not what was written; one without a checksum is not known to be damaged."""
    with path.open("rb") as file:
        start, footer = _footer(file)
        found = os.pread(file.fileno(), _LENGTH, max(0, start - _LENGTH))
        return found.startswith(_SIGN) and found != _SIGN + _digest(file, start - _LENGTH, footer)


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Where the footer begins, and all from there; of a file that is too short for the length it says, nothing."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(os.pread(file.fileno(), 4, max(0, size - _END)), "little") + _END
    if length > size:
        return 0, b""
    return size - length, os.pread(file.fileno(), length, size - length)


def _digest(file: BinaryIO, start: int, footer: bytes) -> bytes:
    """Over the first `start` bytes, and the footer."""
    file.seek(0)
    whole = hashlib.sha256()
    for place in range(0, start, _PIECE):
        whole.update(file.read(min(_PIECE, start - place)))
    whole.update(footer)
    return whole.digest()
