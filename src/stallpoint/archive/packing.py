"""A folder as a zip, with checksums: equal files give equal bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

from stallpoint.archive.index import CHECKSUMS
from stallpoint.records.atomic import atomic
from stallpoint.records.seal import sha256

_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of every entry: the earliest that a zip can hold."""
_MODE = 0o100644 << 16
_FOLDER = 0o040755 << 16 | 0x10
_UNIX = 3


def files_in(folder: Path) -> list[str]:
    """Return every file below `folder`, by relative path, sorted."""
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def write_checksums(folder: Path) -> None:
    """Write the checksums of every other file, for ``sha256sum --check``."""
    files = [file for file in files_in(folder) if file != CHECKSUMS]
    lines = [f"{sha256(folder / file)}  {file}\n" for file in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def pack(folder: Path, target: Path, folders: Iterable[str] = ()) -> None:
    """Write every file of `folder` to the zip `target`, atomically; `folders` get entries of their own."""
    with atomic(target) as scratch, zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name in sorted(folders):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system, entry.external_attr = _UNIX, _FOLDER
            file.writestr(entry, b"")
        for name in files_in(folder):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system, entry.external_attr = _UNIX, _MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.file_size = (folder / name).stat().st_size
            with (folder / name).open("rb") as content, file.open(entry, "w") as packed:
                while block := content.read(1 << 20):
                    packed.write(block)
