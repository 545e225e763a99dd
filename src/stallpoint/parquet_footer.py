"""A checksum of the footer of Parquet files, which the format lacks: pages have one, what says where they are has none.

It stands right before the footer, where no reader looks: a footer is found from the end of a file, all else by its
place from the beginning (https://parquet.apache.org/docs/file-format). Any reader reads such a file as any other.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_SIGN = b"stallpoint footer sha256"
_SUM = hashlib.sha256().digest_size
_END = 8
"""Bytes after the footer: its length, and PAR1."""


def seal(path: Path) -> None:
    """Put the checksum into a file just written, which must be a Parquet file without one."""
    with path.open("r+b") as file:
        start, footer = _footer(file.fileno())
        file.seek(start)
        file.write(_SIGN + hashlib.sha256(footer).digest() + footer)


def is_damaged(path: Path) -> bool:
    """Whether the footer is not what was written; files without a checksum are not known to be damaged."""
    with path.open("rb") as file:
        start, footer = _footer(file.fileno())
        before = os.pread(file.fileno(), len(_SIGN) + _SUM, max(0, start - len(_SIGN) - _SUM))
    return before.startswith(_SIGN) and before != _SIGN + hashlib.sha256(footer).digest()


def _footer(file: int) -> tuple[int, bytes]:
    """Where the footer begins, and all from there; of a file that is too short for the length it says, nothing."""
    size = os.fstat(file).st_size
    length = int.from_bytes(os.pread(file, 4, max(0, size - _END)), "little") + _END
    if length > size:
        return 0, b""
    return size - length, os.pread(file, length, size - length)
