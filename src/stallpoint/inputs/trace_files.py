"""Opening files of traces, which may be gzip'd."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

from stallpoint.errors import InputError

HEAD = 4096
"""Bytes that formats are recognised by."""


def opened(path: Path) -> IO[bytes]:
    """Return the bytes of a file, unpacked."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path) if packed else path.open("rb"))


def head(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked; `InputError` where it cannot be read."""
    try:
        with opened(path) as file:
            return file.read1(HEAD) if isinstance(file, gzip.GzipFile) else file.read(HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
