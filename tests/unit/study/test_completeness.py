"""What is collected is the whole record of the cell that its folder is called after, or it is named."""

import math
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from altered import ALTERATIONS, cells, run
from table_vi import table_vi_cell
from whole_records import measured

from stallpoint.archive.importing import import_cell
from stallpoint.errors import InputError
from stallpoint.records.parquet import read, write, write_cell
from stallpoint.records.tables import (
    CONTENTION,
    ENVIRONMENTS,
    ITERATIONS,
    LAYERS,
    RUNS,
    SLURM_JOBS,
    TIDY_TABLES,
    VISITS,
    Table,
)
from stallpoint.study.collect import collect_all
from stallpoint.study.job_kind import run_row
from stallpoint.study.kinds import kind_of

STARTED = datetime(2026, 1, 2, tzinfo=UTC)
TRAIN = "train/*/hardware~cpu/nodes~2/*/*/*/*/sync~wfbp/*/*"
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole records of cells that were measured, of one that failed and of one that was imported."""
    raw = tmp_path_factory.mktemp("results") / "raw"
    for cell in cells():
        tables = [table for table in kind_of(cell).tables[1:] if table not in (SLURM_JOBS, CONTENTION)]
        failed = cell.kind == "storage" and cell.nodes == 2
        run = run_row(cell, STARTED, failure="no room" if failed else "")
        rows = {} if failed else {table.name: measured(cell, table) for table in tables}
        write_cell(raw / cell.path, {RUNS.name: [run], **rows})
    imported = table_vi_cell()
    import_cell(imported, raw / imported.path)
    return raw


@pytest.fixture
def raw(whole: Path, tmp_path: Path) -> Path:
    """A copy of them that may be changed."""
    shutil.copytree(whole, tmp_path / "raw")
    return tmp_path / "raw"


def collected(raw: Path) -> Path:
    folders = sorted(path for path in raw.rglob("repeat~1") if path.is_dir())
    outputs = {table.name: raw.parent / f"tables/{table.name}.parquet" for table in TIDY_TABLES}
    collect_all(folders, outputs)
    return raw.parent / "tables"


def folder(raw: Path, pattern: str) -> Path:
    (found,) = raw.glob(pattern)
    return found


def refused(raw: Path, where: Path, message: str) -> None:
    with pytest.raises(InputError) as error:
        collected(raw)
    assert str(error.value).startswith(str(where)), error.value
    assert message in str(error.value)
    assert "written again" in str(error.value)


def test_impossible_values_are_said_and_harmless_ones_collected() -> None:
    tallies = list(run(values=len(ALTERATIONS), seed=1))
    assert [wrong for tally in tallies for wrong in tally.red] == []
    assert sum(tally.clear for tally in tallies) == sum(kind.impossible for kind in ALTERATIONS)


def test_a_study_none_of_whose_cells_could_run_is_collected(raw: Path) -> None:
    tables = {table.name: raw.parent / f"tables/{table.name}.parquet" for table in TIDY_TABLES}
    for folders in ([], [folder(raw, "storage/*/*/nodes~2/*/*")]):
        assert collect_all(folders, tables) == ""
        assert read(RUNS, tables["runs"]).num_rows == len(folders)


def test_whole_records_are_collected(whole: Path) -> None:
    tables = collected(whole)
    assert read(RUNS, tables / "runs.parquet").num_rows == len(cells()) + 1
    assert read(VISITS, tables / "visits.parquet").num_rows > 0


def put(table: pa.Table, name: str, value: object, rows: int = 1) -> pa.Table:
    """The table with another value in its first rows."""
    values = [value] * rows + table[name].to_pylist()[rows:]
    field = table.schema.field(name)
    return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))


CHANGES: dict[str, tuple[Table, Change, str]] = {
    "another cell's rows": (ITERATIONS, lambda rows: put(rows, "cell", "train/x"), "cell is 'train/x', that of the"),
    "another batch": (LAYERS, lambda rows: put(rows, "batch", 7), "batch is 7, that of the cell is 8"),
    "another worker's batch": (ITERATIONS, lambda rows: put(rows, "worker_batch", 8), "worker_batch is 8"),
    "no rows": (LAYERS, lambda rows: rows.slice(0, 0), "it has no rows"),
    "an iteration less": (ITERATIONS, lambda rows: rows.slice(1), "15 rows; 4 visits of ranks with 4 iterations make"),
    "a layer less": (LAYERS, lambda rows: rows.slice(1), "47 rows; 16 iterations make 16 or a multiple of it"),
    "a rank less": (VISITS, lambda rows: rows.filter(pc.equal(rows["rank"], 0)), "ranks 0 to 0; expected are 0 to 1"),
    "another rank": (ITERATIONS, lambda rows: put(rows, "rank", 2), "ranks 0 to 2; expected are 0 to 1"),
    "no time": (ITERATIONS, lambda rows: put(rows, "iteration_time", None, 2), "2 rows without iteration_time"),
    "no rank": (LAYERS, lambda rows: put(rows, "rank", None), "1 rows without rank"),
    "no machine": (ENVIRONMENTS, lambda rows: rows.slice(1), "ranks 1 to 1; expected are 0 to 1"),
    "two runs": (RUNS, lambda rows: pa.concat_tables([rows, rows]), "2 rows, one is expected"),
    "another status": (RUNS, lambda rows: put(rows, "status", "fine"), "status 'fine'; ok or failed is expected"),
    "no cell": (RUNS, lambda rows: put(rows, "settings", "{}"), "settings: a cell of unknown kind None"),
    "a time below 0": (ITERATIONS, lambda rows: put(rows, "forward", -1.0), "forward is -1.0, a duration below 0"),
    "no number": (LAYERS, lambda rows: put(rows, "backward", math.nan), "backward is nan, which is no duration"),
    "other nodes": (RUNS, lambda rows: put(rows, "nodes", 3), "nodes is 3, that of the cell is 2"),
}  # fmt: skip


WRITTEN: dict[str, dict[str, Any]] = {
    "footer": {},
    "groups": {"row_group_size": 1},
    "rows": {"write_statistics": False},
}


@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize(("table", "change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_table_that_is_not_the_cells_is_named(
    raw: Path, table: Table, change: Change, message: str, options: dict[str, Any]
) -> None:
    file = folder(raw, TRAIN) / f"{table.name}.parquet"
    pq.write_table(change(read(table, file)), file, **options)
    refused(raw, file, message)


def test_a_folder_with_the_record_of_another_cell_is_named(raw: Path) -> None:
    two = folder(raw, TRAIN)
    one = folder(raw, TRAIN.replace("nodes~2", "nodes~1").replace("sync~wfbp", "*"))
    shutil.rmtree(two)
    shutil.copytree(one, two)
    refused(raw, two / "runs.parquet", "it is of another cell, train/network~alexnet/hardware~cpu/nodes~1")


def test_what_is_missing_is_named(raw: Path) -> None:
    (folder(raw, TRAIN) / "iterations.parquet").unlink()
    refused(raw, folder(raw, TRAIN) / "iterations.parquet", "it is missing")
    (folder(raw, TRAIN) / "runs.parquet").unlink()
    refused(raw, folder(raw, TRAIN), "there is no record of a cell")


def test_a_cell_that_could_not_run_has_no_other_rows(raw: Path) -> None:
    file = folder(raw, TRAIN) / "runs.parquet"
    write(RUNS, put(read(RUNS, file), "status", "failed"), file)
    refused(raw, folder(raw, TRAIN) / "environments.parquet", "rows of a cell that could not run")


def test_a_trace_that_was_not_imported_whole_is_named(raw: Path) -> None:
    file = folder(raw, "imported-train/**/repeat~1") / "iterations.parquet"
    rows = read(ITERATIONS, file)
    write(ITERATIONS, pa.concat_tables([rows, rows]), file)
    refused(raw, file, "2 rows; 1 visits of ranks with 1 iterations make 1")
