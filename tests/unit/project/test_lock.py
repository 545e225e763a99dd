"""requirements.lock against pyproject.toml."""

import tomllib
from importlib.metadata import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]


def test_every_locked_version_installs_on_the_oldest_python_that_is_promised() -> None:
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = promised.removeprefix(">=") + ".0"
    names = [line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    wants = {name: metadata(name).json.get("requires_python", "") for name in names}
    assert len(wants) > 50
    assert {name: python for name, python in wants.items() if oldest not in SpecifierSet(python)} == {}
