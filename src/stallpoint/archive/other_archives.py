"""Archives that are read: zips, refused by name where they are damaged or none of stallpoint's."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stallpoint.archive.index import INDEX, Index, from_json
from stallpoint.errors import InputError
from stallpoint.records.checksums import CHECKSUMS

SMALL = 16 * 2**20
"""Bytes up to which any compression ratio of a member is accepted."""
MAX_EXPANSION = 200
"""Largest ratio of a larger member; records are compressed already, and grow less than tenfold."""


@contextmanager
def opened(path: Path, where: str) -> Iterator[zipfile.ZipFile]:
    """Open the zip `path`; raise `InputError` naming its defect, also while reading."""
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{where}: there is no file {path}") from None
    except IsADirectoryError:
        raise InputError(f"{where}: {path} is a folder; name the zip that `snakemake archive` wrote") from None
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or compressed by another method
        raise InputError(f"{where}: {path} cannot be read: {error}; `snakemake archive` writes plain zips") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, OSError) as error:
        raise InputError(f"{where}: {path} is not a zip, or damaged: {error}") from None


def read_zip_index(path: Path, where: str) -> Index:
    """Return the index of the archive `path`."""
    with opened(path, where) as file:
        _check_sizes(file, where)
        names = set(file.namelist())
        if missing := [name for name in (INDEX, CHECKSUMS) if name not in names]:
            raise InputError(f"{where}: {path} is not an archive of stallpoint: it has no {' and no '.join(missing)}")
        return from_json(file.read(INDEX).decode(errors="replace"), f"{where}: {path}")


def _check_sizes(file: zipfile.ZipFile, where: str) -> None:
    for member in file.infolist():
        if member.file_size > SMALL and member.file_size > MAX_EXPANSION * max(1, member.compress_size):
            raise InputError(
                f"{where}: {member.filename} would be {member.file_size:,} bytes, {MAX_EXPANSION} times its size in "
                "the archive and more: it is no record of a study"
            )
