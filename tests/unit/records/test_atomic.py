"""What is replaced is there, old or new, at whatever moment it ends; with every system call: test_crash_points.py."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from stallpoint.records import atomic, parquet
from stallpoint.records.tables import RUNS, VISITS


def folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    return path


def test_the_old_folder_is_there_until_the_new_one_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename, seen = folder(tmp_path / "folder", "old"), os.rename, []

    def looking(source: Path, place: Path) -> None:
        seen.append({file.read_text() for file in tmp_path.rglob("file")})
        rename(source, place)

    monkeypatch.setattr(os, "rename", looking)
    with atomic.atomic(target) as scratch:
        folder(scratch, "new")
    assert seen
    assert all(contents == {"old", "new"} for contents in seen)
    assert (target / "file").read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_cell_is_there_with_all_its_tables_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, write, there = tmp_path / "cell", parquet._write_checked, []

    def looking(rows: pa.Table, path: Path) -> None:
        write(rows, path)
        there.append(cell.exists())

    monkeypatch.setattr(parquet, "_write_checked", looking)
    parquet.write_cell(cell, {RUNS.name: [], VISITS.name: []})
    assert there == [False, False]
    assert sorted(file.name for file in cell.iterdir()) == ["runs.parquet", "visits.parquet"]


def test_what_a_killed_process_had_half_written_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "figures"
    live, killed, below = (atomic.atomic(place / name) for name in ("live", "drawn", "raw/cell"))
    folder(live.__enter__(), "of a process that writes")
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 2**22 + 1)  # no process has such a number
        folder(killed.__enter__(), "half")
        folder(below.__enter__(), "half")
        patched.setattr(atomic.socket, "gethostname", lambda: "elsewhere")
        other = atomic.atomic(place / "other")
        folder(other.__enter__(), "of another machine")
    folder(place / ".drawn.ours.5.settings", "a user's")
    folder(place / "drawn", "complete")
    before = set(place.rglob("file"))
    atomic.remove_scratch_folders(tmp_path, skipped_names=("raw",))
    gone = [file.relative_to(place).as_posix() for file in before - set(place.rglob("file"))]
    assert len(gone) == 1
    assert gone[0].startswith(".drawn.")
    assert gone[0].endswith("/drawn/file")
    atomic.remove_scratch_folders(place / "raw")
    assert list((place / "raw").iterdir()) == []
