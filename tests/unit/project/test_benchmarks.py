"""Benchmarks are long and run by hand, but what they are made of is there."""

import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

from stallpoint.base.measured import SERIES

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("program", ["run.py", "chaos.py", "gpu.py"])
def test_they_can_be_loaded(program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / program), run_name="__main__")
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out


def test_sentences_of_two_studies_contradict_where_both_decide_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import sentences

    def study(verdicts: dict[str, str], causes: dict[str, str], claims: dict[str, str]) -> dict[str, pd.DataFrame]:
        series = dict.fromkeys(SERIES, "same")
        return {
            "stalling": pd.DataFrame([{**series, "network": name, "verdict": one} for name, one in verdicts.items()]),
            "causes": pd.DataFrame([
                {**series, "network": name, "ranks": 2, "basis": "measured", "cause": one, "verdict": "dominant"}
                for name, one in causes.items()
            ]),
            "claims": pd.DataFrame([{"claim": name, "verdict": one} for name, one in claims.items()]),
        }  # fmt: skip

    old = study({"a": "stalls", "b": "undecided", "c": "scales"}, {"a": "communication", "b": "x"}, {"p": "holds"})
    new = study({"a": "scales", "b": "stalls", "c": "scales"}, {"a": "training data"}, {"p": "does not hold"})
    found = {one.table: (one.both, len(one.contradictions)) for one in sentences.compared(old, new)}
    assert found == {"stalling": (3, 1), "causes": (1, 1), "claims": (1, 1)}
    assert not any(one.contradictions for one in sentences.compared(old, old))
