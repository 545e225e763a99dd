"""Checksum of a complete Parquet file: the format's own checksums cover pages, but not the metadata.

The checksum is right before the footer, where it hinders no Parquet reader: readers find the footer from the file's end
and all other parts by offsets from the beginning (https://parquet.apache.org/docs/file-format).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

_SIGNATURE = b"stallpoint sha256"
_SEAL_BYTES = len(_SIGNATURE) + hashlib.sha256().digest_size
_END_BYTES = 8
"""Number of bytes after the footer: its length, and the letters PAR1."""
_CHUNK_BYTES = 2**20


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def seal(path: Path) -> None:
    """Insert a checksum into a Parquet file that has none."""
    with path.open("r+b") as file:
        offset, footer = _footer(file)
        digest = _digest(file, offset, footer)
        file.seek(offset)
        file.write(_SIGNATURE + digest + footer)


def is_damaged(path: Path) -> bool:
    """Return whether a file has a checksum that does not fit its content."""
    with path.open("rb") as file:
        offset, footer = _footer(file)
        found = os.pread(file.fileno(), _SEAL_BYTES, max(0, offset - _SEAL_BYTES))
        return found.startswith(_SIGNATURE) and found != _SIGNATURE + _digest(file, offset - _SEAL_BYTES, footer)


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Return the footer's offset and bytes; no bytes if the file is too short for the footer's length at its end."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(os.pread(file.fileno(), 4, max(0, size - _END_BYTES)), "little") + _END_BYTES
    if length > size:
        return 0, b""
    return size - length, os.pread(file.fileno(), length, size - length)


def _digest(file: BinaryIO, footer_offset: int, footer: bytes) -> bytes:
    """Return the checksum of the file's bytes before `footer_offset` and of the footer."""
    file.seek(0)
    digest = hashlib.sha256()
    for offset in range(0, footer_offset, _CHUNK_BYTES):
        digest.update(file.read(min(_CHUNK_BYTES, footer_offset - offset)))
    digest.update(footer)
    return digest.digest()
