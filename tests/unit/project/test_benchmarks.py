"""Benchmarks are long and run by hand, but what they are made of is there."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("program", ["run.py", "chaos.py", "gpu.py"])
def test_they_can_be_loaded(program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / program), run_name="__main__")
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out
