"""The example of a package that adds to stallpoint: installed, found by its entry points, and used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from house import ROOT

RATES = {1: 100, 2: 190, 4: 340, 8: 342, 16: 335}
USED = """
import json
import pandas as pd
from stallpoint.networks import NETWORKS
from stallpoint.questions.all_questions import sections
from stallpoint.questions.study_tables import StudyTables
from stallpoint.storage import FORMATS
from stallpoint.strategies.presets import PRESETS, preset_from

network = NETWORKS["two-layers"]
built = network.build(seed=0)
trained = pd.DataFrame({"network": ["a", "b"], "measured_iteration": [0.2, 0.1]})
(found,) = (one for one in sections(StudyTables({"predictions": trained})) if one.name == "fastest")
print(json.dumps({
    "parameters": [network.parameters, sum(one.numel() for one in built.parameters())],
    "storage": FORMATS["upside-down"].__module__,
    "schedule": PRESETS["one-by-one"].preset.strategy.schedule(stage=1, depth=2)[:2],
    "section": found.findings[0].sentence,
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a Python in which the package is installed beside stallpoint."""
    target = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--target", str(target), str(ROOT / "examples/own_package")],
        check=True,
    )  # fmt: skip
    return {**os.environ, **forked.environment(str(target))}


def test_each_entry_is_used_as_if_it_were_stallpoints_own(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "used.py").write_text(USED)
    command = [sys.executable, str(tmp_path / "used.py")]
    ran = subprocess.run(command, env=installed, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "parameters": [197_322, 197_322],
        "storage": "own_package.storage",
        "schedule": [["forward", 1], ["backward", 1]],
        "section": "b: 100 ms",
    }


def test_its_reader_answers_for_its_files(installed: dict[str, str], tmp_path: Path) -> None:
    lines = "".join(f"{n} workers did {rate} widgets a second\n" for n, rate in RATES.items())
    (tmp_path / "widgets.txt").write_text(lines)
    command = [sys.executable, "-m", "stallpoint.cli", "explain", "--json", "widgets.txt"]
    ran = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(ran.stdout)
    assert found["inputs"][0]["recognised"] == ["widgets"]
    assert (found["answers"][0]["verdict"], found["answers"][0]["value"]) == ("stalls", 4)
