import errno
import os
import re
import resource
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launching import copied, end_of_job, run_job, start_job
from little import NETWORK
from resident_ranks import Ranks
from sample_cells import COLLECTIVES as COLLECTIVES_CELL
from sample_cells import TRAIN

from stallpoint.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    MAX_LINE_LENGTH,
    CannotRun,
    InputError,
    Unavailable,
    Unreadable,
)
from stallpoint.measure import job
from stallpoint.measure.interruption import interrupted_folder, spare_folder
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training import optimisers
from stallpoint.measure.world import World
from stallpoint.records import parquet
from stallpoint.records.tables import COLLECTIVES, RUNS, SLURM_JOBS
from stallpoint.schedule.processes import VisitEnd
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.strategies.presets import PRESETS, to_values
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.study.kinds.train_kind import TrainCell

pytestmark = pytest.mark.ranks

ROWS = 1000

MEASURE_THEN = """
def measure(cell, world, keep):
    for sample in range({rows}):
        row = dict(operation="all-reduce", message_bytes=4, sample=sample, warmup=False, calls=1)
        keep.add(COLLECTIVES, **row, seconds=1 / (1 + sample))
    print("measured", flush=True)
    {then}
"""

SAVING_SLOWLY = """
import os, time
save_rows = job.save_rows
def when_told(*arguments):
    os.write(1, b"saving\\n")
    while not os.path.exists({go_on!r}):
        time.sleep(0.01)
    return save_rows(*arguments)
job.save_rows = when_told
"""

NO_MORE_PROCESSES = """
import os
def fork():
    raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = fork
"""


def a_cell(nodes: int) -> CollectivesCell:
    return replace(COLLECTIVES_CELL, nodes=nodes, message_bytes=[1024], samples=2, visits=1)


def add_row(keep: Recorder) -> None:
    keep.add(COLLECTIVES, operation="all-reduce", message_bytes=4, sample=0, warmup=False, calls=1, seconds=0.5)


def raising(error: BaseException) -> Callable[[Any, World, Recorder], None]:
    def measure(cell: CollectivesCell, world: World, keep: Recorder) -> None:
        add_row(keep)
        raise error

    return measure


def failure(folder: Path) -> str:
    """Why the cell in `folder` failed; checks that nothing else is recorded."""
    assert [path.name for path in folder.iterdir()] == ["runs.parquet"]
    (run,) = parquet.read(RUNS, folder / "runs.parquet").to_pylist()
    assert run["status"] == "failed"
    return str(run["reason"])


def rows_saved(cell: CollectivesCell, folder: Path) -> dict[str, int]:
    """Rows of the interrupted measurement, by file."""
    files = interrupted_folder(cell, folder).glob("*.collectives.parquet")
    return {file.name: parquet.read(COLLECTIVES, file).num_rows for file in files}


def everything_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "raw" / a_cell(1).path


def test_a_cell_that_cannot_run_leaves_a_record_of_why_and_its_rows(folder: Path) -> None:
    job.run(a_cell(1), raising(CannotRun("no such device")), folder)
    assert failure(folder) == "no such device"
    assert rows_saved(a_cell(1), folder) == {"rank~0.collectives.parquet": 1}


@pytest.mark.parametrize("allocate", [torch.empty, np.empty])
def test_out_of_memory_is_a_result(folder: Path, allocate: Callable[[int], object]) -> None:
    def measure(cell: CollectivesCell, world: World, keep: Recorder) -> None:
        allocate(2**52)

    job.run(a_cell(1), measure, folder)
    assert failure(folder).startswith("out of memory: ")


@pytest.mark.parametrize(
    "error",
    [
        Unreadable("image.jpg: cannot be read"),
        Unavailable("results: no space left on the device; nothing was written"),
        OSError(errno.EIO, "Input/output error", "image.jpg"),
    ],
)
def test_a_storage_that_fails_is_no_result_and_said_alone(
    folder: Path, capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    with pytest.raises(SystemExit) as ended:
        job.run(a_cell(1), raising(error), folder)
    assert ended.value.code == EXIT_BAD_INPUT
    message, rows = capfd.readouterr().err.splitlines()
    assert message == f"error: {'image.jpg: the storage fails (input/output error)' if error.args[1:] else error}"
    assert rows == f"the rows of rank 0 so far are in {interrupted_folder(a_cell(1), folder)}"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (InputError("image.jpg: not a readable image"), "image.jpg: not a readable image"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (PermissionError(errno.EACCES, "denied", "own.txt"), "PermissionError: [Errno 13] denied: 'own.txt'"),
    ],
)  # fmt: skip
def test_whatever_a_cell_raises_is_its_failure(
    folder: Path, capfd: pytest.CaptureFixture[str], error: BaseException, why: str
) -> None:
    job.run(a_cell(1), raising(error), folder)
    assert failure(folder) == why
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert first == f"error: {why}".rstrip()
    assert second.startswith("the rows" if isinstance(error, InputError) else "Traceback")


def test_rows_of_a_wrong_type_are_a_failure(folder: Path) -> None:
    def measure(cell: CollectivesCell, world: World, keep: Recorder) -> None:
        keep.add(COLLECTIVES, operation=7, message_bytes="x", sample=0, warmup=False, calls=1, seconds=0.5)

    job.run(a_cell(1), measure, folder)
    assert failure(folder).startswith("Arrow")


def test_a_reason_is_no_longer_than_can_be_read(folder: Path) -> None:
    job.run(a_cell(1), raising(ValueError("x" * 300_000)), folder)
    assert len(failure(folder)) <= MAX_LINE_LENGTH


def test_signal_handlers_and_threads_are_as_before(folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    threads = torch.get_num_threads()
    job.run(a_cell(1), lambda cell, world, keep: add_row(keep), folder)
    torch.set_num_threads(threads)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert parquet.read(COLLECTIVES, folder / "collectives.parquet").num_rows == 1


def test_all_tables_of_a_visit_come_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, placed = os.replace, []
    monkeypatch.setattr(os, "replace", lambda new, place: (placed.append(place), put(new, place)))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    job.run(a_cell(1), lambda cell, world, keep: add_row(keep), folder)
    assert placed == [folder]
    assert parquet.read(SLURM_JOBS, folder / "slurm_jobs.parquet")["slurm_job_id"].to_pylist() == ["7"]


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, folder: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    elsewhere = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n"
    body = elsewhere + MEASURE_THEN.format(rows=5 * ROWS, then=limit)
    status, output = end_of_job(a_cell(1), folder, ranks=1, body=body)
    assert status == 2
    assert f"error: {folder}: no space left on the device; nothing was written" in output.splitlines()
    assert "Traceback" not in output
    assert everything_below(tmp_path / "results" / "raw") == []
    assert not folder.exists()


def test_rows_go_to_the_temporary_folder_when_results_cannot_be_written(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "interrupted").write_text("a file where the folder would be")
    with pytest.raises(SystemExit):
        job.run(a_cell(1), raising(Unavailable("no")), folder)
    spare = spare_folder(interrupted_folder(a_cell(1), folder))
    assert spare.is_relative_to(tmp_path)
    assert not spare.is_relative_to(tmp_path / "results")
    assert parquet.read(COLLECTIVES, spare / "rank~0.collectives.parquet").num_rows == 1
    assert str(spare) in capfd.readouterr().err


def test_spare_rows_of_two_studies_do_not_meet(tmp_path: Path) -> None:
    places = {
        spare_folder(interrupted_folder(a_cell(1), tmp_path / checkout / "results" / study / "raw" / a_cell(1).path))
        for checkout in ("here", "there")
        for study in ("first", "second")
    }
    assert len(places) == 4


@pytest.mark.parametrize(
    ("number", "at_start"),
    [
        (signal.SIGTERM, ""),
        (signal.SIGINT, NO_MORE_PROCESSES),
        pytest.param(signal.SIGINT, "", marks=pytest.mark.night),
        pytest.param(signal.SIGTERM, NO_MORE_PROCESSES, marks=pytest.mark.night),
    ],
)
def test_an_interrupted_job_says_where_its_rows_are(
    tmp_path: Path, folder: Path, number: signal.Signals, at_start: str
) -> None:
    body = at_start + MEASURE_THEN.format(rows=ROWS, then="world.comm.recv()  # blocks inside MPI for ever")
    with start_job(a_cell(1), folder, ranks=1, body=body, **copied()) as process:
        assert process.stdout
        assert process.stdout.readline() == "measured\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=600)
    saved = interrupted_folder(a_cell(1), folder)
    assert process.returncode == 128 + number
    assert errors == f"interrupted by {number.name}: the rows of rank 0 so far are in {saved}\n"
    assert rows_saved(a_cell(1), folder) == {"rank~0.collectives.parquet": ROWS}
    assert everything_below(tmp_path / "results" / "raw") == []


def test_ranks_that_mpirun_ends_save_their_rows_though_it_leaves_them_no_time(tmp_path: Path) -> None:
    """It kills them 0.25 s after it told them to end: here they are told before, and still save when they are dead."""
    folder, go_on = tmp_path / "results" / "raw" / a_cell(2).path, tmp_path / "go on"
    then = "print(os.getpid(), flush=True)\n    world.comm.Barrier() if world.rank else world.comm.recv()"
    body = SAVING_SLOWLY.format(go_on=str(go_on)) + MEASURE_THEN.format(rows=ROWS, then=then)
    with start_job(a_cell(2), folder, ranks=2, body=body) as process:
        assert process.stdout
        said = [process.stdout.readline() for _ in range(4)]
        for rank in filter(str.isdecimal, map(str.strip, said)):
            os.kill(int(rank), signal.SIGTERM)
        assert [process.stdout.readline() for _ in range(2)] == ["saving\n"] * 2
        process.terminate()
        process.communicate(timeout=600)
    assert process.returncode != 0
    assert rows_saved(a_cell(2), folder) == {}
    go_on.touch()
    expected = {f"rank~{rank}.collectives.parquet": ROWS for rank in (0, 1)}
    patience = time.monotonic() + 60
    while rows_saved(a_cell(2), folder) != expected and time.monotonic() < patience:
        time.sleep(0.05)
    assert rows_saved(a_cell(2), folder) == expected
    assert everything_below(tmp_path / "results" / "raw") == []


def test_a_rank_that_fails_alone_ends_the_others_and_leaves_the_reason(folder: Path) -> None:
    then = "if world.rank == 1: raise CannotRun('this GPU is broken')\n    world.comm.recv()"
    body = "job._GRACE = 0.2\n" + MEASURE_THEN.format(rows=ROWS, then=then)
    status, output = end_of_job(a_cell(2), folder, ranks=2, body=body)
    assert status == EXIT_FAILED
    assert "error: this GPU is broken" in output
    assert failure(folder) == "this GPU is broken"
    assert rows_saved(a_cell(2), folder)["rank~1.collectives.parquet"] == ROWS


def no_gpu(*_: object) -> None:
    raise CannotRun("no GPU")


def test_ranks_that_fail_together_end_the_job_normally(ranks: Ranks, folder: Path) -> None:
    status, output = run_job(ranks, a_cell(2), folder, measure=no_gpu)
    assert (status, output) == (0, "error: no GPU\nrank 0 had measured nothing yet\n")
    assert failure(folder) == "no GPU"


def no_gpu_and_no_space(*_: object) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    raise CannotRun("no GPU")


def test_ranks_end_together_where_the_reason_cannot_be_written(ranks: Ranks, folder: Path) -> None:
    status, output = run_job(ranks, a_cell(2), folder, measure=no_gpu_and_no_space)
    assert status == 2
    assert [line for line in output.splitlines() if line.startswith("error: ")] == [
        "error: no GPU",
        f"error: {folder}: no space left on the device; nothing was written",
    ]
    assert not folder.exists()


def test_the_wrong_number_of_ranks_is_recorded(folder: Path) -> None:
    job.run(a_cell(3), no_gpu, folder)
    assert failure(folder).startswith("the job needs 3 MPI ranks and MPI started 1")


def test_the_launcher_names_a_rank_that_was_killed(folder: Path) -> None:
    body = MEASURE_THEN.format(rows=1, then="import os; os.kill(os.getpid(), 9)")
    end = VisitEnd(*end_of_job(a_cell(2), folder, ranks=2, body=body))
    assert re.fullmatch(r"rank [01] was killed \(signal 9\)", end.died)
    assert end.out_of_memory == "", "nobody says so"
    assert not folder.exists()


DYING = """
import os
from stallpoint.measure.jobs import train

step, done = train.Trainer.step, []

def dying(self, source):
    done.append(self)
    if len(done) == 3 and self._world.rank == 1:
        os.kill(os.getpid(), 9)
    return step(self, source)

train.Trainer.step = dying
"""


def training(sync: str, folder: Path) -> TrainCell:
    """Enough iterations that none reaches the end before the others are told to stop."""
    images, network = folder / "images", folder / "small.py"
    network.write_text(NETWORK.replace("10))", "10), nn.Linear(10, 10))"))  # which can diverge
    write_synthetic(Storage("local", images, "files"), 4, seed=1)
    return replace(
        TRAIN, nodes=2, visits=1, seed=5, network="small", batch=1, worker_batch=1, scaling="weak", iterations=200,
        storage="local", storage_path=str(images), storage_format="files", sync=sync,
        preset=to_values(PRESETS[sync].preset), own_network={"build": f"{network}:build", "image_size": 8},
    )  # fmt: skip


@pytest.mark.parametrize("sync", ["wfbp", pytest.param("ddp", marks=pytest.mark.night)])
def test_a_rank_that_dies_is_named_and_the_others_end(sync: str, tmp_path: Path) -> None:
    cell = training(sync, tmp_path)
    folder = tmp_path / "results" / "raw" / cell.path
    assert VisitEnd(*end_of_job(cell, folder, ranks=2, body=DYING)).died == "rank 1 was killed (signal 9)"


def diverging(patch: pytest.MonkeyPatch) -> None:
    """Take steps far too large."""
    patch.setattr(optimisers, "STEP_SIZE", 1e30)


@pytest.mark.parametrize("sync", ["wfbp", "ddp"])
def test_a_loss_that_is_no_number_is_recorded_and_the_rows_are_kept(ranks: Ranks, sync: str, tmp_path: Path) -> None:
    cell = training(sync, tmp_path)
    folder = tmp_path / "results" / "raw" / cell.path
    status, output = run_job(ranks, cell, folder, plant=diverging)
    assert status == 0, output
    assert failure(folder).startswith("the loss of iteration 1 is ")
    saved = [file.name for file in interrupted_folder(cell, folder).glob("*.iterations.parquet")]
    assert sorted(saved) == ["rank~0.iterations.parquet", "rank~1.iterations.parquet"]


def test_a_bad_preset_is_refused_before_mpi_starts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cell = replace(training("wfbp", tmp_path), preset={"reduction": "rings"})
    with pytest.raises(SystemExit) as ended:
        job.run(cell, no_gpu, tmp_path / "raw" / cell.path)
    assert ended.value.code == EXIT_BAD_INPUT
    assert "reduction: 'rings' is not one of library, ring, recursive-doubling" in capfd.readouterr().err
