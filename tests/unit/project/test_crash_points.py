"""Programs that are killed, or refused by the file system, lose nothing: some points here, more in the night."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import crash_points
import pytest
from nightly import first_by_day
from planted_defects import ROOT, defects
from tally import tallies

FAULTS = ("kill -9", "ENOSPC")
PROGRAMS = {"job: train": 40, "job: cannot run": 20, "copy of a record": 20, "storage, again": 60, "collect": 150}
"""Which operations of each are tried in the night: every so-many-th."""


def lose_nothing(*programs: str, every: int) -> None:
    found = list(tallies("crash_points", *programs, "--every", str(every), "--faults", *FAULTS))
    assert [(tally["of"], tally["fault"]) for tally in found] == [
        (name, fault) for name in programs for fault in FAULTS
    ]
    assert all(tally["trials"] > 0 for tally in found)
    assert [line for tally in found for line in tally["red"]] == []


def test_programs_that_are_killed_or_refused_lose_nothing() -> None:
    """One of each kind: what measures, copies, replaces a folder and collects."""
    lose_nothing(*(name for name in PROGRAMS if name != "job: cannot run"), every=max(PROGRAMS.values()))


def test_a_record_is_whole_before_it_is_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mv").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "mv").chmod(0o755)
    (tmp_path / "record").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("input", "output_folder", "log"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    finished: Any = SimpleNamespace(done=tmp_path / "done")
    with pytest.raises(SystemExit):
        crash_points.copy(finished, tmp_path / "raw" / "cell")
    assert [file.name for file in (tmp_path / "raw").iterdir()] == ["cell.part"]


@pytest.mark.night
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_is_killed_or_refused_more_often_loses_nothing(program: str) -> None:
    lose_nothing(program, every=PROGRAMS[program])


@pytest.mark.parametrize("examples", first_by_day([2, 30]))
def test_whatever_happens_every_cell_is_recorded_once(examples: int) -> None:
    found = list(tallies("histories", "--examples", str(examples)))
    assert sum(tally["trials"] for tally in found) >= examples
    assert [line for tally in found for line in tally["red"]] == []


@pytest.mark.night
def test_every_defect_that_is_planted_is_found() -> None:
    (found,) = tallies("planted_defects")
    assert found["red"] == []


def test_defects_can_be_planted() -> None:
    assert len(defects()) >= 20
    for defect in defects():
        assert (ROOT / defect.file).read_text().count(defect.was) == 1, defect.name
