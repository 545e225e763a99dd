"""Visits on disk: what is killed goes on, and nothing is lost on the way into a record."""

import functools
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import small_study
from visiting_cells import agenda, collectives, sgemm

from stallpoint.errors import InputError
from stallpoint.measure.recorder import Recorder
from stallpoint.records.parquet import read, write_cell
from stallpoint.records.tables import COLLECTIVES, RUNS
from stallpoint.schedule.agenda import Agenda, Limits
from stallpoint.schedule.ledger import RECORD, Measurement, round_folder
from stallpoint.schedule.requested import (
    RequestedTargets,
    all_done,
    block_of,
    blocks,
    group_by_block,
    mark_file,
    measurement,
)
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import run_row

CELL = collectives()
STARTED = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def measured(tmp_path: Path) -> Measurement:
    return Measurement(CELL, round_folder(CELL, tmp_path / "visits" / CELL.path, again=False))


def visit(measured: Measurement, number: int, *, failure: str = "", duration: float = 2.0) -> None:
    recorder = Recorder(measured.cell, rank=0, visit=number)
    samples = [10 * number, 10 * number + 1]
    recorder.add(
        COLLECTIVES, operation="all-reduce", message_bytes=4, sample=samples, warmup=False, calls=1, seconds=0.5
    )
    row = {**run_row(measured.cell, STARTED, failure=failure), "duration": duration}
    rows = {} if failure else {COLLECTIVES.name: recorder.arrow(COLLECTIVES)}
    write_cell(measured.visit_folder(number), {RUNS.name: [row], **rows})


def raising(error: Exception, *_: object) -> None:
    raise error


def recorded(measured: Measurement) -> tuple[dict[str, object], list[int]]:
    (run,) = read(RUNS, measured.folder / RECORD / "runs.parquet").to_pylist()
    file = measured.folder / RECORD / "collectives.parquet"
    return run, read(COLLECTIVES, file)["sample"].to_pylist() if file.exists() else []


def test_settings_and_rounds_have_folders_of_their_own(tmp_path: Path) -> None:
    def folder(again: bool, cell: Cell = CELL) -> Path:
        return round_folder(cell, tmp_path, again=again)

    first = folder(False)
    assert folder(True) == first, "what was not finished goes on"
    assert first.name.endswith("~1")
    (first / "visit~1").mkdir(parents=True)
    assert folder(True) == folder(False) == first
    Measurement(CELL, first).done.touch()
    assert folder(False) == first
    second = folder(True)
    assert second.name == first.name.replace("~1", "~2")
    second.mkdir()
    assert folder(False) == folder(True) == second, "the latest counts, finished or not"
    other = folder(False, replace(CELL, samples=9))
    assert other.name.endswith("~1")
    assert other.name[:8] != first.name[:8]
    for round_ in range(3, 12):
        (first.with_name(f"{first.name[:8]}~{round_}")).mkdir()
    assert folder(False).name.endswith("~11"), "rounds are numbers, not names"


def test_a_record_holds_the_rows_of_all_visits_in_their_order(measured: Measurement) -> None:
    for number in (2, 10, 1):
        visit(measured, number)
    assert measured.visits == [1, 2, 10]
    measured.write_record("precision", (4.0, 5.0, 7.0))
    run, samples = recorded(measured)
    assert samples == [10, 11, 20, 21, 100, 101]
    assert [run[name] for name in ("planned_low", "planned", "planned_high")] == [4, 5, 7]
    assert (run["status"], run["duration"], run["ended"]) == ("ok", 6.0, "precision")
    assert measured.visits == []
    assert not measured.done.exists()
    assert not measured.placed
    measured.finish()
    assert measured.done.exists()
    assert measured.placed
    assert read(COLLECTIVES, measured.raw / "collectives.parquet")["sample"].to_pylist() == samples


@pytest.mark.parametrize("links", [True, False])
def test_the_raw_records_are_those_of_the_latest_measurement(
    measured: Measurement, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr("os.link", functools.partial(raising, OSError("no links here")))
    other = Measurement(CELL, measured.folder.with_name("other~1"))
    for one, number in ((measured, 1), (other, 2), (measured, 3)):
        if not one.is_recorded:
            visit(one, number)
            one.write_record("visits")
        one.finish()
        assert (measured.placed, other.placed) == (one is measured, one is other)
    (measured.raw / "collectives.parquet").unlink()
    assert not measured.placed
    assert measured.raw.joinpath("runs.parquet").samefile(measured.folder / RECORD / "runs.parquet") == links


def test_failed_visits_are_left_out_unless_all_failed(measured: Measurement) -> None:
    visit(measured, 1)
    visit(measured, 2, failure="out of memory")
    measured.write_record("visits")
    run, samples = recorded(measured)
    assert (run["status"], samples, run["duration"]) == ("ok", [10, 11], 2.0)


def test_a_cell_all_of_whose_visits_failed_says_why(measured: Measurement) -> None:
    visit(measured, 1, failure="out of memory")
    visit(measured, 2, failure="no such device")
    measured.write_record("visits")
    run, samples = recorded(measured)
    assert (run["status"], run["reason"], run["ended"], samples) == ("failed", "no such device", "", [])


def test_nothing_is_lost_between_the_record_and_the_removal_of_visits(
    measured: Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(measured, 1)
    visit(measured, 2)
    remove = shutil.rmtree

    def killed(path: Path, *_: object, **__: object) -> None:
        if "visit~2" in str(path):
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        measured.write_record("visits")
    monkeypatch.undo()
    assert measured.is_recorded
    assert measured.visits == [2], "only what the record holds was removed"
    measured.write_record("something else")
    run, samples = recorded(measured)
    assert (samples, run["ended"]) == ([10, 11, 20, 21], "visits")
    assert measured.visits == []


def test_a_record_that_was_not_written_whole_leaves_the_visits(
    measured: Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(measured, 1)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InputError, match="no space left"):
        measured.write_record("visits")
    monkeypatch.undo()
    assert (measured.visits, measured.is_recorded) == ([1], False)


def test_an_agenda_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = agenda([CELL, sgemm()], tmp_path / "visits", Limits(0.1, 7.0, None))
    written.write(tmp_path / "schedule" / "cpu.json")
    found = Agenda.read(tmp_path / "schedule" / "cpu.json")
    assert (list(found.orders), found.limits, found.seed) == (list(written.orders), written.limits, written.seed)
    assert [one.cell for one in found.measurements()] == [CELL, sgemm()]
    assert pa.types.is_integer(COLLECTIVES.schema.field("visit").type)


def test_an_agenda_that_never_shows_up_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cpu\.json: missing, although the workflow writes it"):
        Agenda.read(tmp_path / "cpu.json", patience=0)


RAW = f"results/tiny/raw/{CELL.path}"


@pytest.mark.parametrize(
    ("asked", "again"),
    [
        (RequestedTargets(), False),
        (RequestedTargets(forced=frozenset({"collectives"})), True),
        (RequestedTargets(forced=frozenset({"train"})), False),
        (RequestedTargets(forced=frozenset({RAW})), True),
        (RequestedTargets(targets=frozenset({RAW})), False),
        (RequestedTargets(whole_study=True), True),
    ],
)
def test_what_is_forced_is_measured_again(asked: RequestedTargets, again: bool) -> None:
    assert asked.again("collectives", RAW) == again


def test_only_cells_asked_for_are_measured_alone() -> None:
    def alone(*targets: str) -> frozenset[str] | None:
        return RequestedTargets(frozenset(targets)).only_cells("results/tiny")

    assert alone() is None
    assert alone("all") is None
    assert alone(RAW) == {CELL.path}
    assert alone(f"{RAW}/") == {CELL.path}
    assert alone("results/tiny/traces/train/a/layers") == {"train/a/layers"}
    assert alone(RAW, "results/tiny/conclusions.md") is None
    assert alone("results/other/raw/x") is None


def test_a_nested_entry_has_a_block_for_each_number_of_nodes_and_each_run_to_a_target() -> None:
    cells = [CELL, replace(CELL, nodes=4), sgemm(), sgemm(repeat=2), sgemm(hardware="gpu")]
    assert [block_of(cell, {"cpu"}) for cell in cells] == [
        f"cpu.nodes{CELL.nodes}", "cpu.nodes4", "cpu.nodes1", "cpu.nodes1.repeat2", "gpu",
    ]  # fmt: skip
    study = small_study.study(
        hardware={"cpu": {"device": "cpu", "nodes": 4, "nested": True}},
        convergence=[
            {"network": "lenet", "hardware": "cpu", "nodes": [1, 2], "batch": 8, "storage": "disk", "seeds": 3}
        ],
    )
    runs = study.cells_of_kind("convergence")
    assert len({block_of(cell, study.nested) for cell in runs}) == len(runs) == 6
    assert {block_of(cell) for cell in runs} == {"cpu"}


def test_blocks_are_of_a_hardware_entry_and_a_repeat(tmp_path: Path) -> None:
    cells = [CELL, sgemm(), sgemm(repeat=2), sgemm(hardware="gpu")]
    assert [block_of(cell) for cell in cells] == ["cpu", "cpu", "cpu.repeat2", "gpu"]
    results = str(tmp_path)
    alone = RequestedTargets(frozenset({f"{results}/raw/{CELL.path}"}))
    found = [measurement(cell, tmp_path / "visits", again=False) for cell in cells]
    everything = blocks(found, RequestedTargets(), results)
    assert everything == {"cpu": found[:2], "cpu.repeat2": found[2:3], "gpu": found[3:]}
    assert blocks(found, alone, results) == {"cpu": found[:1]}
    assert all_done(found[:1], found[:1])
    assert not all_done(found[:2], found[:1])
    for one in found:
        write_cell(one.folder / RECORD, {RUNS.name: [run_row(one.cell, STARTED)]})
    found[0].finish()
    assert blocks(found, RequestedTargets(), results)["cpu"] == found[1:2]
    assert blocks(found, alone, results) == {}
    assert all_done(found[:2], found[1:2])
    (again,) = blocks([measurement(CELL, tmp_path / "visits", again=True)], RequestedTargets(), results)["cpu"]
    assert again.folder.name[-2:] == "~2"
    for one in found:
        one.finish()
    assert blocks(found, RequestedTargets(), results) == {
        "cpu": found[:1],
        "cpu.repeat2": found[2:3],
        "gpu": found[3:],
    }, "marks"
    for name, block in group_by_block(found).items():
        mark_file(name, block, results).touch()
    assert blocks(found, RequestedTargets(), results) == {}
    assert blocks([again, *found[1:]], RequestedTargets(), results) == {"cpu": [again]}, (
        "it was measured with other settings"
    )
