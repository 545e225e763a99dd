"""Wall times that jobs ask for which do not measure."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stallpoint.schedule.planning.plan import MIN_MINUTES
from stallpoint.schedule.planning.time_limits import storage_minutes, tables_minutes

ENTRY = {"format": "files", "max_corrupt": 0}
STORAGES = {
    "little": {**ENTRY, "generate": 256},
    "much": {**ENTRY, "generate": 1_000_000},
    "given": ENTRY,
    "checked": {**ENTRY, "max_corrupt": 10},
    "shards": {**ENTRY, "format": "tar", "convert_from": "much"},
}


def test_a_storage_asks_by_the_work_on_its_samples(tmp_path: Path) -> None:
    minutes = {name: storage_minutes(name, STORAGES, tmp_path) for name in STORAGES}
    assert minutes["little"] == MIN_MINUTES
    assert minutes["given"] < minutes["much"] < minutes["shards"]
    assert minutes["given"] < minutes["checked"]


def test_a_storage_that_was_looked_through_before_asks_by_its_number_of_samples(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage/given.json").write_text(json.dumps({"samples": 1000}))
    assert storage_minutes("given", STORAGES, tmp_path) == MIN_MINUTES


def test_tables_ask_by_cells_and_by_what_was_measured(tmp_path: Path) -> None:
    assert tables_minutes(10) == MIN_MINUTES
    assert tables_minutes(10_000) > 60
    pq.write_table(pa.table({"x": pa.nulls(1000)}), tmp_path / "layers.parquet")
    assert tables_minutes(10, [tmp_path / "layers.parquet"]) == MIN_MINUTES
    with pytest.raises(FileNotFoundError):  # by which Snakemake knows that it is to ask again, once it is there
        tables_minutes(10, [tmp_path / "absent.parquet"])
