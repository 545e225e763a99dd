"""Programs that are killed, or refused by the file system, lose nothing: some points here, more by make chaos."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests/support", "tests/unit")),
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1"),
}


def tallies(module: str, *options: str) -> list[dict[str, Any]]:
    """In a process of its own: what is traced must have one thread."""
    command = [sys.executable, "-m", module, *options]
    run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize(
    ("program", "every"),
    [("job: train", 40), ("job: cannot run", 20), ("copy of a record", 20), ("storage, again", 60), ("collect", 150)],
)
def test_a_program_that_is_killed_or_refused_loses_nothing(program: str, every: int) -> None:
    found = tallies("crash_points", program, "--every", str(every), "--faults", "kill -9", "ENOSPC")
    assert [tally["fault"] for tally in found] == ["kill -9", "ENOSPC"]
    assert all(tally["trials"] > 0 for tally in found)
    assert [line for tally in found for line in tally["red"]] == []


def test_whatever_happens_every_cell_is_recorded_once() -> None:
    found = tallies("histories", "--examples", "5")
    assert sum(tally["trials"] for tally in found) >= 5
    assert [line for tally in found for line in tally["red"]] == []
