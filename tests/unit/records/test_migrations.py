"""Records of earlier versions are read as this version's, or refused with what to do.

Archives of `tests/support/data/archives` were written by the programs of their day: of version 4, of version 5 as it
began, before columns were added to it, and of version 5 in November 2026.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from archived import ROOT

from stallpoint.archive.index import from_json, read_zip_index
from stallpoint.errors import InputError
from stallpoint.records.migrations import ADDED_COLUMNS, OLDEST_VERSION, RENAMED_COLUMNS, current_names
from stallpoint.records.parquet import MigratedFile, open_file, read
from stallpoint.records.tables import COLLECTIVES, RUNS, SCHEMA_VERSION, TABLES, TIDY_TABLES
from stallpoint.study.collect import collect
from stallpoint.study.kinds import cell_from_json

ARCHIVES = sorted((ROOT / "tests/support/data/archives").glob("*.zip"))
GPU = ROOT / "resources/gpu/nvidia-h100.zip"


@pytest.fixture(params=[*ARCHIVES, GPU], ids=lambda path: path.stem)
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The raw records of an archive, in a folder."""
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path)
    return next(folder for folder in (tmp_path / "results/secret/raw", tmp_path / "raw") if folder.exists())


def records(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.rglob("*.parquet")) if file.stem in TABLES)


def test_there_is_an_archive_of_each_version_and_a_step_from_each() -> None:
    versions = {json.loads(zipfile.ZipFile(one).read("archive.json"))["records"] for one in ARCHIVES}
    assert versions == {*range(OLDEST_VERSION, SCHEMA_VERSION + 1)}
    assert {*RENAMED_COLUMNS} == {*range(OLDEST_VERSION, SCHEMA_VERSION)}


def test_every_record_of_an_archive_has_todays_columns_and_its_own_values(unpacked: Path) -> None:
    files = list(records(unpacked))
    assert files
    for file in files:
        found = read(TABLES[file.stem], file)
        assert found.schema.equals(TABLES[file.stem].schema)
        assert len(found)
    for file in unpacked.rglob("layers.parquet"):
        assert set(read(TABLES["layers"], file)["bucket"].to_pylist()) != {None}


def test_cells_of_an_archive_are_todays_and_are_collected(unpacked: Path, tmp_path: Path) -> None:
    folders = [file.parent for file in sorted(unpacked.rglob("runs.parquet"))]
    outputs = {table.name: tmp_path / f"tables/{table.name}.parquet" for table in TIDY_TABLES}
    outputs[RUNS.name].parent.mkdir()
    for table in TIDY_TABLES:
        collect(table, folders, outputs[table.name])
        with open_file(table, outputs[table.name]) as file:
            assert not isinstance(file, MigratedFile)
    cells = [cell_from_json(settings) for settings in read(RUNS, outputs[RUNS.name])["settings"].to_pylist()]
    assert len(cells) == len(folders)
    assert len(read(TABLES["layers"], outputs["layers"])) > len(cells)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.stem)
def test_the_index_of_each_archive_is_read(archive: Path) -> None:
    index = read_zip_index(archive, "OLD")
    assert {cell.kind for cell in index.cells.values()} == {"train", "collectives", "convergence"}
    (run,) = (cell for cell in index.cells.values() if cell.kind == "convergence")
    assert json.loads(run.to_json())["max_epochs"] == 2


def test_an_archive_that_is_older_is_refused_with_what_to_do() -> None:
    text = zipfile.ZipFile(ARCHIVES[0]).read("archive.json").decode().replace('"records": 4', '"records": 3')
    with pytest.raises(InputError, match=r"OLD: format 3 of its records, this program reads 4 to 5; .* measure again"):
        from_json(text, "OLD")


def test_steps_lead_to_columns_that_there_are() -> None:
    assert current_names(COLLECTIVES.name, 4) == {"messages": "calls"}
    assert current_names(COLLECTIVES.name, SCHEMA_VERSION) == {}
    assert all({*names} <= {*TABLES[table].names} for table, names in ADDED_COLUMNS.items())
    for step in RENAMED_COLUMNS.values():
        for table, names in step.items():
            assert table == "settings" or {*names.values()} <= {*TABLES[table].names}
