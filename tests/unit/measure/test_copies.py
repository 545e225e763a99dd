"""Copies of memory: measured by a job, and their rates."""

import os
from pathlib import Path

import pandas as pd
import pytest
from launching import run_job
from resident_ranks import Ranks
from synthetic import study

from stallpoint.measure.jobs import copies
from stallpoint.measure.machine.caches import Caches
from stallpoint.models.terms.data import copy_rates
from stallpoint.records import parquet
from stallpoint.records.tables import COPIES
from stallpoint.study.kinds.copies_kind import CopiesCell

pytestmark = pytest.mark.ranks

CELL = CopiesCell("cpu", 1, 1, 1, "cpu", 1, 1, "float32", True, samples=2)
CACHE = 2**25


def small_caches(patch: pytest.MonkeyPatch) -> None:
    """Those of a server take long to exceed."""
    patch.setattr(copies, "caches", lambda _: Caches(core=None, largest=CACHE))


def test_a_job_copies_with_one_thread_up_to_all_cores(ranks: Ranks, tmp_path: Path) -> None:
    folder = tmp_path / "raw" / CELL.path
    status, printed = run_job(ranks, CELL, folder, plant=small_caches)
    assert status == 0, printed
    rows = parquet.read(COPIES, folder / "copies.parquet").to_pandas()
    cores = len(os.sched_getaffinity(0))
    assert set(rows["threads"]) >= {1, cores}
    assert rows["threads"].max() == cores
    assert rows.groupby(["copy", "threads"])["sample"].agg(list).map(lambda found: found == [0, 1]).all()
    assert (rows["seconds"] > 0).all()
    moved = rows.drop_duplicates("copy").set_index("copy")["bytes"]
    assert moved["triad"] / 3 == moved["copy"] / 2 >= 4 * CACHE


def test_a_rate_is_the_bytes_over_the_mean_time() -> None:
    seconds = {1: [0.1, 0.1, 0.2, 0.2], 2: [0.05, 0.05, 0.05, 0.05]}
    rows = pd.DataFrame([
        {"hardware": "cpu", "repeat": 1, "copy": "triad", "threads": threads, "visit": 1 + place // 2,
         "sample": place, "bytes": 3_000_000_000, "seconds": one}
        for threads, times in seconds.items() for place, one in enumerate(times)
    ])  # fmt: skip
    found = {row["threads"]: row for row in copy_rates(rows, seed=0)}
    assert found[1]["bytes_per_second"] == pytest.approx(20e9)
    assert found[2]["bytes_per_second"] == pytest.approx(60e9)
    for row in found.values():
        assert row["bytes_per_second_low"] < row["bytes_per_second"] < row["bytes_per_second_high"]


def test_a_study_without_copies_has_no_rates() -> None:
    assert copy_rates(study()["copies"].iloc[:0], seed=0) == []
