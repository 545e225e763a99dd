"""Rows of a few cells at a time."""

from itertools import pairwise
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallpoint.errors import InputError
from stallpoint.records import parquet
from stallpoint.records.migrations import OLDEST_VERSION
from stallpoint.records.seal import seal
from stallpoint.records.tables import FLAG, ITERATIONS, LAYERS, REAL, RUNS, SCHEMA_VERSION, TEXT, Table, columns

CELLS = ["a", "b", "c", "d"]


def write(table: Table, cells: list[str], folder: Path) -> None:
    """A row for each of `cells`, numbered by the column iteration; three of a rank."""
    rows = {
        column.name: [{TEXT: "", REAL: 0.0, FLAG: False}.get(column.type, 0)] * len(cells) for column in table.columns
    } | {"cell": cells, "iteration": [*range(len(cells))], "rank": [number // 3 for number in range(len(cells))]}
    parquet.write(table, pa.table(rows, table.schema), folder / table.name)


@given(st.lists(st.integers(0, 5), min_size=4, max_size=4), st.integers(1, 12), st.integers(1, 12))
def test_every_row_comes_once_with_all_others_of_its_cell(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], at_once: int, batch: int
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    rows = [cell for cell, count in zip(CELLS, counts, strict=True) for _ in range(count)]
    write(ITERATIONS, rows, folder)
    write(LAYERS, rows[::2], folder)
    files = {table.name: folder / table.name for table in (ITERATIONS, LAYERS)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "ROWS_AT_ONCE", at_once)
        patch.setattr(parquet, "_BATCH_ROWS", batch)
        columns = {ITERATIONS: None, LAYERS: ("cell", "iteration", "rank")}
        parts = []
        for part in parquet.frames_of_cells(columns, files, CELLS, {LAYERS: ("cell", "rank")}):
            pieces = list(part["layers"])
            for one, other in pairwise(pieces):
                assert (one.iloc[-1] != other.iloc[0])[["cell", "rank"]].any()
            parts.append({"iterations": part["iterations"], "layers": pd.concat(pieces)})
    assert [cell for part in parts for cell in part["iterations"]["cell"]] == rows
    assert [number for part in parts for number in part["iterations"]["iteration"]] == list(range(len(rows)))
    assert [cell for part in parts for cell in part["layers"]["cell"]] == rows[::2]
    for part in parts:
        assert list(part["layers"]) == ["cell", "iteration", "rank"]
        assert set(part["layers"]["cell"]) <= set(part["iterations"]["cell"])
    of_parts = [cell for part in parts for cell in dict.fromkeys(part["iterations"]["cell"])]
    assert len(of_parts) == len(set(of_parts))


@pytest.mark.parametrize("rows", [["a", "x"], ["b", "a"], ["a", "b", "a"]])
def test_rows_where_none_are_expected_are_refused(rows: list[str], tmp_path: Path) -> None:
    write(ITERATIONS, rows, tmp_path)
    with pytest.raises(InputError, match=rf"iterations: rows of {rows[-1]} where none are expected"):
        list(parquet.frames_of_cells({ITERATIONS: None}, {"iterations": tmp_path / "iterations"}, CELLS, {}))


def test_a_line_makes_a_column_and_a_quantity_with_an_interval_three() -> None:
    found = list(
        columns("""
        + repeat
        gain   | ratio± | s | what is
            gained
        status | text   |   | ok | failed
        """)
    )
    assert [(one.name, one.type, one.unit, one.relative) for one in found[1:]] == [
        ("gain", REAL, "s", True),
        ("gain_low", REAL, "s", False),
        ("gain_high", REAL, "s", False),
        ("status", TEXT, None, False),
    ]
    assert (found[0].name, found[1].description, found[4].description) == ("repeat", "what is gained", "ok | failed")


@pytest.mark.parametrize("line", ["+ nobody", "x | number | s | no such type", "x | real"])
def test_a_line_that_makes_no_column_is_an_error(line: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        list(columns(line))


@pytest.mark.parametrize(
    ("place", "helps"),
    [("results/tiny/visits/a", "rm -r {0}/results/tiny/visits {0}/results/tiny/raw"), ("b", "delete it")],
)
def test_a_record_of_another_version_says_what_helps(tmp_path: Path, place: str, helps: str) -> None:
    table = RUNS
    file = tmp_path / place / "runs.parquet"
    file.parent.mkdir(parents=True)
    old = table.schema.with_metadata({**(table.schema.metadata or {}), b"stallpoint_schema": b"3"})
    pq.write_table(old.empty_table(), file)
    seal(file)
    with pytest.raises(InputError) as error:
        parquet.read(table, file)
    assert f"{file}: schema version 3, this program reads {OLDEST_VERSION} to {SCHEMA_VERSION}; " in str(error.value)
    assert helps.format(tmp_path) in str(error.value)
