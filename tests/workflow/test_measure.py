"""Cells take turns in one job, and still are what Snakemake takes them for: each a target that is made when needed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pytest
from checkout import BLOCK, OWN_NETWORK, WAITING, Checkout, Ran
from kills import processes_of

from stallpoint.records.parquet import read, write
from stallpoint.records.tables import COLLECTIVES, ITERATIONS, RUNS, SGEMM

MINE = {**BLOCK, "network": "mine", "scaling": "strong"}
STUDY = {
    "visits": 2, "iterations": 1, "warmup": 0, "networks": OWN_NETWORK, "matrix": [MINE], "external_tables": {},
    "claims": [], "collectives": {"largest": 4096, "samples": 1}, "storage_reads": {"samples": 2},
}  # fmt: skip
RAW = "results/tiny/raw"


@pytest.fixture(scope="module")
def measured(new_checkout: Callable[..., Checkout]) -> Checkout:
    """A study whose cells are measured; nothing is derived from them."""
    checkout = new_checkout(**STUDY)
    (checkout.folder / "mine.py").write_text(WAITING)
    ran = checkout.snakemake("results/tiny/tables/runs.parquet")
    assert ran.status == 0, ran.text
    return checkout


@pytest.fixture
def study(measured: Checkout) -> Iterator[Checkout]:
    """The measured study, with its configuration put back afterwards."""
    yield measured
    (measured.folder / "wait").unlink(missing_ok=True)
    measured.write_study()


TRAIN = [
    f"{RAW}/train/network~mine/hardware~local/nodes~{nodes}/workers_per_node~1/batch~2/storage~jpeg/scaling~strong/"
    "sync~wfbp/prefetch~1/repeat~1"
    for nodes in (1, 2)
]


def run(checkout: Checkout, *arguments: str) -> dict[str, int]:
    """Run Snakemake, which must end well; its jobs by rule."""
    ran = checkout.snakemake("--logger-stallpoint-plain", *arguments)
    assert ran.status == 0, ran.text
    return ran.jobs


def contents(checkout: Checkout) -> dict[str, tuple[bytes, int]]:
    """What is in the records of the cells, and when each of their files was written."""
    files = [*checkout.results("raw").rglob("*.parquet"), *checkout.results("visits").rglob("*/record/*")]
    return {
        str(file.relative_to(checkout.results())): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in files
        if file.is_file()
    }


def changed(before: dict[str, tuple[bytes, int]], after: dict[str, tuple[bytes, int]]) -> set[str]:
    """Cells whose records differ, as targets."""
    files = {file for file in before | after if before.get(file) != after.get(file) and file.startswith("raw/")}
    return {f"results/tiny/{Path(file).parent}" for file in files}


def test_every_cell_has_its_visits(study: Checkout) -> None:
    for cell in cells_of_disk(study):
        name = {"train": ITERATIONS, "sgemm": SGEMM, "collectives": COLLECTIVES}.get(cell.split("/")[3])
        if name:
            visits = set(read(name, study.folder / cell / f"{name.name}.parquet")["visit"].to_pylist())
            assert {1, 2} <= visits, cell
    assert not list(study.results("visits").rglob("visit~*"))


def cells_of_disk(checkout: Checkout) -> list[str]:
    return sorted(
        str(file.parent.relative_to(checkout.folder)) for file in checkout.results("raw").rglob("runs.parquet")
    )


def test_nothing_is_left_to_do_and_what_was_deleted_is_there_again_without_a_job(study: Checkout) -> None:
    cells = cells_of_disk(study)
    assert len(cells) >= 4
    before = contents(study)
    shutil.rmtree(study.folder / cells[0])
    assert run(study, *cells) == {}
    assert {file: value[0] for file, value in contents(study).items()} == {
        file: value[0] for file, value in before.items()
    }


def test_cells_of_a_kind_that_is_forced_are_measured_again_and_no_others(study: Checkout) -> None:
    cells = cells_of_disk(study)
    before = contents(study)
    assert run(study, "-R", "train", "--", *cells) == {"measure_local": 1, "train": 2}
    assert changed(before, contents(study)) == set(TRAIN)


def test_cells_that_failed_are_measured_again_on_request(study: Checkout) -> None:
    cells, again = cells_of_disk(study), ("--config", "retry=failed")
    runs = study.folder / TRAIN[0] / "runs.parquet"
    (row,) = read(RUNS, runs).to_pylist()
    write(RUNS, [{**row, "status": "failed", "reason": "no launcher"}], runs)
    before = contents(study)
    assert "Nothing to be done" in study.snakemake("-n", *cells).text, "a result like any other"
    assert run(study, *cells, *again) == {"measure_local": 1, "train": 1}
    assert changed(before, contents(study)) == {TRAIN[0]}
    assert read(RUNS, runs)["status"].to_pylist() == ["ok"]
    assert "Nothing to be done" in study.snakemake("-n", *cells, *again).text
    assert "retry=failed measures failed cells again" in study.snakemake("-n", "--config", "retry=all").text


def test_a_damaged_storage_is_mended_and_finished_cells_stay(study: Checkout) -> None:
    cells = cells_of_disk(study)
    images = list((study.folder / "images").rglob("*.jpg"))
    for image in images:
        image.write_bytes(b"")
    assert images
    for folder in (study.folder / TRAIN[0], study.results("visits", place(TRAIN[0]))):
        shutil.rmtree(folder)
    before = contents(study)
    ran = study.snakemake(*cells)
    assert ran.status != 0
    assert "snakemake -R prepare_storage" in ran.text
    run(study, "-R", "prepare_storage", "--", *cells)
    assert changed(before, contents(study)) == {TRAIN[0]}


def place(target: str) -> str:
    """Where the cell of a target is, below the folder of all raw records."""
    return target.removeprefix(f"{RAW}/")


def test_editing_a_cell_measures_it_and_nothing_else(study: Checkout) -> None:
    cells, before = cells_of_disk(study), contents(study)
    study.write_study(include=[{**MINE, "nodes": 1, "iterations": 3}])
    assert run(study, *cells) == {"measure_local": 1, "train": 1}
    assert changed(before, contents(study)) == {TRAIN[0]}
    assert len(set(read(ITERATIONS, study.folder / TRAIN[0] / "iterations.parquet")["iteration"].to_pylist())) >= 6
    study.write_study()
    assert run(study, *cells) == {"train": 1}, "its visits with the former settings are still there"
    assert {file: value[0] for file, value in contents(study).items() if file.startswith("raw/")} == {
        file: value[0] for file, value in before.items() if file.startswith("raw/")
    }


@pytest.mark.parametrize(
    ("end", "of_all"),
    [
        (signal.SIGINT, True),
        (signal.SIGKILL, False),
        pytest.param(signal.SIGKILL, True, marks=pytest.mark.night),
        pytest.param(signal.SIGHUP, True, marks=pytest.mark.night),
        pytest.param(signal.SIGHUP, False, marks=pytest.mark.night),
    ],
)
def test_a_run_that_is_ended_goes_on_with_its_visits(study: Checkout, end: signal.Signals, of_all: bool) -> None:
    """Ended while it measures: Ctrl-C, a closed terminal, Snakemake alone killed, or all at once."""
    study.write_study(include=[{**MINE, "nodes": 1, "iterations": 3 + 2 * end + of_all}])
    (study.folder / "wait").touch()
    log = study.folder / "logs/tiny/schedule/local.log"
    log.unlink(missing_ok=True)
    ended = study.start_snakemake(TRAIN[0], said=subprocess.DEVNULL, own_session=True)
    folder = study.results("visits") / Path(TRAIN[0]).relative_to(RAW)
    known = set(folder.iterdir())
    while ended.poll() is None and not (log.exists() and "iteration 1/" in log.read_text()):
        time.sleep(0.05)
    assert ended.poll() is None
    started = processes_of(ended.pid)
    (os.killpg if of_all else os.kill)(ended.pid, end)
    ended.wait()
    assert not [path for path in set(folder.iterdir()) - known if [*path.glob("done~*")]]
    if of_all:
        (study.folder / "wait").unlink()
        ran = study.snakemake("--logger-stallpoint-plain", TRAIN[0])
    else:  # what is left still measures when the next run begins, which ends it
        assert set(started) & set(processes_of(ended.pid))
        copied = forked.environment(study.library)
        again = study.start_snakemake("--logger-stallpoint-plain", TRAIN[0], **copied)
        while again.poll() is None and set(started) & set(processes_of(ended.pid)):
            time.sleep(0.05)
        (study.folder / "wait").unlink()
        text, _ = again.communicate()
        ran = Ran(again.returncode, text)
    assert (ran.status, ran.jobs) == (0, {"measure_local": 1, "train": 1}), ran.text
    assert ran.text.count("an earlier run here was killed") == (end != signal.SIGINT), ran.text
    iterations = read(ITERATIONS, study.folder / TRAIN[0] / "iterations.parquet").to_pandas()
    assert {1, 2} <= set(iterations["visit"])
