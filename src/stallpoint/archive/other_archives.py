"""Archives of other studies as hardware of this one: entries under ``archives``, and the import of their records."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from stallpoint.archive.index import INDEX, Index, from_json, read_index
from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.records.checksums import CHECKSUMS, verified
from stallpoint.records.parquet import open_file, read, read_rows, write
from stallpoint.records.tables import NETWORK_LAYERS, RUNS, TABLES
from stallpoint.study.cells import Cell
from stallpoint.study.completeness import Incomplete, Record
from stallpoint.study.study import Archive, Archived

SMALL = 16 * 2**20
"""Bytes up to which any compression ratio of a member is accepted."""
MAX_EXPANSION = 200
"""Largest ratio of a larger member; records are compressed already, and grow less than tenfold."""


def further(config: Mapping[str, Any]) -> tuple[Archive, ...]:
    """Return the archives that a study names; raise `InputError` naming an unusable entry.

    In an unpacked archive they lie among the results already, unpacked.
    """
    archives = []
    for position, entry in enumerate(config["archives"]):
        where = f"archives[{position}]"
        entry = {"path": entry} if isinstance(entry, str) else entry
        path = Path(entry["path"])
        if config["archived"]:
            folder = Path("results", config["study"], "archives", entry["name"])
            archives.append(_taken(entry["name"], folder, read_index(folder)))
        else:
            index = read_zip_index(path, where)
            name = entry.get("name", index.study)
            archives.append(_taken(name, path, index.with_prefix(name)))
    _check(archives, config)
    return tuple(archives)


def _taken(name: str, path: Path, index: Index) -> Archive:
    return Archive(name=name, path=path, **{one.name: getattr(index, one.name) for one in fields(Archived)})


def _check(archives: Sequence[Archive], config: Mapping[str, Any]) -> None:
    """Raise `InputError` where two have one name."""
    owners = dict.fromkeys(config["hardware"], "the study")
    presets: dict[str, Any] = dict(config["presets"])
    networks: dict[str, Any] = dict(config["networks"])
    for position, archive in enumerate(archives):
        where = f"archives[{position}]"
        for hardware in archive.hardware:
            if hardware in owners:
                raise InputError(
                    f"{where}: hardware {hardware} is already in {owners[hardware]}; "
                    f"give the archive a name of its own: {{path: {archive.path}, name: ...}}"
                )
            owners[hardware] = where
        for what, known, others in (
            ("preset", presets, archive.presets),
            ("network", networks, archive.own_networks),
        ):
            for name, definition in others.items():
                if known.setdefault(name, definition) != definition:
                    raise InputError(
                        f"{where}: {what} {name} is something else there ({definition}) than here ({known[name]}); "
                        "rename it in this study"
                    )


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


def unpack(name: str, path: Path, folder: Path) -> None:
    """Write the records of the archive `path` to `folder`, as hardware prefixed by `name`."""
    where = f"archive {path}"
    index = read_zip_index(path, where)
    ours = index.with_prefix(name)
    with opened(path, where) as file, atomic(folder) as scratch:
        read = verified(file, where)
        members: dict[str, list[str]] = {}
        for member in sorted(file.namelist()):
            members.setdefault(str(PurePosixPath(member).parent), []).append(member)
        for (source, was), (target, cell) in zip(index.cells.items(), ours.cells.items(), strict=True):
            records = members.get(source, [])
            if f"{source}/runs.parquet" not in records:
                raise InputError(f"{where}: it has no records of {was.path}")
            for member in records:
                _take(read(member), was, cell, scratch / target / PurePosixPath(member).name, f"{where}: {member}")
            _check_record(scratch / target, cell, f"{where}: {source}")
        for network, member in index.networks.items():
            described = scratch / ours.networks[network]
            described.parent.mkdir(parents=True, exist_ok=True)
            described.write_bytes(read(member))
            _check_network(described, network, f"{where}: {member}")
        (scratch / INDEX).write_text(ours.to_json(), encoding="utf-8")


def _check_record(folder: Path, cell: Cell, where: str) -> None:
    """Raise `InputError` unless the folder holds the complete record of the cell."""
    file = folder / f"{RUNS.name}.parquet"
    runs = read(RUNS, file).to_pylist()
    try:
        if len(runs) != 1:
            raise Incomplete(file, f"{len(runs)} rows, one is expected", "")
        record = Record.of(folder, runs[0])
        if record.cell != cell:
            raise Incomplete(file, "settings are those of another cell", "")
        record.check_all()
    except Incomplete as error:
        changed = "the archive was changed, or is not whole"
        raise InputError(f"{where}: {error.file.name}: {error.why}; {changed}") from None


@contextmanager
def _named(file: Path, where: str) -> Iterator[None]:
    """Replace the path of the unpacked `file`, which is temporary, by `where` in an `InputError`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {str(error).removeprefix(f'{file}: ')}") from None


def _check_network(file: Path, network: str, where: str) -> None:
    """Raise `InputError` unless the file describes the layers of this network."""
    with _named(file, where):
        rows = read(NETWORK_LAYERS, file).to_pylist()
    numbers = [value for row in rows for value in row.values() if isinstance(value, int | float)]
    if any(row["network"] != network for row in rows) or not all(0 <= number < math.inf for number in numbers):
        raise InputError(f"{where}: it does not describe the layers of network {network}; the archive was changed")


def record_folders(folder: Path) -> list[Path]:
    """Return the folders with the records of an unpacked archive."""
    return [folder / column for column in read_index(folder).cells]


def _take(data: bytes, was: Cell, cell: Cell, target: Path, where: str) -> None:
    """Write one record of the cell `was` as one of `cell`, the same on hardware of another name."""
    table = TABLES.get(target.stem)
    if table is None:
        raise InputError(f"{where}: stallpoint writes no record of this name; the archive was changed")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    with _named(target, where), open_file(table, target) as file:
        rows = read_rows(file, target)
    changes = {"cell": cell.path, "hardware": cell.hardware}
    for name, own in {"cell": was.path, "hardware": was.hardware}.items():
        if name in rows.column_names and (others := set(rows[name].unique().to_pylist()) - {own}):
            raise InputError(f"{where}: it holds records of {others.pop()!r}, not of {own}")
    if "settings" in rows.column_names:
        if rows.num_rows != 1:
            raise InputError(f"{where}: {rows.num_rows} rows; a record has one")
        settings = rows["settings"][0].as_py()
        changes["settings"] = json.dumps({**json.loads(settings), "hardware": cell.hardware}, separators=(",", ":"))
    for name in set(changes) & set(rows.column_names):
        column = rows.schema.get_field_index(name)
        values = pa.repeat(pa.scalar(changes[name], rows.schema.field(name).type), rows.num_rows)
        rows = rows.set_column(column, rows.schema.field(name), values)
    write(table, rows, target)
