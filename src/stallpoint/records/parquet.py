"""Parquet files of records, written atomically, and checked when read."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.records.migrations import ADDED_COLUMNS, OLDEST_VERSION, is_readable, migrate
from stallpoint.records.seal import is_damaged, seal
from stallpoint.records.tables import SCHEMA_VERSION, TABLES, TEXT, Table

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = pa.Table | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def to_arrow(table: Table, rows: Rows) -> pa.Table:
    """Return rows as an Arrow table with the columns of `table`; raise `InputError` for missing or other columns."""
    if isinstance(rows, Sequence):
        rows = {column.name: [row[column.name] for row in rows] for column in table.columns}
    columns = rows.column_names if isinstance(rows, pa.Table) else list(rows)
    expected_columns = table.names
    if wrong_columns := sorted(set(columns) ^ set(expected_columns)):
        raise InputError(f"table {table.name}: missing or unknown columns {wrong_columns}")
    if isinstance(rows, pa.Table):
        return rows.select(expected_columns).cast(table.schema)
    return pa.table({name: rows[name] for name in expected_columns}, schema=table.schema)


def write(table: Table, rows: Rows, path: Path) -> None:
    """Write `rows` to the Parquet file `path`, atomically."""
    data = to_arrow(table, rows)
    with atomic(path) as scratch:
        _write_checked(data, scratch)


def _write_checked(data: pa.Table, path: Path) -> None:
    """Write a Parquet file with a checksum, by which readers find a flipped bit."""
    pq.write_table(data, path, compression="zstd")
    seal(path)


def write_cell(folder: Path, tables: Mapping[str, Rows]) -> None:
    """Write a cell's folder with one file for each table, atomically."""
    data = {name: to_arrow(TABLES[name], rows) for name, rows in tables.items()}
    with atomic(folder) as scratch:
        scratch.mkdir()
        for name, arrow in data.items():
            _write_checked(arrow, scratch / f"{name}.parquet")


_DAMAGE_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Errors of reading damaged files."""


class MigratedFile(pq.ParquetFile):  # type: ignore[misc]
    """A record of an earlier version, migrated in memory to the present version."""

    def __init__(self, table: Table, file: pq.ParquetFile, version: int) -> None:
        buffer = pa.BufferOutputStream()
        with file:
            pq.write_table(migrate(table, file.read(), version), buffer)
        super().__init__(pa.BufferReader(buffer.getvalue()))


def open_file(
    table: Table, path: Path, advice: str = "delete it and run the cell again", columns: Collection[str] | None = None
) -> pq.ParquetFile:
    """Open a record; raise `InputError` for an invalid file with the reason, and with the `advice`.

    A record of an earlier version is migrated (`stallpoint.records.migrations`). The file must have exactly the columns
    of its table; if `columns` are given, at least these columns.
    """
    try:
        if is_damaged(path):
            raise InputError(f"{path}: damaged, it is not what was written; {advice}")
        file = pq.ParquetFile(path)
        version = (file.schema_arrow.metadata or {}).get(b"stallpoint_schema", b"none").decode()
        missing_columns = {*ADDED_COLUMNS.get(table.name, ())} - {*file.schema_arrow.names}
        if is_readable(version) and (version != str(SCHEMA_VERSION) or missing_columns):
            file, version = MigratedFile(table, file, int(version)), str(SCHEMA_VERSION)
        types = {field.name: field.type for field in file.schema_arrow}
    except FileNotFoundError:
        raise InputError(f"{path}: no such record; {advice}") from None
    except _DAMAGE_ERRORS as error:
        raise InputError(f"{path}: truncated or not a Parquet file ({error}); {advice}") from None
    if version != str(SCHEMA_VERSION):
        raise InputError(
            f"{path}: schema version {version}, this program reads {OLDEST_VERSION} to {SCHEMA_VERSION}; "
            f"{_repeat_commands(path) or advice}, or use the version that wrote it"
        )
    expected = {column.name: column.type for column in table.columns}
    if wrong := sorted(set(types) ^ set(expected) if columns is None else set(columns) - set(types)):
        raise InputError(f"{path}: no record of {table.name}: missing or unknown columns {wrong}; {advice}")
    if wrong := [f"{name} ({types[name]})" for name in expected if types.get(name, expected[name]) != expected[name]]:
        raise InputError(f"{path}: no record of {table.name}: columns of another type {wrong}; {advice}")
    return file


def _repeat_commands(path: Path) -> str:
    """Return advice to delete a study's unreadable old records and run it again; empty for files outside of studies."""
    parts = path.parts
    if "results" not in parts[:-2]:
        return ""
    study_folder = Path(*parts[: parts.index("results") + 2])
    return f"rm -r {study_folder / 'visits'} {study_folder / 'raw'} and run again"


def read(table: Table, path: Path) -> pa.Table:
    """Read a record as an Arrow table (``.to_pandas()`` for a data frame)."""
    with open_file(table, path) as file:
        return read_rows(file, path).select(table.names)


def read_rows(file: pq.ParquetFile, path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read all rows of an open record; raise `InputError` naming a file that cannot be read to its end."""
    try:
        return file.read(columns=columns)
    except _DAMAGE_ERRORS as error:
        raise InputError(f"{path}: damaged ({error}); delete it and run the cell again") from None


def files_of(table: Table, folders: Iterable[Path]) -> list[Path]:
    """Return the files of `table` in the given cells' folders, in order; cells that could not run have no file."""
    return [file for folder in folders if (file := folder / f"{table.name}.parquet").exists()]


def read_frames(
    tables: Iterable[Table], files: Mapping[str, str | Path | Sequence[str | Path]]
) -> dict[str, pd.DataFrame]:
    """Return the `tables` as data frames by name; `files` has one path, or several, for each table."""

    def frame(table: Table) -> pd.DataFrame:
        paths = files[table.name]
        parts = [paths] if isinstance(paths, str | Path) else paths
        tables_read = [read(table, Path(part)) for part in parts]
        found: pd.DataFrame = pa.concat_tables(tables_read or [table.schema.empty_table()]).to_pandas()
        return found

    return {table.name: frame(table) for table in tables}


ROWS_AT_ONCE = 200_000
"""Number of rows read at once; a data frame has some hundred bytes for each row."""
_BATCH_ROWS = 1 << 16


def frames_of_cells(
    columns: Mapping[Table, Sequence[str] | None],
    files: Mapping[str, str | Path],
    cells: Iterable[str],
    in_parts: Mapping[Table, Sequence[str]],
) -> Iterator[dict[str, Any]]:
    """Yield data frames by table, each time for a few complete cells with about `ROWS_AT_ONCE` rows together.

    `columns` are the columns to be read of each table (None: all), `files` the path of each table. The rows of a cell
    must be adjacent, and cells in the order of `cells`, as `collect` writes them; `InputError` names a file with
    another order. In the tables of `in_parts` a cell may be larger than memory. Such a table has an iterator of frames
    in place of a frame, and the caller must exhaust the iterator before the next cells. Successive rows with equal
    values in the columns that `in_parts` gives are in one frame. Texts in such a frame are categories.
    """
    with ExitStack() as stack:
        readers = {
            table: _CellReader(
                stack.enter_context(_table_file(table, files[table.name], table in in_parts)), files[table.name], wanted
            )
            for table, wanted in columns.items()
        }
        frame_readers = {table: reader for table, reader in readers.items() if table not in in_parts}

        def part(group: Sequence[str], loaded: Mapping[Table, Sequence[pa.RecordBatch]]) -> dict[str, Any]:
            parts = {
                table.name: _frames_by_key(
                    chain([readers[table].none], chain.from_iterable(map(readers[table].rows_of, group))), keys
                )
                for table, keys in in_parts.items()
            }
            return {table.name: _frame(batches) for table, batches in loaded.items()} | parts

        group: list[str] = []
        batches: dict[Table, list[pa.RecordBatch]] = {table: [reader.none] for table, reader in frame_readers.items()}
        rows = 0
        for cell in cells:
            group.append(cell)
            for table, reader in frame_readers.items():
                for batch in reader.rows_of(cell):
                    batches[table].append(batch)
                    rows += batch.num_rows
            if rows >= ROWS_AT_ONCE:
                frames = part(group, batches)
                group, batches, rows = [], {table: [reader.none] for table, reader in frame_readers.items()}, 0
                yield frames
        yield part(group, batches)
        for reader in readers.values():
            reader.check_ended()


def _table_file(table: Table, path: str | Path, texts_as_categories: bool) -> pq.ParquetFile:
    file = open_file(table, Path(path))
    if not texts_as_categories:
        return file
    with file:
        return pq.ParquetFile(path, read_dictionary=[column.name for column in table.columns if column.type == TEXT])


def _frames_by_key(batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield frames of about `ROWS_AT_ONCE` rows; each ends where a value in the columns `keys` changes."""
    waiting_batches: list[pa.RecordBatch] = []
    row_count = 0
    for batch in batches:
        waiting_batches.append(batch)
        row_count += batch.num_rows
        if row_count >= ROWS_AT_ONCE:
            rows = _frame(waiting_batches)
            is_in_last_group = (rows[[*keys]] == rows[[*keys]].iloc[-1]).all(axis=1).to_numpy()
            count = len(rows) - int(is_in_last_group[::-1].argmin()) if not is_in_last_group.all() else 0
            if count:
                yield rows.iloc[:count]
                waiting_batches = pa.Table.from_batches(waiting_batches).slice(count).to_batches()
                row_count -= count
    if waiting_batches:
        yield _frame(waiting_batches)


def _frame(batches: Sequence[pa.RecordBatch]) -> pd.DataFrame:
    frame: pd.DataFrame = pa.Table.from_batches(batches).unify_dictionaries().to_pandas()
    return frame


class _CellReader:
    """Reader of a table's rows, cell by cell."""

    def __init__(self, file: pq.ParquetFile, path: str | Path, columns: Sequence[str] | None) -> None:
        self._path = path
        self._names = file.schema_arrow.names if columns is None else list(columns)
        self.none = pa.RecordBatch.from_pylist([], file.schema_arrow).select(self._names)
        self._batches = file.iter_batches(_BATCH_ROWS, columns=self._names)
        self._ahead: deque[tuple[str, pa.RecordBatch]] = deque()

    def rows_of(self, cell: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows of `cell`; none if the next rows belong to another cell."""
        while self._next() == cell:
            yield self._ahead.popleft()[1].select(self._names)

    def check_ended(self) -> None:
        """Raise `InputError` if rows remain that belong to no expected cell."""
        if cell := self._next():
            raise InputError(f"{self._path}: rows of {cell} where none are expected; delete it, and it is made again")

    def _next(self) -> str:
        """Return the cell of the next rows; empty after the last row."""
        while not self._ahead:
            try:
                batch = next(self._batches, None)
            except _DAMAGE_ERRORS as error:
                raise InputError(f"{self._path}: damaged ({error}); delete it, and it is made again") from None
            if batch is None:
                return ""
            cell_names = batch.column("cell")
            cell_names = cell_names if isinstance(cell_names, pa.DictionaryArray) else cell_names.dictionary_encode()
            cell_numbers = cell_names.indices.to_numpy()
            boundaries = [0, *(np.flatnonzero(np.diff(cell_numbers)) + 1).tolist(), len(cell_numbers)]
            for first, last in pairwise(boundaries) if len(cell_numbers) else ():
                self._ahead.append((cell_names[first].as_py(), batch.slice(first, last - first)))
        return self._ahead[0][0]
