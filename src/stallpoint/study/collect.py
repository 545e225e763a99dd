"""Tidy tables from the raw records of any number of cells, as a stream: memory does not grow with the rows.

Polars' streaming engine reads and writes; `make bench` compares it with DuckDB, pyarrow and pandas.

Each record is checked: is it complete, and does it belong to its cell? Most checks need only the statistics in a file's
footer, which take almost no time to read. Of the rows themselves, only columns with durations are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.loops import MIN_SHORT_ITEMS, for_each
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import MigratedFile, files_of, open_file, read, write
from stallpoint.records.seal import seal
from stallpoint.records.tables import ENERGY, ITERATIONS, LAYERS, RUNS, SLURM_JOBS, TIDY_TABLES, VISITS, Table
from stallpoint.study import bounds
from stallpoint.study.cells import Cell
from stallpoint.study.kinds import cell_from_json, kind_of
from stallpoint.study.kinds.train_kind import TrainCell


def collect_all(folders: Sequence[Path], outputs: Mapping[str, str | Path]) -> str:
    """Write each table, with the rows of all cell `folders`, to its file in `outputs`.

    Returns a sentence about the first impossible value, or an empty text. An impossible value raises no error: a clock
    that was set back should not cost all other measurements. Raises `InputError` for a missing or incomplete record.
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
    return _impossible_sentence(records, outputs)


def _impossible_sentence(records: Sequence[Record], tables: Mapping[str, str | Path]) -> str:
    """Return a sentence about the first impossible value in the tables, with its file; empty without such a value."""
    record_of_path = {one.cell.path: one for one in records if not one.failed}
    limits = {
        path: bounds.CellLimits(getattr(one.cell, "warmup", 0), one.cell.threads_per_worker)
        for path, one in record_of_path.items()
    }
    try:
        bounds.check({table: bounds.numbered(Path(tables[table.name])) for table in TIDY_TABLES}, limits)
    except bounds.ImpossibleValue as impossible:
        return f"{record_of_path[impossible.cell].file(impossible.table)}: {impossible}"
    return ""


def collect(table: Table, folders: Sequence[Path], output: Path, records: Sequence[Record] = ()) -> None:
    """Write the rows of `table` from all cell `folders`, in the order of the folders, to the Parquet file `output`.

    Cells that could not run have no rows. Raises `InputError` for the first file that is damaged, or has another table
    or an unknown schema version. `records`, one for each folder, say what each file has to contain.
    """
    checks: dict[Path, Callable[[pq.ParquetFile], None] | None]
    if records:
        checks = {record.file(table): partial(record.check, table) for record in records if record.has_file(table)}
    else:
        checks = {file: partial(_check_one_row, file) if table is RUNS else None for file in files_of(table, folders)}
    files = list(checks)
    if not files:
        write(table, table.schema.empty_table(), output)
        return

    def checked(file: Path) -> tuple[bool, int]:
        """Check a file; return whether it has an earlier schema version, and its number of rows."""
        with open_file(table, file) as content:
            if check := checks[file]:
                check(content)
            return isinstance(content, MigratedFile), content.metadata.num_rows

    found = dict(zip(files, for_each(checked, files, MIN_SHORT_ITEMS), strict=True))
    older_files = {file for file, (is_older, _) in found.items() if is_older}
    for record in records:
        if (file := record.file(table)) in found:
            record.rows[table.name] = found[file][1]
    with atomic(output) as scratch:
        try:
            rows = pl.scan_parquet(files, glob=False) if not older_files else _migrated_rows(table, files, older_files)
            rows.select(table.schema.names).sink_parquet(
                scratch, compression="zstd", compression_level=1, arrow_schema=table.schema, maintain_order=True
            )
        except (pl.exceptions.PolarsError, OSError) as error:
            if number := re.search(r"\(os error (\d+)\)", str(error)):  # Polars gives the error number only as text
                raise OSError(int(number[1]), str(error)) from error
            raise InputError(f"{table.name}: a record cannot be read: {error}") from error
        seal(scratch)


def _migrated_rows(table: Table, files: Sequence[Path], older: Collection[Path]) -> pl.LazyFrame:
    """Return the rows of `files`; the files in `older` have an earlier schema version and are migrated."""
    return pl.concat(
        pl.DataFrame(read(table, file)).lazy() if file in older else pl.scan_parquet(file, glob=False) for file in files
    )


def _check_one_row(file: Path, content: pq.ParquetFile) -> None:
    if (rows := content.metadata.num_rows) != 1:
        raise InputError(f"{file}: {rows} rows, one is expected; delete {file.parent}, and it is written again")


# --- completeness of records ----------------------------------------------------------------------

_KNOWN_DURATIONS = frozenset(("iteration_time", "seconds"))
"""Columns with durations that are always known."""
_DURATIONS = _KNOWN_DURATIONS | {"data_wait", "forward", "backward", "update"}
"""Columns with durations; NaN in all rows of a script that does not report the parts of an iteration."""
_TIMES = _DURATIONS | {
    "read", "decode", "host_to_device", "communication", "computing", "isolated_computing", "bookkeeping", "duration",
    "measuring", "node_busy_error", "product_before", "product_after", "all_reduce_before", "all_reduce_after",
    "seconds_to_target",
}  # fmt: skip
"""Columns with durations, also those that may be null."""
_NEVER_NULL_COLUMNS = _DURATIONS | {
    "rank", "visit", "iteration", "sample", "warmup", "layer_index", "layer", "operation", "message_bytes", "start",
}  # fmt: skip
"""Columns that have no nulls on any machine, besides the columns of the cell."""


class IncompleteFile(InputError):
    """Error that `file` is incomplete or belongs to another cell; `why` is the reason, `advice` the advice."""

    def __init__(self, file: Path, reason: str, advice: str) -> None:
        super().__init__(f"{file}: {reason}; {advice}")
        self.file, self.why, self.advice = file, reason, advice

    @override
    def __reduce__(self) -> tuple[type[IncompleteFile], tuple[Path, str, str]]:
        return IncompleteFile, (self.file, self.why, self.advice)


@dataclass(frozen=True)
class Record:
    """The record of one cell; its row of the table ``runs`` determines what the other tables must contain."""

    folder: Path
    cell: Cell
    failed: bool
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows of the tables that were checked so far, by name."""

    @classmethod
    def of(cls, folder: Path, run: Mapping[str, Any]) -> Record:
        """Return the record in `folder`; `InputError` if `run`, its row of ``runs``, is invalid or of another cell."""
        file = folder / f"{RUNS.name}.parquet"
        try:
            cell = cell_from_json(run["settings"])
        except InputError as error:
            raise IncompleteFile(file, f"settings: {error}", f"delete {folder}, and it is written again") from None
        record = cls(folder, cell, run["status"] == "failed")
        if run["status"] not in ("ok", "failed"):
            record._refuse(file, f"status {run['status']!r}; ok or failed is expected")
        if not folder.as_posix().endswith(f"/{cell.path}"):
            record._refuse(file, f"it is of another cell, {cell.path}")
        if run["duration"] is None or not 0 <= run["duration"] < math.inf:
            record._refuse(file, f"duration is {run['duration']!r}, which is no duration")
        for name, value in _cell_columns(cell, RUNS).items():
            if run[name] != value:
                record._refuse(file, f"{name} is {run[name]!r}, that of the cell is {value!r}")
        return record

    def has_file(self, table: Table) -> bool:
        """Return whether the record has a file of `table`; `InputError` if a file is missing or unexpected."""
        file = self.file(table)
        file_exists = file.exists()
        if file_exists and self.failed:
            self._refuse(file, "rows of a cell that could not run; its record is a row of runs alone")
        optional_tables = (SLURM_JOBS, ENERGY, *kind_of(self.cell).optional_tables)
        if not file_exists and not self.failed and table in kind_of(self.cell).tables and table not in optional_tables:
            self._refuse(file, "it is missing")
        return file_exists

    def check(self, table: Table, content: pq.ParquetFile) -> None:
        """Raise `InputError` if `content`, the record's file of `table`, is incomplete or belongs to another cell."""
        file, cell = self.file(table), self.cell
        rows = self.rows[table.name] = content.metadata.num_rows
        if not rows:
            self._refuse(file, "it has no rows")
        if table not in kind_of(cell).tables:
            self._refuse(file, f"a cell of kind {cell.kind} has no such table")
        expected = _cell_columns(cell, table)
        metadata = content.metadata
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        durations = content.read(columns=[name for name in content.schema_arrow.names if name in _TIMES])
        for index, name in enumerate(content.schema_arrow.names):  # `schema_arrow` is slow, so it is read once
            if name in expected or name in _NEVER_NULL_COLUMNS or name in _TIMES:
                column_statistics = [group.column(index).statistics for group in groups]
                least, greatest, nulls = _extreme_values(column_statistics) or _extreme_values_of_rows(content, name)
                if nulls and (name in expected or name in _NEVER_NULL_COLUMNS):
                    self._refuse(file, f"{nulls} rows without {name}")
                if name in expected and not least == greatest == expected[name]:
                    wrong_value = least if least != expected[name] else greatest
                    self._refuse(file, f"{name} is {wrong_value!r}, that of the cell is {expected[name]!r}")
                if name in _TIMES:
                    self._check_durations(file, name, durations[name], least)
                if name == "rank" and (least, greatest) != (0, self._ranks - 1):
                    self._refuse(file, f"ranks {least} to {greatest}; expected are 0 to {self._ranks - 1}")
        self._check_rows(file, table, rows)

    def _check_durations(self, file: Path, name: str, values: pa.ChunkedArray, least: Any) -> None:
        """Check every value of a column of durations: the statistics in a file's footer ignore NaN."""
        if least is not None and least < 0:
            self._refuse(file, f"{name} is {least!r}, a duration below 0")
        infinite_values = values.filter(pc.invert(pc.is_finite(values)))
        if len(infinite_values) and (len(infinite_values) < len(values) or name in _KNOWN_DURATIONS):
            self._refuse(file, f"{name} is {infinite_values[0].as_py()!r}, which is no duration")

    def _check_rows(self, file: Path, table: Table, rows: int) -> None:
        """Check the number of rows of a table against the number of visits, ranks and iterations."""
        expected, words = self._expected_rows(table)
        if exactly := table not in (LAYERS, VISITS):
            is_wrong = expected is not None and rows != expected
        else:
            is_wrong = expected is not None and rows % expected != 0
        if is_wrong:
            self._refuse(file, f"{rows:,} rows; {words} make {expected:,}{'' if exactly else ' or a multiple of it'}")

    def _expected_rows(self, table: Table) -> tuple[int | None, str]:
        """Return the expected number of rows, or None, and an explanation. Some tables have a multiple of it."""
        if table is LAYERS:
            iterations = self.rows[ITERATIONS.name]
            return iterations, f"{iterations:,} iterations"
        return self.cell.rows(table, self.rows.get(VISITS.name, self._ranks))

    @property
    def _ranks(self) -> int:
        """Number of ranks that have rows in the record."""
        return self.cell.recorded_ranks

    def file(self, table: Table) -> Path:
        return self.folder / f"{table.name}.parquet"

    def _refuse(self, file: Path, reason: str) -> None:
        raise IncompleteFile(
            file, reason, f"it is no complete record of this cell: delete {self.folder}, and it is written again"
        )


def _cell_columns(cell: Cell, table: Table) -> dict[str, Any]:
    """Return column -> value, for the columns of `table` that have the same value in all rows of a cell."""
    values: dict[str, Any] = {"cell": cell.path}
    if table is not SLURM_JOBS:  # in SLURM_JOBS, the column `nodes` has the nodes of the job, not of the cell
        names = {*cell.axes, "kind", "hardware", "nodes", "workers_per_node", "ranks", "repeat"}
        names |= {"worker_batch", "global_batch"} if isinstance(cell, TrainCell) else set()
        values |= {name: getattr(cell, name) for name in names}
    return {column.name: values[column.name] for column in table.columns if column.name in values}


def _extreme_values(found: Sequence[Any]) -> tuple[Any, Any, int] | None:
    """Return a column's minimum, maximum and number of nulls from the footer; None for a footer without statistics."""
    if not all(one and one.has_null_count and one.has_min_max for one in found):
        return None
    return min(one.min for one in found), max(one.max for one in found), sum(one.null_count for one in found)


def _extreme_values_of_rows(content: pq.ParquetFile, name: str) -> tuple[Any, Any, int]:
    column = content.read(columns=[name])[name]
    least, greatest = pc.min_max(column).as_py().values()
    return least, greatest, column.null_count
