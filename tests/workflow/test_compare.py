"""Two studies that are there are compared, without one that measures; and a slower one is told by the exit status."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import Checkout

SLOWER = 1000.0
"""Few visits on a machine that others disturb tell no less."""


@pytest.fixture(scope="module")
def beside(finished: Checkout, archive: Path) -> Iterator[Checkout]:
    """A finished study, its archive, and one in which iterations take longer; the configured study is not valid."""
    slow = finished.folder / "results/slow"
    shutil.copytree(finished.results(), slow)
    file = slow / "tables/iterations.parquet"
    rows = pq.read_table(file)
    place = rows.schema.get_field_index("iteration_time")
    longer = pa.array(SLOWER * rows["iteration_time"].to_numpy())
    pq.write_table(rows.set_column(place, rows.schema.field(place), longer), file)
    finished.write_study(hardware="none of its own")
    yield finished
    finished.write_study()
    shutil.rmtree(slow)


def test_a_slower_study_is_compared_and_fails_where_that_is_asked_for(beside: Checkout) -> None:
    studies = ("old=archives/tiny.zip", "new=slow")
    ran = beside.snakemake("--logger-stallpoint-plain", "compare", "--config", *studies)
    assert ran.status == 0, "nobody asked for it"
    assert ran.jobs == {"comparison": 1, "compare": 1}, "nothing else is made"
    ran = beside.snakemake("compare", "--config", *studies, "fail_on=slower")
    assert ran.status != 0
    assert "over 4 points: slower." in ran.text
    assert "told to fail on slower" in ran.text
    assert "Traceback" not in ran.text
    names = {file.name for file in (beside.folder / "results/compare/tiny-slow").iterdir()}
    assert names == {f"comparison.{name}" for name in ("md", "json", "parquet", "html")}


def test_a_study_that_is_missing_is_named(beside: Checkout) -> None:
    ran = beside.snakemake("compare", "-n", "--config", "old=tiny")
    assert ran.status != 0
    assert "new is missing: snakemake compare --config old=OLD new=NEW" in ran.text
