"""Shared training sets copied to the nodes' own disks: whole or not at all, once, and removed when nobody uses them."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from launching import copied
from visiting_cells import train

from stallpoint.errors import CannotRun, InputError
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.training.staging import Staging
from stallpoint.measure.world import World
from stallpoint.records.tables import STAGING
from stallpoint.storage import Storage
from stallpoint.storage.generate import write_synthetic
from stallpoint.study.kinds.train_kind import TrainCell

SAMPLES = 20  # more than are copied at once

STAGE = """
import os, sys, time
from pathlib import Path
from stallpoint.study.kinds import cell_from_json
from stallpoint.measure.training import staging
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
{body}
cell = cell_from_json(sys.argv[1])
with staging.Staging(World.start(1)) as staged:
    try:
        print(staged.stage(cell)(cell, Recorder(cell, 0)).storage_path, flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    {then}
"""
STOPPING = """
copyfile = staging.shutil.copyfile
def stopping(source, target):
    copyfile(source, target)
    os.write(1, b"copied\\n")  # at once: several threads copy
    time.sleep(600)
staging.shutil.copyfile = stopping
"""
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A shared storage."""
    write_synthetic(Storage("shared", tmp_path / "shared", "files"), SAMPLES, seed=1)
    return tmp_path / "shared"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A node's own disk."""
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def cell(shared: Path, disk: Path) -> TrainCell:
    return replace(train(), storage_path=str(shared), stage_to=str(disk))


def prepared(staging: Staging, cell: TrainCell) -> tuple[Path, list[dict[str, Any]]]:
    """Where a visit to the cell reads, and the rows it has of staging."""
    keep = Recorder(cell, 0)
    on_node = staging.stage(cell)(cell, keep)
    return Path(on_node.storage_path), keep.arrow(STAGING).to_pylist()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def left(disk: Path) -> list[Path]:
    """What is left on the node but the folder that held it."""
    return list(disk.glob("*/*"))


def start(cell: TrainCell, body: str = "", then: str = "pass", **variables: str) -> subprocess.Popen[str]:
    program = Path(mkdtemp(dir=Path(cell.stage_to).parent), "stage.py")
    program.write_text(STAGE.format(body=body, then=then))
    command, environment = [sys.executable, program, cell.to_json()], {**os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@pytest.fixture
def killed(cell: TrainCell) -> None:
    """A job was killed when it had copied some of the files."""
    with start(cell, STOPPING, **copied()) as process:
        begun = said(process)
        process.kill()
        process.communicate()  # until the copy, too, has ended
    assert begun == "copied"


def test_the_copy_is_the_set_and_goes_with_the_job(cell: TrainCell, shared: Path, disk: Path) -> None:
    with Staging(World.start(1)) as staging:
        folder, (row,) = prepared(staging, cell)
        assert folder.is_relative_to(disk)
        assert contents(folder) == contents(shared)
        assert Storage("shared", folder, "files").open().samples == SAMPLES
    assert left(disk) == []
    assert (row["samples"], row["files"], row["node"], row["job_nodes"]) == (SAMPLES, len(contents(shared)), 0, 1)
    assert row["bytes"] == sum(map(len, contents(shared).values()))
    assert row["seconds"] > 0


def test_cells_of_a_job_share_a_copy(cell: TrainCell) -> None:
    with Staging(World.start(1)) as staging:
        first, rows = prepared(staging, cell)
        other, none = prepared(staging, replace(cell, batch=4, worker_batch=4))
    assert first == other
    assert (len(rows), none) == (1, [])


def test_a_cell_that_is_not_staged_stays_as_it_is(cell: TrainCell, disk: Path) -> None:
    not_staged = replace(cell, stage_to="")
    with Staging(World.start(1)) as staging:
        assert prepared(staging, not_staged) == (Path(cell.storage_path), [])
    assert list(disk.iterdir()) == []


def test_a_copy_that_is_kept_is_there_for_the_next_job(cell: TrainCell, shared: Path) -> None:
    kept = replace(cell, stage_keep=True)
    found = []
    for _ in range(2):
        with Staging(World.start(1)) as staging:
            found.append(prepared(staging, kept))
    (first, rows), (second, none) = found
    assert first == second
    assert (len(rows), none) == (1, [])
    assert contents(first) == contents(shared)


def test_a_kept_copy_that_lost_a_part_is_made_again(cell: TrainCell, shared: Path) -> None:
    kept = replace(cell, stage_keep=True)
    with Staging(World.start(1)) as staging:
        folder, _ = prepared(staging, kept)
    damaged = next(file for file in folder.rglob("*") if file.is_file())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with Staging(World.start(1)) as staging:
        assert prepared(staging, kept)[1] != []
    assert contents(folder) == contents(shared)


def test_a_set_that_changed_is_copied_again(cell: TrainCell, shared: Path) -> None:
    kept = replace(cell, stage_keep=True)
    with Staging(World.start(1)) as staging:
        before, _ = prepared(staging, kept)
    changed = next(file for file in shared.rglob("*") if file.is_file())
    os.utime(changed, ns=(0, 1))
    with Staging(World.start(1)) as staging:
        assert prepared(staging, kept)[0] != before


def test_half_a_copy_is_never_taken_for_whole(cell: TrainCell, shared: Path, disk: Path, killed: None) -> None:
    (half,) = (file for file in left(disk) if file.name.startswith("."))
    assert 0 < len(contents(half)) < len(contents(shared))
    with Staging(World.start(1)) as staging:
        folder, rows = prepared(staging, cell)
        assert len(rows) == 1
        assert contents(folder) == contents(shared)
    assert left(disk) == []


def test_what_a_killed_job_left_is_removed_by_the_next_to_stage_there(
    cell: TrainCell, disk: Path, tmp_path: Path
) -> None:
    with start(cell, then="time.sleep(600)", **copied()) as process:
        copy = Path(said(process))
        process.kill()
        process.communicate()
    assert copy.is_dir()
    write_synthetic(Storage("other", tmp_path / "other", "files"), 2, seed=2)
    with Staging(World.start(1)) as staging:
        prepared(staging, replace(cell, storage_path=str(tmp_path / "other")))
        assert not copy.exists()
    assert left(disk) == []


def test_a_copy_in_use_stays(cell: TrainCell, disk: Path) -> None:
    with Staging(World.start(1)) as staging:
        with start(cell, then="sys.stdin.readline()", **copied()) as process:
            theirs = Path(said(process))
            ours, rows = prepared(staging, cell)
        assert ours == theirs
        assert rows == [], "the other process copied it"
        assert process.returncode == 0
        assert ours.is_dir(), "it ended, and its copy is in use here"
    assert left(disk) == []


def test_two_jobs_that_begin_together_make_one_copy(cell: TrainCell, shared: Path, disk: Path) -> None:
    processes = [start(cell, then="sys.stdin.readline()", **copied()) for _ in range(2)]  # stays until both were read
    first, second = (Path(said(process)) for process in processes)
    assert first == second
    assert contents(first) == contents(shared)
    for process in processes:
        process.communicate(timeout=60)
    assert left(disk) == []


def test_a_full_disk_of_a_node_is_a_result_of_the_cell(cell: TrainCell, disk: Path) -> None:
    with start(cell, FULL, **copied()) as process:
        assert said(process).startswith(f"CannotRun storage local cannot be staged: {disk}")
    assert left(disk) == []


def test_a_missing_set_is_named(cell: TrainCell, tmp_path: Path) -> None:
    gone = replace(cell, storage_path=str(tmp_path / "gone"))
    with Staging(World.start(1)) as staging, pytest.raises(InputError, match=r"storage local: .*gone does not exist"):
        prepared(staging, gone)


def test_a_folder_of_the_node_that_cannot_be_is_named(cell: TrainCell) -> None:
    with Staging(World.start(1)) as staging:
        with pytest.raises(InputError, match="no such variable on the node"):
            prepared(staging, replace(cell, stage_to="$NO_SUCH_VARIABLE/x"))
        with pytest.raises((CannotRun, InputError), match="staging to /proc"):
            prepared(staging, replace(cell, stage_to="/proc/nothing"))
