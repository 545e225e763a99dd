"""Whole sessions with real processes, under mpirun: what happens to cells and visits when something goes wrong."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import forked
import pytest
from dying import VARIABLE, WAYS
from launching import VISITING, copied
from nightly import first_by_day
from visiting_cells import agenda, collectives, sgemm, train

from stallpoint.errors import InputError
from stallpoint.measure.visiting import members
from stallpoint.records import disturbances
from stallpoint.records.parquet import read
from stallpoint.records.tables import COLLECTIVES, ITERATIONS, RUNS, VISITS
from stallpoint.schedule.agenda import Limits
from stallpoint.schedule.ledger import RECORD, Measurement, round_folder
from stallpoint.schedule.processes import CHECK_ADVICE, LOCAL_LAUNCHER
from stallpoint.schedule.session import measure_cells
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.train_kind import TrainCell

pytestmark = pytest.mark.ranks

PROGRAM = Path(__file__).parents[3] / "scripts" / "measure.py"

NETWORKS = """
import os
import signal

from torch import nn


class Network(nn.Module):
    def __init__(self, trouble=lambda: None):
        super().__init__()
        self.fc = nn.Linear(3 * 8 * 8, 10)
        self.trouble, self.calls = trouble, 0

    def forward(self, images):
        self.calls += 1
        if self.calls == 2:
            self.trouble()
        return self.fc(images.flatten(1))


def steady():
    return Network()


def killed():
    return Network(lambda: os.kill(os.getpid(), signal.SIGKILL))


def defective():
    return Network(lambda: 1 / 0)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with images and networks; the processes run on one core each."""
    monkeypatch.chdir(tmp_path)
    for name, value in {**VISITING, **copied()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(disturbances, "MIN_SLOWDOWN", math.inf)  # what is measured so quickly is told from nothing
    (tmp_path / "nets.py").write_text(NETWORKS)
    write_synthetic(Storage("local", tmp_path / "images", "files"), 8, seed=1)
    return tmp_path


def entry(name: str) -> dict[str, object]:
    return {"build": f"nets.py:{name}", "image_size": 8}


def own(name: str, *, nodes: int = 1, visits: int = 3) -> TrainCell:
    return replace(train(nodes, visits=visits, network=name), own_network=entry(name))


def measurement(cell: Cell, place: Path) -> Measurement:
    return Measurement(cell, round_folder(cell, place / "visits" / cell.path, again=False))


def run_of(cell: Cell, place: Path) -> dict[str, object]:
    """The row of runs in a cell's record; checks that it is said to be whole."""
    assert measurement(cell, place).done.exists()
    (run,) = read(RUNS, measurement(cell, place).folder / RECORD / "runs.parquet").to_pylist()
    return dict(run)


def visits_recorded(cell: Cell, place: Path) -> list[int]:
    rows = read(VISITS, measurement(cell, place).folder / RECORD / "visits.parquet").to_pandas()
    return sorted(set(rows["visit"]))


def turns(cells: list[Cell], place: Path, limits: Limits | None = None) -> None:
    measure_cells(agenda(cells, place / "visits", limits), launcher=LOCAL_LAUNCHER, log=place / "turns.log")


def test_cells_of_all_sizes_and_schemes_take_turns_in_rounds(place: Path) -> None:
    cells = [own("steady", visits=2), own("steady", nodes=2, visits=2), collectives(2), collectives(reduction="ring")]
    turns(cells, place)
    order = []
    for cell in cells:
        assert (run_of(cell, place)["status"], run_of(cell, place)["ended"]) == ("ok", "visits")
        rows = read(VISITS, measurement(cell, place).folder / RECORD / "visits.parquet").to_pandas()
        visits = range(1, rows["visit"].max() + 1)
        assert cell.visits <= len(visits) <= 2 * cell.visits, "a disturbed visit asks for another one"
        assert rows.groupby("visit").size().to_dict() == dict.fromkeys(visits, cell.ranks)
        assert rows.groupby("visit")["position"].nunique().eq(1).all()
        order += [(int(position), cell.path) for position in rows["position"].unique()]
    assert [position for position, _ in sorted(order)] == list(range(1, len(order) + 1))
    assert {cell for _, cell in sorted(order)[:4]} == {cell.path for cell in cells}
    iterations = read(ITERATIONS, measurement(cells[1], place).folder / RECORD / "iterations.parquet").to_pandas()
    assert iterations["iteration"].tolist() == (iterations["visit"] - 1).tolist(), "visits count on"
    assert iterations[["visit", "rank"]].sort_values(["visit", "rank"]).equals(iterations[["visit", "rank"]])
    alone = iterations[["iteration", "rank", "loss"]].pivot(index="iteration", columns="rank", values="loss")
    assert alone.nunique(axis=1).eq(2).all(), "each rank and each visit has samples of its own"
    of_ring = read(COLLECTIVES, measurement(cells[3], place).folder / RECORD / "collectives.parquet")
    assert set(of_ring["reduction"].to_pylist()) == {"ring"}


def test_training_data_that_is_gone_is_said_once_for_each_cell_and_visits_before_stay(place: Path) -> None:
    cells = [own("steady"), own("steady", nodes=2)]
    turns(cells[:1], place)
    one = measurement(cells[0], place)
    one.done.unlink()
    shutil.move(one.folder / RECORD, one.visit_folder(1))
    shutil.rmtree(place / "images")
    with pytest.raises(InputError) as error:
        turns(cells, place)
    lines = str(error.value).splitlines()
    assert sorted(line.partition(": ")[0] for line in lines) == sorted(cell.path for cell in cells)
    assert all(": storage local: " in line and "snakemake -R prepare_storage" in line for line in lines)
    assert (one.visits, one.is_recorded) == ([1], False)


def test_a_session_goes_on_where_one_was_killed_while_it_removed_recorded_visits(place: Path) -> None:
    cell, other = own("steady", visits=1), sgemm("steady", visits=1, own_network=entry("steady"))
    turns([cell], place)
    one = measurement(cell, place)
    recorded = visits_recorded(cell, place)
    one.done.unlink()
    shutil.copytree(one.folder / RECORD, one.visit_folder(1))
    (one.visit_folder(1) / "runs.parquet").unlink()
    turns([cell, other], place)
    assert (run_of(other, place)["status"], visits_recorded(cell, place), one.visits) == ("ok", recorded, [])
    assert one.done.exists()


def test_what_cannot_run_is_recorded_as_failed_and_the_others_go_on(place: Path) -> None:
    """Too much memory, no such device, and processes that are killed in the middle of a later visit."""
    large = collectives(size=2**60)
    device = sgemm(device="cuda")
    killed = own("killed", nodes=2)
    steady = own("steady", nodes=2)
    turns([large, device, killed, steady], place)
    assert str(run_of(large, place)["reason"]).startswith("out of memory: ")
    assert "cuda" in str(run_of(device, place)["reason"]).lower()
    assert (run_of(steady, place)["status"], visits_recorded(steady, place)[:3]) == ("ok", [1, 2, 3])
    # Its first visit was well, and so was the second one when it was made again.
    assert (run_of(killed, place)["status"], visits_recorded(killed, place)) == ("ok", [1, 2])
    assert measurement(killed, place).visits == []


def test_a_defect_of_a_later_visit_is_said_and_the_visits_before_count(place: Path) -> None:
    defective, steady = own("defective"), own("steady")
    turns([defective, steady], place)
    said = (place / "turns.log").read_text()
    assert f"cannot run: {defective.path}: ZeroDivisionError: division by zero" in said
    assert 'nets.py", line ' in said
    assert (run_of(defective, place)["status"], visits_recorded(defective, place)) == ("ok", [1])
    assert visits_recorded(steady, place)[:3] == [1, 2, 3]


@pytest.mark.parametrize(
    ("first", "ways"),
    first_by_day([(0, ["exit", "kill"]), (0, list(WAYS)), (1, list(WAYS))]),
    ids=["two ways", "each way", "each the other way round"],
)
def test_however_cells_die_each_is_named_and_the_others_go_on(
    place: Path, monkeypatch: pytest.MonkeyPatch, first: int, ways: list[str]
) -> None:
    """Alone, and while another rank waits in MPI; what exceptions do by day is in test_job.py."""
    cells = [own("steady", nodes=2, visits=1), sgemm("steady", own_network=entry("steady"), visits=1)]
    deaths = [(replace(cells[(first + number) % 2], repeat=2 + number), way) for number, way in enumerate(ways)]
    monkeypatch.setenv(VARIABLE, json.dumps({cell.path: way for cell, way in deaths}))
    turns([*(cell for cell, _ in deaths), *cells], place)
    for cell, way in deaths:
        run = run_of(cell, place)
        assert (run["status"], WAYS[way][1] in str(run["reason"])) == ("failed", True), (way, run["reason"])
        assert f"cannot run: {cell.path}: " in (place / "turns.log").read_text()
    assert [run_of(cell, place)["status"] for cell in cells] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        ("nosuchrun -n {ranks}", "no program 'nosuchrun' to start 2 ranks with"),
        ("mpirun -n {ranks:99999999999}", "resource launcher: a placeholder is only a name"),
        ("mpirun -n {ranks.real}", r"resource launcher: unknown placeholder \{ranks.real\}; did you mean \{ranks\}"),
    ],
)
def test_a_launcher_that_cannot_be_is_named(place: Path, launcher: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        measure_cells(agenda([collectives()], place / "visits"), launcher=launcher, log=place / "log")


def test_a_launcher_that_starts_another_number_is_a_result_of_all_cells_and_tried_once(place: Path) -> None:
    mpirun = Path(sys.executable).with_name("mpirun")
    one = f"sh -c 'echo started >>starts && exec {mpirun} --oversubscribe -n 1 $*' sh"
    cells = [collectives(), train(2)]
    measure_cells(agenda(cells, place / "visits"), launcher=one, log=place / "log")
    for cell in cells:
        assert "the job needs 2 MPI ranks and MPI started 1" in str(run_of(cell, place)["reason"])
    assert (place / "starts").read_text() == "started\n"
    assert (place / "log").read_text().count(f"{CHECK_ADVICE}\n") == 1


def test_processes_that_do_not_start_say_so_and_where_to_begin(place: Path) -> None:
    launcher = "sh -c 'echo no such host >&2; exit 7' sh"
    with pytest.raises(InputError, match=r"could not be started \(exit status 7\)") as error:
        measure_cells(agenda([collectives(nodes=2)], place / "visits"), launcher=launcher, log=place / "log")
    assert str(error.value).splitlines()[-2:] == ["no such host", CHECK_ADVICE]


MANY = 100_000


@pytest.fixture
def started(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Cell]], subprocess.Popen[str]]]:
    """Starts sessions as jobs do, none as a copy; what is left of them in the end is killed."""
    monkeypatch.delenv(forked.VARIABLE)
    sessions = []

    def start(cells: list[Cell]) -> subprocess.Popen[str]:
        agenda(cells, place / "visits").write(place / "agenda.json")
        command = [sys.executable, str(PROGRAM), str(place / "agenda.json"), str(place / "turns.log"), LOCAL_LAUNCHER]
        job = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
        sessions.append(job)
        wait(lambda: job.poll() is not None or all(len(measurement(cell, place).visits) > 1 for cell in cells))
        assert job.poll() is None, job.communicate()
        return job

    yield start
    for job in sessions:
        job.kill()
        job.communicate()


def wait(until: Callable[[], bool]) -> None:
    patience = time.monotonic() + 120
    while not until() and time.monotonic() < patience:
        time.sleep(0.05)
    assert until()


def descendants(pid: int) -> list[int]:
    """Processes that it started, and those that these started."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state != "Z":
            parents[int(process.name)] = int(parent)
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


@pytest.mark.parametrize(
    ("end", "nodes"),
    [
        (signal.SIGKILL, 2),
        # By day jobs are told to end in histories (test_crash_points.py) and while they measure (test_job.py).
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.night),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.night),  # by day in tests/workflow/test_measure.py
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.night),
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.night),
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.night),
    ],
)
def test_no_finished_visit_is_lost_and_the_next_session_goes_on(
    place: Path, started: Callable[[list[Cell]], subprocess.Popen[str]], end: signal.Signals, nodes: int
) -> None:
    cells: list[Cell] = [own("steady", nodes=nodes, visits=MANY)]
    job = started(cells)
    processes = descendants(job.pid)
    assert len(processes) >= nodes
    before = measurement(cells[0], place).visits
    if end == signal.SIGINT:  # Ctrl-C is for all that run in the terminal's foreground
        os.killpg(job.pid, end)
    else:
        job.send_signal(end)
    _, errors = job.communicate(timeout=600)
    assert job.returncode != 0
    assert "Traceback" not in errors
    wait(lambda: not alive(processes))
    found = measurement(cells[0], place).visits
    assert found == list(range(1, len(found) + 1))
    assert found[: len(before)] == before
    assert not measurement(cells[0], place).is_recorded
    turns(cells, place, Limits(minutes=0))
    assert visits_recorded(cells[0], place) == found
    assert run_of(cells[0], place)["ended"] == "budget"


def test_cells_of_several_workers_a_node_have_as_many_of_each_node() -> None:
    cell = replace(train(), workers_per_node=2)
    assert members(cell, 4) == [0, 1]
    assert members(replace(cell, nodes=3), 4) == [0, 1, 4, 5, 8, 9]
    assert members(replace(cell, nodes=3), 2) == [0, 1, 2, 3, 4, 5]
    assert members(train(3), 1) == [0, 1, 2]
