"""Raw records of any number of cells into one tidy table, as a stream: memory does not grow with the rows.

Polars' streaming engine reads and writes; `make bench` holds it against DuckDB, pyarrow and pandas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import MigratedFile, files_of, open_file, read, write
from stallpoint.records.seal import seal
from stallpoint.records.tables import RUNS, TIDY_TABLES, Table
from stallpoint.study import bounds
from stallpoint.study.completeness import Record


def collect_all(folders: Sequence[Path], outputs: Mapping[str, str | Path]) -> str:
    """Write every table of raw records from all cell `folders` to the file that `outputs` has for it.

    Returns a sentence on the first value that is impossible, if there is one: where a clock was set meanwhile, all else
    that was measured counts. Raises `InputError` as `collect` does, and if a folder does not hold the complete record
    of its cell.
    """
    runs = Path(outputs[RUNS.name])
    for folder in folders:
        if not (folder / f"{RUNS.name}.parquet").exists():
            raise InputError(f"{folder}: there is no record of a cell; delete the folder, and it is written again")
    collect(RUNS, folders, runs)
    rows = read(RUNS, runs).to_pylist()
    records = [Record.of(folder, run) for folder, run in zip(folders, rows, strict=True)]
    for table in TIDY_TABLES:
        if table is not RUNS:
            collect(table, folders, Path(outputs[table.name]), records)
    return _impossible(records, outputs)


def _impossible(records: Sequence[Record], tables: Mapping[str, str | Path]) -> str:
    """Return the first impossible value in the tables, with its file; empty without one."""
    measured = {one.cell.path: one for one in records if not one.failed}
    limits = {
        path: bounds.CellLimits(getattr(one.cell, "warmup", 0), one.cell.threads_per_worker)
        for path, one in measured.items()
    }
    try:
        bounds.check({table: bounds.numbered(Path(tables[table.name])) for table in TIDY_TABLES}, limits)
    except bounds.Impossible as impossible:
        return f"{measured[impossible.cell].file(impossible.table)}: {impossible}"
    return ""


def collect(table: Table, folders: Sequence[Path], output: Path, records: Sequence[Record] = ()) -> None:
    """Write the rows of `table` from all cell `folders`, in their order, to the Parquet file `output`.

    Cells that could not run have no such rows; without any, the tidy table is empty. Raises `InputError` naming the
    first file that is truncated, damaged, of another schema version or of another table; and with the `records` of all
    folders, one that contradicts them.
    """
    checks: dict[Path, Callable[[pq.ParquetFile], None] | None]
    if records:
        checks = {record.file(table): partial(record.check, table) for record in records if record.has(table)}
    else:
        checks = {file: partial(_one_run, file) if table is RUNS else None for file in files_of(table, folders)}
    files = list(checks)
    if not files:
        write(table, table.schema.empty_table(), output)
        return
    older = set()
    for file, check in checks.items():
        with open_file(table, file) as content:
            if isinstance(content, MigratedFile):
                older.add(file)
            if check:
                check(content)
    with atomic(output) as scratch:
        try:
            rows = pl.scan_parquet(files, glob=False) if not older else _of_several_versions(table, files, older)
            rows.select(table.schema.names).sink_parquet(
                scratch, compression="zstd", compression_level=1, arrow_schema=table.schema, maintain_order=True
            )
        except (pl.exceptions.PolarsError, OSError) as error:
            if said := re.search(r"\(os error (\d+)\)", str(error)):  # the only access of Polars to the number of rows
                raise OSError(int(said[1]), str(error)) from error
            raise InputError(f"{table.name}: a record cannot be read: {error}") from error
        seal(scratch)


def _of_several_versions(table: Table, files: Sequence[Path], older: Collection[Path]) -> pl.LazyFrame:
    """Return the rows of files of which the `older` ones are of earlier versions."""
    return pl.concat(
        pl.DataFrame(read(table, file)).lazy() if file in older else pl.scan_parquet(file, glob=False) for file in files
    )


def _one_run(file: Path, content: pq.ParquetFile) -> None:
    if (rows := content.metadata.num_rows) != 1:
        raise InputError(f"{file}: {rows} rows, one is expected; delete {file.parent}, and it is written again")
