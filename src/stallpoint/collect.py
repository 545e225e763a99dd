"""Raw records of any number of cells into one tidy table, as a stream: memory does not grow with the rows.

Polars' streaming engine reads and writes; `make bench` holds it against DuckDB, pyarrow and pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stallpoint.errors import InputError
from stallpoint.parquet import atomic, files_of, open_file, write
from stallpoint.records import Table
from stallpoint.seal import seal


def collect(table: Table, folders: Sequence[Path], output: Path) -> None:
    """Write the rows of `table` from all cell `folders`, in their order, to the Parquet file `output`.

    Cells that could not run have no such rows; without any, the tidy table is empty. Raises `InputError`
    naming the first file that is truncated, damaged, of another schema version or not of this table.
    """
    files = files_of(table, folders)
    if not files:
        write(table, table.schema.empty_table(), output)
        return
    for file in files:
        open_file(table, file).close()
    with atomic(output) as scratch:
        try:
            pl.scan_parquet(files, glob=False).select(table.schema.names).sink_parquet(
                scratch, compression="zstd", compression_level=1, arrow_schema=table.schema, maintain_order=True
            )
        except pl.exceptions.PolarsError as error:
            raise InputError(f"{table.name}: a record cannot be read: {error}") from error
        seal(scratch)
