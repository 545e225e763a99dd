"""The index of an archive: its study, hardware, presets and networks, and where each cell's records are.

The index is the file ``archive.json`` at the root of the zip. A damaged or foreign zip is refused with a reason.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, convert

import stallpoint
from stallpoint.errors import InputError
from stallpoint.records.checksums import CHECKSUMS
from stallpoint.records.migrations import OLDEST_VERSION, current_settings
from stallpoint.records.tables import SCHEMA_VERSION
from stallpoint.strategies.presets import check_types, preset_from, presets_of
from stallpoint.study.cells import MAX_NAME_LENGTH, NAME, Cell
from stallpoint.study.configuration import check_plain
from stallpoint.study.kinds import IMPORTED_KINDS, cell_from_json

INDEX = "archive.json"
FORMAT = 1
"""Version of the index's format."""
RECORDS = range(OLDEST_VERSION, SCHEMA_VERSION + 1)
"""Versions of records that this program reads."""


_NameText = Annotated[str, Meta(pattern=rf"^{NAME.pattern}\Z", max_length=MAX_NAME_LENGTH)]
_PathText = Annotated[str, Meta(pattern=r"^(?!\.\.?(/|\Z))[^/\x00\\]+(/(?!\.\.?(/|\Z))[^/\x00\\]+)*\Z")]
"""A relative path that cannot leave its folder."""
_PositiveInt = Annotated[int, Meta(ge=1)]


class _OwnNetwork(Struct, forbid_unknown_fields=True):
    build: str
    image_size: _PositiveInt | UnsetType = UNSET
    sequence_length: _PositiveInt | UnsetType = UNSET
    vocabulary: _PositiveInt | UnsetType = UNSET


class _Schema(Struct):
    """Schema of an index read from an archive. Names are valid parts of paths, and no path contains ``..``."""

    study: _NameText
    hardware: dict[_NameText, _PositiveInt]
    presets: dict[_NameText, dict[str, Any]]
    shared_links: list[tuple[_NameText, _NameText]]
    own_networks: dict[_NameText, _OwnNetwork]
    networks: dict[_NameText, _PathText]
    cells: Annotated[dict[_PathText, dict[str, Any]], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Index:
    """Description of an archive."""

    study: str
    hardware: Mapping[str, int]
    """Number of nodes of each hardware entry."""
    presets: Mapping[str, Mapping[str, Any]]
    """Presets that the study defines itself: name -> settings."""
    own_networks: Mapping[str, Mapping[str, Any]]
    """Networks that the study defines itself: name -> entry under ``networks``."""
    shared_links: tuple[tuple[str, str], ...]
    """Pairs of hardware and storage in which data and gradients share a link."""
    cells: Mapping[str, Cell]
    """Folder with the records -> cell."""
    networks: Mapping[str, str]
    """Network -> file with its description."""

    def to_json(self) -> str:
        """Return the index as the file's text."""
        values = {
            "archive": FORMAT,
            "records": SCHEMA_VERSION,
            "stallpoint": stallpoint.__version__,
            "study": self.study,
            "hardware": dict(self.hardware),
            "presets": dict(self.presets),
            "shared_links": [list(pair) for pair in self.shared_links],
            "own_networks": dict(self.own_networks),
            "networks": dict(self.networks),
            "cells": {folder: json.loads(cell.to_json()) for folder, cell in self.cells.items()},
        }
        return json.dumps(values, indent=1) + "\n"


def from_json(text: str, where: str) -> Index:
    """Return the index from the file's text; raise `InputError` naming `where` if contents or versions are unknown."""
    try:
        values = json.loads(text)
        versions = {"archive": (values["archive"], [FORMAT]), "records": (values["records"], RECORDS)}
    except (json.JSONDecodeError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{where}: its {INDEX} is not the index of an archive ({error!r})") from None
    for what, (version, known) in versions.items():
        if version not in known:
            raise InputError(
                f"{where}: format {version} of its {what}, this program reads {' to '.join(map(str, known))}; it was "
                f"written by stallpoint {values.get('stallpoint')}, this is {stallpoint.__version__}: compare it with "
                "that version, or measure again"
            )
    try:
        check_plain(values)
        convert(values, _Schema)
        index = Index(
            study=values["study"],
            hardware=values["hardware"],
            presets=values["presets"],
            shared_links=tuple((hardware, storage) for hardware, storage in values["shared_links"]),
            own_networks=values["own_networks"],
            networks=values["networks"],
            cells={
                folder: cell_from_json(json.dumps(current_settings(cell, values["records"])))
                for folder, cell in values["cells"].items()
            },
        )
        _check_entries(index)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: its {INDEX} is not the index of an archive ({error})") from None
    return index


def _check_entries(index: Index) -> None:
    """Raise `InputError` if the index contradicts its cells in hardware, presets or networks."""
    presets, unnamed_networks = presets_of(index.presets), dict(index.own_networks)
    for hardware in (*(cell.hardware for cell in index.cells.values()), *dict(index.shared_links)):
        if hardware not in index.hardware:
            raise InputError(f"hardware: no {hardware}, of which there are cells or links")
    for cell in index.cells.values():
        settings = json.loads(cell.to_json())
        if "preset" in settings:
            check_types(settings["preset"], f"{cell.path}: preset")
            preset, sync = preset_from(settings["preset"]), settings["sync"]
            if sync in index.presets and preset != presets[sync] and cell.kind not in IMPORTED_KINDS:
                raise InputError(f"{cell.path}: preset {sync} is another one")
        if settings.get("own_network"):
            if index.own_networks.get(settings["network"]) != settings["own_network"]:
                raise InputError(f"{cell.path}: network {settings['network']} is another one")
            unnamed_networks.pop(settings["network"], None)
    if unnamed_networks:
        raise InputError(f"own_networks: no cell names {', '.join(unnamed_networks)}")


def read_index(folder: Path) -> Index:
    """Return the index in a folder."""
    file = folder / INDEX
    try:
        return from_json(file.read_text(encoding="utf-8"), str(folder))
    except FileNotFoundError:
        raise InputError(f"{folder}: there is no {INDEX}") from None


# --- reading an archive ---------------------------------------------------------------------------

SMALL_FILE_BYTES = 16 * 2**20
"""Maximum size, bytes, of members that may have any compression ratio."""
MAX_EXPANSION = 200
"""Maximum compression ratio of larger members; records, already compressed, stay below 10."""


@contextmanager
def open_archive(path: Path, where: str) -> Iterator[zipfile.ZipFile]:
    """Open the zip `path`. An error, also of a later read, becomes an `InputError` that begins with `where`."""
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{where}: there is no file {path}") from None
    except IsADirectoryError:
        raise InputError(f"{where}: {path} is a folder; name the zip that `snakemake archive` wrote") from None
    except (RuntimeError, NotImplementedError) as error:  # an encrypted zip, or an unknown compression
        raise InputError(f"{where}: {path} cannot be read: {error}; `snakemake archive` writes plain zips") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, OSError) as error:
        raise InputError(f"{where}: {path} is not a zip, or damaged: {error}") from None


def read_zip_index(path: Path, where: str) -> Index:
    """Return the index of the archive `path`."""
    with open_archive(path, where) as file:
        _check_sizes(file, where)
        names = set(file.namelist())
        if missing := [name for name in (INDEX, CHECKSUMS) if name not in names]:
            raise InputError(f"{where}: {path} is not an archive of stallpoint: it has no {' and no '.join(missing)}")
        return from_json(file.read(INDEX).decode(errors="replace"), f"{where}: {path}")


def _check_sizes(file: zipfile.ZipFile, where: str) -> None:
    for member in file.infolist():
        if member.file_size > SMALL_FILE_BYTES and member.file_size > MAX_EXPANSION * max(1, member.compress_size):
            raise InputError(
                f"{where}: {member.filename} would be {member.file_size:,} bytes, {MAX_EXPANSION} times its size in "
                "the archive and more: it is no record of a study"
            )
