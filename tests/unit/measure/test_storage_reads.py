import os
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from launching import Plant, run_job
from nightly import by_day, first_by_day
from resident_ranks import Ranks
from sample_cells import STORAGE

from stallpoint.errors import EXIT_BAD_INPUT
from stallpoint.measure.jobs import storage_reads
from stallpoint.measure.jobs.storage_reads import DROP_CACHES, _samples_by_order, _unread_samples, drop, share_in_cache
from stallpoint.measure.machine.origin import Source
from stallpoint.records import parquet
from stallpoint.records.tables import RUNS, STORAGE_OPERATIONS, STORAGE_PASSES, STORAGE_READS, VISITS
from stallpoint.storage import Storage
from stallpoint.storage.generate import MARKER_FILE, prepare
from stallpoint.storage.samples import INDEX_FILE, Extent, SampleSet

pytestmark = pytest.mark.ranks

PAGE = os.sysconf("SC_PAGE_SIZE")
Key = tuple[str, str, int, int]


@dataclass(frozen=True)
class Visited:
    """What a visit left: the passes and their reads by order, state of the page cache, readers and rank."""

    storage: Storage
    printed: str
    passes: dict[Key, dict[str, Any]]
    reads: dict[Key, list[dict[str, Any]]]
    operations: list[dict[str, Any]]


def cold_share(folder: Path) -> float:
    """Share of pages left after dropping them: none, but all where the file system is memory."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
    return 1.0 if kind in ("tmpfs", "ramfs") else 0.0


def first_is_slow(patch: pytest.MonkeyPatch) -> None:
    """A worker still reads in one order when others are ready for the next."""
    read = SampleSet.read

    def slow(samples: SampleSet, index: int) -> bytes:
        time.sleep(0.05 * (os.environ["OMPI_COMM_WORLD_RANK"] == "0"))
        return read(samples, index)

    patch.setattr(SampleSet, "read", slow)


def visited(
    ranks: Ranks, tmp_path: Path, *, name: str, plant: Plant | None = None, generate: int = 16, **settings: Any
) -> Visited:
    """Two workers visit a cell of a generated storage once."""
    storage = Storage("synthetic", tmp_path / "set", name)
    prepare(storage, generate=generate, seed=1)
    cell = replace(
        STORAGE, visits=1, storage="synthetic", storage_path=str(storage.path), storage_format=name, samples=6,
        **settings,
    )  # fmt: skip
    folder = tmp_path / "raw" / cell.path
    status, printed = run_job(ranks, cell, folder, plant=plant)
    assert status == 0, printed
    reads = defaultdict(list)
    for row in parquet.read(STORAGE_READS, folder / "storage_reads.parquet").to_pylist():
        reads[row["order"], row["cache"], row["readers"], row["rank"]].append(row)
    rows = parquet.read(STORAGE_PASSES, folder / "storage_passes.parquet").to_pylist()
    passes = {(row["order"], row["cache"], row["readers"], row["rank"]): row for row in rows}
    assert set(passes) == set(reads)
    operations = parquet.read(STORAGE_OPERATIONS, folder / "storage_operations.parquet").to_pylist()
    return Visited(storage, printed, passes, dict(reads), operations)


@pytest.mark.parametrize(
    ("name", "plant"),
    by_day(
        [("files", first_is_slow), ("mapped", None), ("files", None), ("tar", None), ("tokens", None)],
        [("files", first_is_slow), ("mapped", None)].__contains__,
    ),
)
def test_two_workers_read_cold_and_warm_in_all_orders(
    ranks: Ranks, tmp_path: Path, name: str, plant: Plant | None
) -> None:
    found = visited(ranks, tmp_path, name=name, plant=plant)
    assert re.fullmatch(r"(pass \d+/6 after .*\n)+", found.printed)
    assert len(found.reads) == 3 * 2 * 2
    for key, rows in found.reads.items():
        assert [row["sample"] for row in rows] == list(range(6))
        assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)
        assert all(row["start"] >= 0 and row["seconds"] > 0 for row in rows)
        resident, cold = found.passes[key]["resident"], key[1] == "cold"
        # Dropping pages is advice to the kernel, which may keep a few; the record says how many.
        assert resident <= cold_share(tmp_path) + 0.25 if cold else resident > 0.95
        assert found.passes[key]["bytes"] == sum(row["bytes"] for row in rows)
    images = found.storage.open()
    sizes = [images.extent(index).size for index in range(images.samples)]
    for cache in ("cold", "warm"):
        in_order = [row["bytes"] for rank in (0, 1) for row in found.reads["sequential", cache, 1, rank]]
        assert in_order == sizes[:12]
    for order in ("shuffled", "random"):
        cold, warm = ([row["bytes"] for row in found.reads[order, cache, 1, 1]] for cache in ("cold", "warm"))
        assert cold == warm


@pytest.mark.parametrize("name", first_by_day(["texts", "sounds"]))
def test_what_no_network_here_decodes_is_read_and_not_decoded(ranks: Ranks, tmp_path: Path, name: str) -> None:
    found = visited(ranks, tmp_path, name=name)
    assert len(found.reads) == 3 * 2 * 2
    assert {row["operation"] for row in found.operations} == {"stat", "open"}


@pytest.mark.parametrize("drop_caches", [False, True])
def test_a_pass_says_where_its_bytes_came_from(ranks: Ranks, tmp_path: Path, drop_caches: bool) -> None:
    found = visited(ranks, tmp_path, name="files", drop_caches=drop_caches)
    for (order, cache, _, _), row in found.passes.items():
        assert row["filesystem"] == Source(tmp_path).type
        assert row["source"] == ""  # anonymised
        assert row["set_bytes"] == found.storage.open().total_bytes
        assert row["memory_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert row["node_bytes"] == sum(found.passes[order, cache, 1, rank]["bytes"] for rank in (0, 1))
        dropped = drop_caches and cache == "cold" and os.access(DROP_CACHES, os.W_OK)
        assert row["metadata"] == ("cold" if dropped else "warm")
        if cache == "warm":
            assert row["origin"] in ("page cache", "unknown")
        elif cold_share(tmp_path) == 0 and order != "random":  # where two may draw the same
            assert row["origin"] in ("local device", "mixed", "network", "unknown")
            assert row["process_bytes"] is None or row["process_bytes"] > 0


def one_is_warm(patch: pytest.MonkeyPatch) -> None:
    """The page cache holds what one of two workers reads, before a pass that looks at nothing."""
    prepare_pass = storage_reads._ReadVisit._prepare

    def warm_on_rank_1(visit: Any, one: Any) -> Any:
        found = prepare_pass(visit, one)
        if one.cache == "untouched":
            drop(storage_reads._files(visit._stored, one.indices))
            visit._world.comm.Barrier()
            for index in one.indices if visit._world.rank == 1 else ():
                visit._stored.read(index)
        return found

    patch.setattr(storage_reads._ReadVisit, "_prepare", warm_on_rank_1)


def test_a_page_cache_that_is_warm_for_one_worker_is_told(ranks: Ranks, tmp_path: Path) -> None:
    found = visited(ranks, tmp_path, name="files", generate=64, plant=one_is_warm)
    cold, warm = (found.passes["shuffled", "untouched", 1, rank] for rank in (0, 1))
    assert (cold["metadata"], cold["resident"]) == ("unknown", None)
    if cold_share(tmp_path) == 0:
        assert cold["origin"] in ("local device", "mixed")
        assert cold["process_bytes"] >= 0.5 * cold["bytes"]
    assert warm["origin"] in ("page cache", "unknown")
    assert warm["process_bytes"] in (0, None)


def test_untouched_files_are_those_that_no_other_pass_or_visit_opens() -> None:
    parts = [_samples_by_order(64, 4, rank, 2, seed=1) for rank in (0, 1)]
    taken = {index for part in parts for order in ("sequential", "shuffled", "random") for index in part[order]}
    rest = parts[0]["rest"]
    assert rest == parts[1]["rest"]
    assert taken | set(rest) == set(range(64))
    assert not taken & set(rest)
    assert not set(parts[0]["shuffled"]) & set(parts[1]["shuffled"])
    opened: set[int] = set()
    for visit in range(1, len(rest) // 8 + 1):
        for rank in (0, 1):
            fresh = _unread_samples(parts[rank], visit, rank, 2)
            assert len(fresh) == 4
            assert not opened & set(fresh)
            opened |= set(fresh)
    assert _unread_samples(parts[0], len(rest) // 8 + 1, 0, 2) == []


def test_several_readers_read_the_same_samples_beside_one(ranks: Ranks, tmp_path: Path) -> None:
    found = visited(ranks, tmp_path, name="files", readers=3)
    assert {readers for _, _, readers, _ in found.passes} == {1, 3}
    for (order, cache, readers, rank), rows in found.reads.items():
        alone = found.reads[order, cache, 1, rank]
        assert [row["bytes"] for row in rows] == [row["bytes"] for row in alone]
        together = [one["start"] + one["seconds"] > other["start"] for one, other in pairwise(rows)]
        assert readers > 1 or not any(together)


def test_what_is_no_reading_is_timed_apart(ranks: Ranks, tmp_path: Path) -> None:
    size = 3 * 2**20 + 17
    found = visited(ranks, tmp_path, name="files", checkpoint_bytes=size)
    counts = Counter((row["operation"], row["metadata"], row["rank"]) for row in found.operations)
    for rank in (0, 1):
        assert counts["stat", "warm", rank] == counts["open", "warm", rank] == counts["decode", "warm", rank] == 6
        assert counts["stat", "cold", rank] == 0  # nothing was dropped
    checkpoints = [row for row in found.operations if row["operation"].startswith("checkpoint")]
    assert [(row["operation"], row["rank"], row["bytes"]) for row in checkpoints] == [
        ("checkpoint write", 0, size), ("checkpoint read", 0, size),
    ]  # fmt: skip
    assert all(row["seconds"] > 0 for row in found.operations)
    assert sorted(path.name for path in found.storage.path.iterdir() if path.is_file()) == sorted(
        [INDEX_FILE, MARKER_FILE]
    )


def remounted(patch: pytest.MonkeyPatch) -> None:
    """Nobody can write to the storage from the first read on."""
    read = SampleSet.read

    def after(samples: SampleSet, index: int) -> bytes:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(samples.path)], check=True)
        return read(samples, index)

    patch.setattr(SampleSet, "read", after)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_storage_that_becomes_read_only_is_read_on_and_has_no_checkpoint(ranks: Ranks, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    prepare(Storage("synthetic", folder, "files"), generate=16, seed=1)
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        found = visited(ranks, tmp_path, name="files", plant=remounted, checkpoint_bytes=2**20)
    finally:
        subprocess.run(["umount", folder], check=True)
    assert len(found.reads) == 3 * 2 * 2
    assert {row["operation"] for row in found.operations} == {"stat", "open", "decode"}


def test_resident_pages_are_counted_and_asking_reads_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * PAGE))
    whole, first = Extent(path, 0, 64 * PAGE), Extent(path, 10, PAGE - 20)
    assert share_in_cache([whole]) == 1.0
    drop({path})
    assert share_in_cache([whole]) == cold_share(tmp_path)
    assert share_in_cache([whole]) == cold_share(tmp_path)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.read(PAGE)
    assert share_in_cache([first]) == 1.0
    assert share_in_cache([first, whole]) == pytest.approx(cold_share(tmp_path) or 2 / 65, abs=0.3)


@pytest.fixture
def nobody() -> Iterator[None]:
    """This process has nobody's rights, if it may give its own up."""
    own = os.getresuid()
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 0)
    yield
    os.setresuid(*own)


@pytest.mark.usefixtures("nobody")
def test_files_of_others_have_an_unknown_share() -> None:
    """The kernel calls every page of such files resident, whatever the truth."""
    assert share_in_cache([Extent(Path("/etc/passwd"), 0, 100)]) is None


def measured(
    ranks: Ranks, storage: Storage, place: Path, nodes: int = 1, plant: Plant | None = None
) -> tuple[int, str]:
    """Visit a cell of 6 samples; exit status and output. Its tables are in `place`."""
    cell = replace(
        STORAGE, visits=1, nodes=nodes, storage="synthetic", storage_path=str(storage.path),
        storage_format=storage.format, samples=6,
    )  # fmt: skip
    return run_job(ranks, cell, place, plant=plant)


def test_where_the_library_hides_extents_it_is_not_said_what_is_in_the_page_cache(ranks: Ranks, tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "lmdb")
    prepare(storage, generate=6, seed=1)
    assert measured(ranks, storage, tmp_path / "cell")[0] == 0
    passes = parquet.read(STORAGE_PASSES, tmp_path / "cell/storage_passes.parquet").to_pylist()
    assert {row["resident"] for row in passes} == {None}
    assert parquet.read(STORAGE_READS, tmp_path / "cell/storage_reads.parquet").num_rows == len(passes) * 6


def test_samples_that_were_left_out_are_in_the_record(ranks: Ranks, tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "files")
    prepare(storage, generate=6, seed=1)
    storage.open().extent(4).path.write_bytes(b"no image")
    prepare(storage, generate=None, seed=1, max_corrupt=1)
    assert measured(ranks, storage, tmp_path / "cell")[0] == 0
    (visit,) = parquet.read(VISITS, tmp_path / "cell/visits.parquet").to_pylist()
    assert visit["excluded_samples"] == 1
    assert parquet.read(STORAGE_READS, tmp_path / "cell/storage_reads.parquet").num_rows == 3 * 2 * 5


def test_fewer_samples_than_workers_are_said_in_words(ranks: Ranks, tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "files")
    prepare(storage, generate=1, seed=1)
    assert measured(ranks, storage, tmp_path / "cell", nodes=2)[0] == 0
    (run,) = parquet.read(RUNS, tmp_path / "cell/runs.parquet").to_pylist()
    assert (run["status"], run["reason"]) == (
        "failed", "storage synthetic has 1 samples, fewer than the 2 workers that read at once, each its own"
    )  # fmt: skip


def goes_away(patch: pytest.MonkeyPatch) -> None:
    """The storage is gone before its ninth read."""
    read, done = SampleSet.read, []

    def once_more(samples: SampleSet, index: int) -> bytes:
        done.append(index)
        if len(done) == 9:
            os.rename(samples.path, samples.path.with_name("gone"))
        return read(samples, index)

    patch.setattr(SampleSet, "read", once_more)


def test_a_storage_that_goes_away_ends_the_job_in_words_and_is_no_cells_result(ranks: Ranks, tmp_path: Path) -> None:
    storage = Storage("synthetic", tmp_path / "set", "files")
    prepare(storage, generate=8, seed=1)
    status, printed = measured(ranks, storage, tmp_path / "cell", plant=goes_away)
    assert status == EXIT_BAD_INPUT, printed
    assert not (tmp_path / "cell/runs.parquet").exists()
    assert re.search(r"set/class\d+/sample\d+.jpg: cannot be read \(No such file or directory\)", printed)
    assert "Traceback" not in printed
