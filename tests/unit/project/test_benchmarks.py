"""Benchmarks are long and run by hand, but what they are made of is there."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("program", ["run.py", "chaos.py", "gpu.py"])
def test_they_can_be_loaded(program: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / program), "--help"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
