"""Conclusions of studies, from a results folder, an archive (RO-Crate, zipped or not), or their JSON file; and folders
with records of a probe."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from stallpoint.base.section import Section
from stallpoint.base.section_texts import sections_from_json
from stallpoint.errors import InputError, reason
from stallpoint.inputs.documents import head
from stallpoint.records.checksums import CHECKSUMS, verified_reader

FILE = "conclusions.json"
MAX_BYTES = 64 * 2**20
MAX_UNPACKED, MIN_UNPACKED, MAX_RATIO = 16 * 2**30, 2**30, 50
"""Limits of a zip's unpacked bytes: the maximum, the size that is always allowed, and the maximum ratio to the zip."""
_MEMBER = re.compile(rf"results/([^/]+)/{re.escape(FILE)}")
_ZIP = b"PK\x03\x04"
_HIDDEN = re.compile(r"(^|/)(\.|__MACOSX/)")
_CRATE = "ro-crate-metadata.json"
_OTHERS = ("xl/workbook.xml", _CRATE)
"""Ends of members' names in workbooks, and in archives without conclusions."""
AGAIN = "run `snakemake` for the study"
_BEGIN = re.compile(rb'\s*\{\s*"(version"\s*:\s*\d+\s*,\s*"sections|findings)"\s*:')
"""Beginning of a conclusions file, now and before conclusions were sections."""


@dataclass(frozen=True)
class StudyResults:
    """Conclusions of a study."""

    name: str
    sections: Sequence[Section]


def read(path: Path) -> list[StudyResults] | None:
    """Return the conclusions at a path; None if it is not a study, `InputError` if a study has none."""
    if path.is_dir():
        return _folder_results(path)
    begin = head(path)
    if begin.startswith(_ZIP):
        return _zip_results(path)
    if _BEGIN.match(begin):
        return [_file_results(path)]
    return None


def is_study(path: Path) -> bool:
    """Return whether a folder belongs to a study, finished or not, or contains finished studies."""
    return bool(_conclusions(path)) or any((path / name).is_dir() for name in ("tables", "raw"))


def _conclusions(path: Path) -> list[Path]:
    return [file for file in (path / FILE, *sorted(path.glob(f"results/*/{FILE}"))) if file.is_file()]


def _folder_results(path: Path) -> list[StudyResults] | None:
    if not is_study(path):
        return None
    if files := _conclusions(path):
        return [_file_results(file) for file in files]
    raise InputError(f"{path}: a study without {FILE}: it is not finished; {AGAIN}")


def _file_results(file: Path) -> StudyResults:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {reason(error)}") from None
    return _parsed(file.absolute().parent.name, content, str(file))


def unpack(path: Path, folder: Path) -> list[Path]:
    """Unpack a zip of logs or traces into `folder` and return its files; do nothing for a study's archive or no zip."""
    if path.is_dir() or not head(path).startswith(_ZIP):
        return []
    with _opened(path) as file:
        names = file.namelist()
        if any(_MEMBER.fullmatch(name) or name.endswith(_OTHERS) for name in names):
            return []
        size = sum(member.file_size for member in file.infolist())
        if size > min(MAX_UNPACKED, max(MAX_RATIO * path.stat().st_size, MIN_UNPACKED)):
            raise InputError(f"{path}: {size / 2**30:.1f} GiB when unpacked; name the files that are to be read")
        try:
            file.extractall(folder, [name for name in names if not _HIDDEN.search(name)])
        except OSError as error:
            raise InputError(f"{path}: cannot be unpacked in {gettempdir()} (TMPDIR): {reason(error)}") from None
    return sorted(file for file in folder.rglob("*") if file.is_file())


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip; any damage raises `InputError`."""
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: a damaged zip ({error}); copy the archive again") from None


def _zip_results(path: Path) -> list[StudyResults]:
    with _opened(path) as file:
        names = file.namelist()
        members = {name: found[1] for name in names if (found := _MEMBER.fullmatch(name))}
        if "xl/workbook.xml" in names:
            raise InputError(f"{path}: a workbook of Excel; save its sheet as CSV, or paste the cells into a text file")
        if not members:
            raise InputError(
                f"{path}: a zip without results/STUDY/{FILE}: no archive of a study, or one whose conclusions held "
                "names; unpack it and run `snakemake`"
            )
        for member in file.infolist():
            if member.filename in (*members, CHECKSUMS) and member.file_size > MAX_BYTES:
                raise InputError(f"{path}: {member.filename} of more than {MAX_BYTES // 2**20} MiB is none of a study")
        is_archive = any(name in (CHECKSUMS, _CRATE) for name in names)  # else a zipped results folder
        read = verified_reader(file, str(path)) if is_archive else file.read
        return [_parsed(study, read(member), f"{path}: {member}") for member, study in members.items()]


def _parsed(name: str, content: bytes, where: str) -> StudyResults:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: no JSON ({error}); {AGAIN}") from None
    try:
        return StudyResults(name, sections_from_json(found))
    except ValueError as error:
        raise InputError(f"{where}: no conclusions of this version ({error}); {AGAIN}") from None


def probe_folder(path: Path) -> Path | None:
    """Return the folder with all ranks' records, which is `path` or has it among its ranks'; None for other paths."""
    parts = path.absolute().parts
    above = [Path(*parts[:place]) for place, part in enumerate(parts) if part.startswith("rank~")][-1:]
    of_ranks = [one for one in (path, *above) if one.is_dir() and any(one.glob("rank~*"))]
    if not of_ranks:
        return None
    from stallpoint.records.tables import PROBES  # a late import: loads the reader of Parquet

    return next((folder for folder in of_ranks if any(folder.glob(f"rank~*/*/{PROBES.name}.parquet"))), None)
