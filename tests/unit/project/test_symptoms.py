"""The pages of symptoms: each command is run on the files of its page, and prints what the page shows."""

import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from pages import ROOT, assert_prints, blocks, commands
from planted_probe import steady, write_records
from planted_traces import Planted

from stallpoint.cli import main
from stallpoint.records.tables import PHASES

SYMPTOMS = sorted((ROOT / "docs/symptoms").glob("*.md"))
MAX_WORDS = 300
CLEAR, BAD_NEWS, UNDECIDED = 0, 1, 3
"""Exit statuses of a command that answered."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with traces of four ranks of which rank 2 is slow, and of two ranks that starve.

    Records of probes: a slow begin, iterations that grow, and a rank that holds the others up for a while.
    """
    for name in ("traces", "starved"):
        (tmp_path / name).mkdir()
    for rank in range(4):
        backward, waits = (18e-3, 0.0) if rank == 2 else (12e-3, 1.5e-3)
        slow = Planted(rank=rank, backward=backward, waits=waits, message_bytes=(40_000_000, 20_000_000, 60_000_000))
        slow.write(tmp_path / f"traces/rank{rank}.json")
    for rank in range(2):
        starved = Planted(workers=2, rank=rank, loading=14e-3, message_bytes=(4_000_000, 4_000_000))
        starved.write(tmp_path / f"starved/rank{rank}.json")
    data, forward, communication = map(PHASES.index, ("data_wait", "forward", "exposed_communication"))
    (first := steady(2, 400))[:, :120, data] += 30e-3
    (hours := steady(2, 400))[:, :, forward] *= np.linspace(1, 3, 400)
    (held := steady(4, 400))[2, 150:260, data] += 50e-3
    held[[0, 1, 3], 150:260, communication] += 50e-3
    for name, times in (("first", first), ("hours", hours), ("held", held)):
        write_records(tmp_path / name, times)
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command in this process; return its exit status."""
    program, *arguments = words
    if program == "stallpoint":
        return main(arguments)
    script, *arguments = arguments
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.syspath_prepend(ROOT / "scripts")
    try:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.parametrize("page", SYMPTOMS, ids=lambda page: page.stem)
def test_a_symptom_leads_to_its_answer(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = 0
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text)
        elif block.language == "console":
            for command, shown in commands(block.text):
                assert run(shlex.split(command), monkeypatch) in (CLEAR, BAD_NEWS, UNDECIDED)
                assert_prints(capsys.readouterr().out, shown)
                ran += 1
    assert ran
    assert len(page.read_text().split()) <= MAX_WORDS
