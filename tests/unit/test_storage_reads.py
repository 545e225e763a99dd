import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from launching import run_job

from stallpoint import parquet
from stallpoint.cells import StorageCell
from stallpoint.measure.storage_reads import drop, resident_share
from stallpoint.records import RUNS, STORAGE_READS, VISITS
from stallpoint.storage import Storage
from stallpoint.storage.generate import prepare
from stallpoint.storage.samples import Extent

pytestmark = pytest.mark.ranks

PAGE = os.sysconf("SC_PAGE_SIZE")


def cold_share(folder: Path) -> float:
    """Share of pages left after dropping them: none, but all where the file system is memory."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
    return 1.0 if kind in ("tmpfs", "ramfs") else 0.0


FIRST_IS_SLOW = """
import os, time
from stallpoint.storage.samples import SampleSet
read = SampleSet.read
def slow(self, index):
    time.sleep(0.05 * (os.environ["OMPI_COMM_WORLD_RANK"] == "0"))
    return read(self, index)
SampleSet.read = slow
"""
"""A worker that still reads in one order when others are ready for the next."""


@pytest.mark.parametrize(
    ("name", "body"),
    [("files", ""), ("files", FIRST_IS_SLOW), ("tar", ""), ("mapped", ""), ("tokens", "")],
    ids=["files", "files-slow", "tar", "mapped", "tokens"],
)
def test_two_workers_read_cold_and_warm_in_both_orders(tmp_path: Path, name: str, body: str) -> None:
    storage = Storage("synthetic", tmp_path / "set", name)
    prepare(storage, generate=16, seed=1)
    cell = StorageCell(
        "cpu", 2, 1, 1, "cpu", 1, 1, "float32", True,
        storage="synthetic", storage_path=str(storage.path), storage_format=name, samples=6,
    )  # fmt: skip
    folder = tmp_path / "raw" / cell.path
    status, printed = run_job(cell, folder, ranks=2, body=body)
    assert status == 0, printed
    assert re.fullmatch(r"(read \d+/24 after .*\n)+", printed)

    passes = defaultdict(list)
    for row in parquet.read(STORAGE_READS, folder / "storage_reads.parquet").to_pylist():
        passes[row["order"], row["cache"], row["rank"]].append(row)
        assert row["start"] >= 0
        assert row["seconds"] > 0
    assert len(passes) == 8
    for (_, cache, _), rows in passes.items():
        assert [row["sample"] for row in rows] == list(range(6))
        assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)
        resident = sum(row["resident"] for row in rows) / len(rows)
        # Dropping pages is advice to the kernel, which may keep a few; the record says how many.
        assert resident > 0.95 if cache == "warm" else resident <= cold_share(tmp_path) + 0.25
    images = storage.open()
    sizes = [images.extent(index).size for index in range(images.samples)]
    for cache in ("cold", "warm"):
        in_order = [row["bytes"] for rank in (0, 1) for row in passes["sequential", cache, rank]]
        assert in_order == sizes[:12]
    assert [row["bytes"] for row in passes["random", "cold", 1]] == [
        row["bytes"] for row in passes["random", "warm", 1]
    ]


def test_resident_pages_are_counted_and_asking_reads_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * PAGE))
    whole, first = Extent(path, 0, 64 * PAGE), Extent(path, 10, PAGE - 20)
    assert resident_share([whole]) == 1.0
    drop({path})
    assert resident_share([whole]) == cold_share(tmp_path)
    assert resident_share([whole]) == cold_share(tmp_path)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(PAGE)
    assert resident_share([first]) == 1.0
    assert resident_share([first, whole]) == pytest.approx(cold_share(tmp_path) or 2 / 65, abs=0.3)


def test_files_of_others_have_an_unknown_share() -> None:
    """The kernel calls every page of such files resident, whatever the truth."""
    program = """
import os
from pathlib import Path
from stallpoint.measure.storage_reads import resident_share
from stallpoint.storage.samples import Extent
if os.getuid() == 0:
    os.setuid(65534)
print(resident_share([Extent(Path("/etc/passwd"), 0, 100)]))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "None\n"


def cell_of(storage: Storage, nodes: int, samples: int) -> StorageCell:
    return StorageCell(
        "cpu", nodes, 1, 1, "cpu", 1, 1, "float32", True,
        storage="synthetic", storage_path=str(storage.path), storage_format=storage.format, samples=samples,
    )  # fmt: skip


def test_where_the_library_hides_extents_it_is_not_said_what_is_in_the_page_cache(tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "lmdb")
    prepare(storage, generate=6, seed=1)
    cell = cell_of(storage, 1, 6)
    status, printed = run_job(cell, tmp_path / cell.path, ranks=1)
    assert status == 0, printed
    rows = parquet.read(STORAGE_READS, tmp_path / cell.path / "storage_reads.parquet").to_pylist()
    assert {row["resident"] for row in rows} == {None}
    assert len(rows) == 4 * 6


def test_samples_that_were_left_out_are_in_the_record(tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "files")
    prepare(storage, generate=6, seed=1)
    storage.open().extent(4).path.write_bytes(b"no image")
    prepare(storage, generate=None, seed=1, most_corrupt=1)
    cell = cell_of(storage, 1, 6)
    status, printed = run_job(cell, tmp_path / cell.path, ranks=1)
    assert status == 0, printed
    (visit,) = parquet.read(VISITS, tmp_path / cell.path / "visits.parquet").to_pylist()
    assert visit["left_out"] == 1
    assert parquet.read(STORAGE_READS, tmp_path / cell.path / "storage_reads.parquet").num_rows == 4 * 5


def test_fewer_samples_than_workers_are_said_in_words(tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "files")
    prepare(storage, generate=1, seed=1)
    cell = cell_of(storage, 2, 6)
    status, printed = run_job(cell, tmp_path / cell.path, ranks=2)
    assert status == 0, printed
    (run,) = parquet.read(RUNS, tmp_path / cell.path / "runs.parquet").to_pylist()
    assert (run["status"], run["reason"]) == (
        "failed", "storage synthetic has 1 samples, fewer than the 2 workers that read at once, each its own"
    )  # fmt: skip


GOES_AWAY = """
import os
from stallpoint.storage.samples import SampleSet
read, done = SampleSet.read, []
def once_more(self, index):
    done.append(index)
    if len(done) == 9:
        os.rename(self.path, self.path.with_name("gone"))
    return read(self, index)
SampleSet.read = once_more
"""


def test_a_storage_that_goes_away_is_the_reason_in_the_cells_record(tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "files")
    prepare(storage, generate=8, seed=1)
    cell = cell_of(storage, 1, 8)
    status, printed = run_job(cell, tmp_path / cell.path, ranks=1, body=GOES_AWAY)
    assert status == 0, printed
    (run,) = parquet.read(RUNS, tmp_path / cell.path / "runs.parquet").to_pylist()
    assert run["status"] == "failed"
    assert re.search(r"set/class\d+/sample\d+.jpg: cannot be read \(No such file or directory\)", run["reason"])
