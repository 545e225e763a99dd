"""The plan before submission: what visits are expected to take, jobs, budgets, and what was used of it."""

import json
import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_cells import COLLECTIVES, SGEMM, STORAGE, TO_TARGET, TRAIN
from scipy.stats import t as student_t

from stallpoint.errors import InputError
from stallpoint.models.terms.peaks import MEMORY_AXES
from stallpoint.networks import find_network
from stallpoint.networks.description import describe
from stallpoint.records.parquet import write, write_cell
from stallpoint.records.tables import LARGEST_BATCH, NETWORK_LAYERS, RUNS
from stallpoint.schedule.agenda import Limits
from stallpoint.schedule.ledger import Measurement
from stallpoint.schedule.next_visit import _student_quantile, visits_needed
from stallpoint.schedule.planning import memory_forecast, visit_durations
from stallpoint.schedule.planning.expected import DEFAULTS, Expectations, Expected, Interval, seconds, size_of
from stallpoint.schedule.planning.plan import FILE, MIN_MINUTES, Plan, planned, read
from stallpoint.schedule.planning.plan_text import check_budget, text, warnings
from stallpoint.schedule.planning.visit_durations import CellTimes, Durations, Session
from stallpoint.schedule.requested import block_of
from stallpoint.study import work
from stallpoint.study.cells import Cell
from stallpoint.study.job_kind import run_row
from stallpoint.study.kinds.train_kind import TrainCell

ALL = [TRAIN, SGEMM, COLLECTIVES, STORAGE]
SITTING = Session("2026-01-01T00:00:00+00:00", nodes=4, visits=8, visiting=80.0, wall=96.0, starts=1, starting=12.0)


NO_LIMITS = Limits()


def on(nodes: int, **changes: object) -> TrainCell:
    return replace(TRAIN, **{"nodes": nodes, "worker_batch": 8 // nodes, **changes})


def a_plan(
    cells: list[Cell],
    results: Path,
    limits: Limits = NO_LIMITS,
    *,
    concurrent: bool = False,
    storages: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    cores: int | None = None,
    others: Sequence[Path] = (),
) -> Plan:
    blocks: dict[str, list[Measurement]] = {}
    for cell in cells:
        folder = results / "visits" / cell.path / "0~1"
        blocks.setdefault(block_of(cell), []).append(Measurement(cell, folder))
    return planned(
        "tiny", blocks, limits, results, concurrent=concurrent, storages=storages, cores=cores, other_folders=others
    )


def knows(results: Path, *took: CellTimes) -> None:
    visit_durations.add(visit_durations.file_of(results / "schedule" / "cpu.json"), took, SITTING)


# -- Rates


def test_training_takes_its_products_three_times_over_the_rate() -> None:
    size = work.Size(multiply_adds=1e9, gradient_bytes=0)
    computing = 2 * 3 * 1e9 * 8 / 35e9
    reading = 8 * work.SAMPLE_DECODED
    expected = work.VISIT + 5 * (work.ITERATION + computing + reading)
    assert seconds(TRAIN, size) == pytest.approx(expected)
    assert seconds(replace(TRAIN, prefetch=1), size) == pytest.approx(expected - 5 * reading)
    two_threads = replace(TRAIN, threads_per_worker=2 * TRAIN.threads_per_worker)
    assert seconds(two_threads, size) == pytest.approx(expected - 5 * computing / 2)


def test_gradients_take_the_time_of_a_ring() -> None:
    size = work.Size(multiply_adds=0, gradient_bytes=1e9)
    alone, four = (seconds(on(nodes, worker_batch=8), size) for nodes in (1, 4))
    assert four - alone == pytest.approx(5 * 2 * 3 / 4)


def test_ranks_that_share_cores_take_longer() -> None:
    size = work.Size(1e9, 1e6)
    assert seconds(on(4), size, cores=2) > seconds(on(4), size) == seconds(on(4), size, cores=4)
    on_gpus = replace(on(4), device="cuda", precision="bf16")
    assert seconds(on_gpus, size, cores=2) == seconds(on_gpus, size)


@pytest.mark.parametrize(("entry", "manifest"), [
    ({"generate": 2000}, None), ({"convert_from": "source"}, None), ({"path": "/images"}, {"samples": 2000}),
])  # fmt: skip
def test_an_epoch_has_the_samples_that_a_storage_generates_or_was_found_to_have(
    entry: dict[str, Any], manifest: dict[str, Any] | None, tmp_path: Path
) -> None:
    """One that nobody looked through yet may be as large as ImageNet."""
    if manifest:
        (tmp_path / "storage").mkdir()
        (tmp_path / "storage/raw.json").write_text(json.dumps(manifest))
    known, unknown = (
        a_plan([TO_TARGET], tmp_path / name, storages=storages)
        for name, storages in ((".", {"raw": entry, "source": {"generate": 2000}}), ("elsewhere", {}))
    )
    steps, of_imagenet = ((plan.jobs[0].orders[0].expected.visit.typical - work.VISIT) for plan in (known, unknown))
    assert of_imagenet / steps == pytest.approx(work.EPOCH_SAMPLES / 2000)


RATES = [
    "CPU_RATE", "CPU_PRODUCTS_RATE", "PASSES", "BANDWIDTH", "MEMORY", "UPDATE_BYTES", "SAMPLE_DECODED", "ITERATION",
    "VISIT", "BURST", "READ_SECONDS",
]  # fmt: skip


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.kind)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("factor", [0.5, 2])
def test_plans_with_another_rate_agree_within_the_stated_factor_and_once_visited_altogether(
    rate: str, factor: float, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = CellTimes(cell, [100.0, 110.0, 90.0], [])
    stated, seen = (Expectations(known, tmp_path).of(cell).visit for known in ([], [took]))
    monkeypatch.setattr(work, rate, factor * getattr(work, rate))
    other, again = (Expectations(known, tmp_path).of(cell).visit for known in ([], [took]))
    assert other.low <= stated.typical <= other.high
    assert again.values() == pytest.approx(seen.values())


def test_a_network_that_nobody_described_counts_like_a_known_one_of_its_inputs(tmp_path: Path) -> None:
    write(NETWORK_LAYERS, describe(find_network("lenet")), tmp_path / "described.parquet")
    assert size_of("described", {"build": "x:y"}, tmp_path) == size_of("lenet", None, tmp_path)
    images = size_of("mine", {"build": "x:y", "image_size": 112}, tmp_path)
    known = size_of("resnet50", None, tmp_path)
    assert images.multiply_adds == known.multiply_adds / 4
    assert not images.known
    mine = replace(TRAIN, network="mine", own_network={"build": "x:y", "sequence_length": 8, "vocabulary": 9})
    expected = Expectations([], tmp_path).of(mine)
    assert expected.visit.high == pytest.approx(work.UNKNOWN_NETWORK_FACTOR * expected.visit.typical)


# -- What is expected of a visit


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.kind)
def test_without_any_record_it_is_the_work_to_within_a_factor(cell: Cell, tmp_path: Path) -> None:
    found = Expectations([], tmp_path).of(cell)
    assert found.basis == DEFAULTS
    assert found.visit.high / found.visit.typical == pytest.approx(work.ERROR_FACTOR)


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.kind)
def test_a_cell_that_was_visited_takes_as_long_again(cell: Cell, tmp_path: Path) -> None:
    found = Expectations([CellTimes(cell, [100.0, 110.0, 90.0], [])], tmp_path).of(cell)
    assert found.basis == "cell"
    assert found.visit.typical == pytest.approx(100)
    assert found.visit.low < 90
    assert 110 < found.visit.high < 150


def test_records_are_scaled_by_what_a_cell_asks_more(tmp_path: Path) -> None:
    expectations = Expectations([CellTimes(TRAIN, [50.0], [])], tmp_path)
    longer = expectations.of(replace(TRAIN, iterations=9))
    assert longer.basis == "cell"
    assert longer.visit.typical == pytest.approx(100, rel=0.1)
    assert expectations.of(replace(TRAIN, batch=16, worker_batch=16)).basis == "nodes"
    assert expectations.of(on(2)).basis == "network"
    assert expectations.of(replace(TRAIN, network="vgg16")).basis == "kind"
    assert expectations.of(SGEMM).basis == "hardware"
    assert expectations.of(replace(TRAIN, hardware="gpu")).basis == DEFAULTS


def test_the_more_similar_the_visited_cells_the_narrower_the_interval(tmp_path: Path) -> None:
    expectations = Expectations([CellTimes(TRAIN, [50.0], [])], tmp_path)
    cells = [TRAIN, replace(TRAIN, batch=16, worker_batch=16), on(2), replace(TRAIN, network="vgg16"), SGEMM]
    widths = [found.visit.high / found.visit.low for found in map(expectations.of, cells)]
    assert widths == sorted(widths)


@given(
    seconds=st.lists(st.floats(0, 1e4), max_size=6),
    cell=st.sampled_from([*ALL, on(2), on(4), replace(TRAIN, batch=64, worker_batch=64)]),
    known=st.sampled_from(ALL),
)
def test_intervals_hold_what_is_typical(seconds: list[float], cell: Cell, known: Cell) -> None:
    found = Expectations([CellTimes(known, seconds, [])], Path("nowhere")).of(cell).visit
    assert 0 < found.low < found.typical < found.high < math.inf


# -- How many visits


@pytest.mark.parametrize("freedom", [3, 4, 7, 15, 40])
def test_students_quantile_is_near_enough(freedom: int) -> None:
    assert _student_quantile(freedom) == pytest.approx(float(student_t.ppf(0.95, freedom)), rel=3e-3)


def test_noise_asks_for_visits() -> None:
    assert visits_needed(0.0, 4, 0.1) == 4
    assert visits_needed(0.03, 4, 0.1) == 4
    assert visits_needed(0.08, 4, 0.1) in (6, 7, 8)
    assert visits_needed(1.0, 4, 0.1) == 16


def test_only_cells_of_a_speedup_get_further_visits(tmp_path: Path) -> None:
    noisy = [
        CellTimes(cell, [10.0] * 4, [0.0, 0.5, 1.0, 1.5]) for cell in (on(1), on(2), replace(TRAIN, scaling="compute"))
    ]
    knows(tmp_path, *noisy)
    (job,) = a_plan([one.cell for one in noisy], tmp_path, Limits(0.1)).jobs
    assert [order.further for order in job.orders] == [(12, 12), (12, 12), (0, 0)]
    first = job.orders[0]
    assert first.seconds.high == pytest.approx((first.visits + 12) * first.expected.visit.high)
    (job,) = a_plan([one.cell for one in noisy], tmp_path, Limits(0)).jobs
    assert {order.further for order in job.orders} == {(0, 0)}


# -- The plan


def test_more_visits_cost_more(tmp_path: Path) -> None:
    few, many = (a_plan([replace(cell, visits=visits) for cell in ALL], tmp_path) for visits in (2, 4))
    for place in range(3):
        assert many.seconds.values()[place] > few.seconds.values()[place]
    assert sum(row.visits for row in many.rows) == 2 * sum(row.visits for row in few.rows) == 16


def test_a_study_with_records_is_planned_as_long_as_it_took(tmp_path: Path) -> None:
    knows(tmp_path, *(CellTimes(cell, [9.0, 10.0, 11.0], []) for cell in ALL))
    plan = a_plan(ALL, tmp_path)
    (job,) = plan.jobs
    assert plan.basis == {"cell": 4}
    between = (96 - 80 - 12) / 8
    assert job.seconds.typical == pytest.approx(12 + 16 * (10 + between))
    assert job.seconds.low < job.seconds.typical < job.seconds.high < 2 * job.seconds.typical
    assert job.node_hours.typical == pytest.approx(4 * job.seconds.typical / 3600), "all nodes, all the time"
    assert job.runtime == math.ceil(1.25 * job.seconds.high / 60)


def test_visits_that_are_there_are_not_made_again_and_tell_how_long_they_take(tmp_path: Path) -> None:
    knows(tmp_path, CellTimes(replace(TRAIN, iterations=9), [50.0], []))  # the same cell with other settings, before
    folder = tmp_path / "visits" / TRAIN.path / "0~1"
    for visit in (1, 2, 3):
        write_cell(folder / f"visit~{visit}", {RUNS.name: [{**run_row(TRAIN, datetime.now(UTC)), "duration": 7.0}]})
    (row,) = a_plan([TRAIN], tmp_path).rows
    assert row.visits == 1
    assert row.seconds.typical == pytest.approx(7)


def test_a_job_asks_for_some_minutes_at_least_and_no_more_than_its_budget_lets_it_take(tmp_path: Path) -> None:
    knows(tmp_path, *(CellTimes(cell, [0.1], []) for cell in ALL))
    (job,) = a_plan(ALL, tmp_path).jobs
    assert job.runtime == MIN_MINUTES
    knows(tmp_path, *(CellTimes(cell, [300.0], []) for cell in ALL))
    (free,) = a_plan(ALL, tmp_path).jobs
    (bound,) = a_plan(ALL, tmp_path, Limits(minutes=85)).jobs
    assert bound.seconds.high < free.seconds.high


def test_a_job_asks_for_no_time_that_earlier_ones_used_of_its_budget(tmp_path: Path) -> None:
    knows(tmp_path, *(CellTimes(cell, [300.0], []) for cell in ALL))
    limits = Limits(minutes=30)
    (fresh,) = a_plan(ALL, tmp_path, limits).jobs
    for visit in (1, 2):
        folder = tmp_path / "visits" / TRAIN.path / "0~1" / f"visit~{visit}"
        write_cell(folder, {RUNS.name: [{**run_row(TRAIN, datetime.now(UTC)), "duration": 300.0}]})
    (begun,) = a_plan(ALL, tmp_path, limits).jobs
    saved = 600 + 2 * begun.between.high
    assert fresh.seconds.high - begun.seconds.high == pytest.approx(saved, rel=0.01)
    assert begun.runtime < fresh.runtime


def test_what_another_study_measured_on_this_machine_is_expected_until_this_one_has_visits(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    cells: list[Cell] = [on(1), on(2)]
    fresh = a_plan(cells, here)
    knows(there, CellTimes(on(2, iterations=7), [9.0, 9.1, 9.2], []))
    others = visit_durations.other_studies(here)
    assert others == [there / "schedule" / visit_durations.FOLDER]
    plan = a_plan(cells, here, others=others)
    assert set(fresh.basis) == {"defaults"}
    assert set(plan.basis) == {"cell", "network"}
    knows(here, CellTimes(cells[0], [5.0, 5.1], []), CellTimes(cells[1], [7.0, 7.1], []))
    assert a_plan(cells, here, others=others).basis == {"cell": 2}


def test_a_machine_is_known_again_under_another_name_of_its_hardware(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    cells: list[Cell] = [
        on(1, hardware="mine"), on(1, hardware="gpu", device="cuda"), on(1, hardware="xeon", threads_per_worker=24)
    ]  # fmt: skip
    file = there / "schedule" / visit_durations.FOLDER / "cpu.json"
    others = [file.parent]
    for host, bases in ((socket.gethostname(), {"cell": 1, "defaults": 2}), ("elsewhere", {"defaults": 3})):
        visit_durations.add(file, [CellTimes(on(1), [9.0, 9.1], [])], replace(SITTING, host=host))
        assert a_plan(cells, here, others=others, cores=2).basis == bases, "by device and threads"
        assert a_plan(cells, here, others=others).basis == {"defaults": 3}, "jobs run on other machines: by name"
    assert a_plan([on(1)], here, others=others).basis == {"cell": 1}


def test_first_visits_over_the_budget_are_said_and_asked_for_by_their_typical_time(tmp_path: Path) -> None:
    cells: list[Cell] = [on(nodes, worker_batch=1024) for nodes in (1, 2)]
    plan, free = a_plan(cells, tmp_path, Limits(minutes=1)), a_plan(cells, tmp_path)
    ((job,), (line,)) = plan.jobs, warnings(plan)
    assert line.startswith("budget: job cpu has 1 min 0 s, but each cell's first visit comes first: ")
    assert job.first_visits.high / 60 > job.runtime > job.first_visits.typical / 60
    assert list(warnings(free)) == []
    assert math.isinf(free.limit)
    assert plan.limit > job.first_visits.typical > job.budget_left


def test_jobs_of_a_cluster_run_at_once_and_those_of_a_machine_one_after_the_other(tmp_path: Path) -> None:
    cells = [TRAIN, replace(TRAIN, hardware="gpu", device="cuda"), replace(TRAIN, repeat=2)]
    one_by_one, concurrent = a_plan(cells, tmp_path), a_plan(cells, tmp_path, concurrent=True)
    assert [job.name for job in one_by_one.jobs] == ["cpu", "gpu", "cpu.repeat2"]
    assert one_by_one.seconds.typical == pytest.approx(sum(job.seconds.typical for job in one_by_one.jobs))
    assert concurrent.seconds.typical == max(job.seconds.typical for job in concurrent.jobs)
    assert "asks for" in text(concurrent)
    assert "asks for" not in text(one_by_one)
    at_once = [text(plan).count("if all run at once") for plan in (concurrent, one_by_one)]
    assert at_once == [1, 0]
    assert "at once" not in text(a_plan([TRAIN], tmp_path, concurrent=True))


def test_what_smaller_cells_leave_idle_and_what_nested_jobs_would_save(tmp_path: Path) -> None:
    """Cells on 1 to 256 nodes that take as long: on average (1 + 2 + ... + 256) / 9 of 256 nodes are used."""
    cells: list[Cell] = [replace(TRAIN, nodes=2**power, batch=256, worker_batch=1) for power in range(9)]
    knows(tmp_path, *(CellTimes(cell, [60.0], []) for cell in cells))
    plan = a_plan(cells, tmp_path, concurrent=True)
    (job,) = plan.jobs
    idle = 1 - 511 / 9 / 256
    assert plan.idle_node_hours.typical == pytest.approx(idle * plan.node_hours.typical)
    low, typical, high = plan.nesting_saves.values()
    assert typical == pytest.approx(plan.idle_node_hours.typical - 255 * job.start.typical / 3600)
    assert low == pytest.approx(max(0, plan.idle_node_hours.low - 255 * job.start.high / 3600))
    assert high == pytest.approx(plan.idle_node_hours.high - 255 * job.start.low / 3600)
    (line,) = [line for line in text(plan).splitlines() if line.startswith("    nested jobs, ")]
    assert f"would save {typical:,.0f} [" in line
    assert plan.to_json()["total"]["nesting_saves"] == pytest.approx([low, typical, high], abs=1e-6)
    assert "idle" not in text(a_plan(cells, tmp_path)), "a machine's own processes are no nodes that others wait for"
    alone = a_plan([replace(TRAIN, nodes=2)], tmp_path, concurrent=True)
    assert (alone.idle_node_hours.high, alone.nesting_saves.high) == (0, 0)
    assert "idle" not in text(alone)


def test_the_plan_in_words(tmp_path: Path) -> None:
    knows(tmp_path, *(CellTimes(cell, [60.0], []) for cell in ALL))
    lines = text(a_plan(ALL, tmp_path)).splitlines()
    assert lines[1].split() == ["kind", "hardware", "nodes", "cells", "visits", "time", "node-hours"]
    assert [line.split()[:5] for line in lines[2:6]] == [
        ["train", "cpu", "1", "1", "4"],
        ["sgemm", "cpu", "1", "1", "4"],
        ["collectives", "cpu", "4", "1", "4"],
        ["storage", "cpu", "2", "1", "4"],
    ]
    assert "4 min 0 s [3 min 8 s, 5 min 7 s]" in lines[2]
    assert lines[6].startswith("  in all: 1 job, 16 min 20 s [")
    assert lines[7].startswith("    job cpu: 4 nodes, ")
    assert lines[-1] == "  expected from earlier visits to the same cell (4 cells)"
    assert text(Plan("tiny", [])) == "  to measure now: nothing"


def test_fewer_cores_than_threads_are_said(tmp_path: Path) -> None:
    cells: list[Cell] = [replace(TRAIN, nodes=2), replace(TRAIN, hardware="gpu", threads_per_worker=1)]
    (line,) = [line for line in text(a_plan(cells, tmp_path, cores=1)).splitlines() if line.startswith("  cores: ")]
    assert line.startswith("  cores: job cpu computes with 2 threads at once and may use 1 core (affinity mask, cgroup")
    assert [line[2:]] == list(warnings(a_plan(cells, tmp_path, cores=1))), "the run says so, too"
    assert "cores:" not in text(a_plan(cells, tmp_path, cores=2))
    assert "cores:" not in text(a_plan(cells, tmp_path)), "on a cluster each job has its own"


def test_mini_batches_that_may_not_fit_are_named_and_none_is_left_out(tmp_path: Path) -> None:
    def expected(b: int, **known: object) -> list[str]:
        row: dict[str, object] = dict.fromkeys((column.name for column in LARGEST_BATCH.columns), math.nan)
        row |= {name: getattr(TRAIN, name) for name in MEMORY_AXES} | {
            "memory": "host",
            "note": "",
            "basis": "predicted",
        }
        row |= {"largest_batch": 100.0, "largest_batch_low": 90.0, "largest_batch_high": 110.0, **known}
        write(LARGEST_BATCH, [row], tmp_path / "models/largest_batch.parquet")
        plan = a_plan([replace(TRAIN, worker_batch=b)], tmp_path)
        assert len(plan.jobs[0].orders) == 1
        assert all(f"memory: {line}" in text(plan) for line in plan.memory)
        return list(plan.memory)

    (tmp_path / "models").mkdir()
    assert expected(90) == []
    ((may,), (fail,)) = expected(100), expected(111)
    assert may.endswith("b = 100 may fail: host memory, up to 100 [90, 110] is predicted to fit")
    assert "b = 111 is expected to fail" in fail
    (failed,) = expected(64, smallest_failed=64.0, basis="measured")
    assert failed.endswith("b = 64 is expected to fail: b = 64 ran out of memory")
    assert expected(63, smallest_failed=64.0, basis="measured") == []
    assert expected(10**6, hardware="another") == []


def test_plans_are_kept_one_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / FILE
    plan = a_plan(ALL, tmp_path)
    Plan("tiny", []).append(file)
    assert read(file) == []
    plan.append(file)
    plan.append(file)
    first, second = json.loads(file.read_text())
    assert first["rows"] == second["rows"]
    assert first["total"]["visits"] == 16
    assert first["jobs"][0]["runtime_minutes"] == plan.jobs[0].runtime
    file.write_text("{")
    with pytest.raises(InputError, match=r"plan.json: holds no plans"):
        read(file)


# -- Budgets


def test_a_budget_that_the_least_visits_exceed_is_refused_and_what_would_fit_is_said(tmp_path: Path) -> None:
    cells = [on(1), on(2), on(4), COLLECTIVES]
    knows(
        tmp_path,
        *(CellTimes(cell, [seconds], []) for cell, seconds in zip(cells, (100.0, 60.0, 40.0, 10.0), strict=True)),
    )
    with pytest.raises(InputError) as refused:
        check_budget(a_plan(cells, tmp_path, Limits(minutes=10)))
    lines = str(refused.value).splitlines()
    assert lines[0].startswith(
        "budget: hardware cpu has 10 min 0 s (minutes: 10, on 4 nodes), but 4 visits to each of 4"
    )
    assert "14 min 0 s [" in lines[0]
    assert lines[2:6] == [
        "  train alexnet on 1 node: 6 min 40 s (1 cell)",
        "  train alexnet on 2 nodes: 4 min 0 s (1 cell)",
        "  train alexnet on 4 nodes: 2 min 40 s (1 cell)",
        "  collectives on 4 nodes: 40 s (1 cell)",
    ]
    assert lines[6] == "visits: 2 would fit"
    with pytest.raises(
        InputError, match=r"node_hours: 0.1.*\n.*\n.*\n.*\n.*\n.*\nnot even one visit to each cell fits"
    ):
        check_budget(a_plan(cells, tmp_path, Limits(node_hours=0.1)))


def test_what_fits_or_has_no_budget_or_was_begun_is_not_refused(tmp_path: Path) -> None:
    knows(tmp_path, CellTimes(TRAIN, [100.0], []))
    check_budget(a_plan([TRAIN], tmp_path))
    check_budget(a_plan([TRAIN], tmp_path, Limits(minutes=7)))
    begun = tmp_path / "visits" / TRAIN.path / "0~1" / "visit~1"
    write_cell(begun, {RUNS.name: [{**run_row(TRAIN, datetime.now(UTC)), "duration": 100.0}]})
    check_budget(a_plan([TRAIN], tmp_path, Limits(minutes=1)))


# -- Durations on disk


def test_durations_are_kept_and_the_last_ones_count(tmp_path: Path) -> None:
    file = tmp_path / "cpu.json"
    visit_durations.add(file, [CellTimes(TRAIN, [1.0], [0.1]), CellTimes(SGEMM, [], [])], SITTING)
    visit_durations.add(file, [CellTimes(TRAIN, [2.0], [0.2]), CellTimes(STORAGE, [3.0], [])], SITTING)
    found = Durations.read(file)
    assert found.cells == {
        one.cell.path: one for one in (CellTimes(TRAIN, [2.0], [0.2]), CellTimes(STORAGE, [3.0], []))
    }
    assert found.sessions == [SITTING, SITTING]
    assert Durations.read_all(tmp_path) == found


@pytest.mark.parametrize("words", ["", "{", "[]", '{"format": 0}', '{"format": 1, "cells": [{"cell": {"kind": "?"}}]}'])
def test_a_file_that_says_nothing_useful_is_no_error(tmp_path: Path, words: str) -> None:
    (tmp_path / "a.json").write_text(words)
    assert Durations.read_all(tmp_path) == Durations()
    assert Durations.read(tmp_path / "none.json") == Durations()


def test_intervals_are_added_by_their_ends() -> None:
    assert Interval(1, 2, 3) + Interval(1, 1, 1) == Interval(2, 3, 4)
    assert Interval(1, 2, 3).times(2).cap_at(5) == Interval(2, 4, 5)
    assert Expected(Interval(), DEFAULTS, None).visit.values() == [0, 0, 0]


@pytest.mark.parametrize(
    ("cells", "rows", "taken"),
    [(35, 8_540, 534), (35, 341_600, 1152), (35, 363_160, 1499), (35, 3_416_000, 2276), (13_200, 0, 16_000)],
)
def test_fit_asks_for_the_memory_that_so_many_rows_took(cells: int, rows: int, taken: int, tmp_path: Path) -> None:
    """Megabytes that ``benchmarks/run.py scale many-cells`` printed."""
    for name, count in (("runs", cells), ("iterations", rows)):
        pq.write_table(pa.table({"x": pa.nulls(count)}), tmp_path / name)
    assert taken <= memory_forecast.fit_memory(tmp_path / "runs", tmp_path / "iterations") <= 2 * taken + 1000
