"""requirements.lock against pyproject.toml."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]
LOCKED = re.compile(r"^(\S+)==(\S+).*((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+)$", re.MULTILINE)


def test_every_locked_version_has_hashes_and_installs_on_the_oldest_python_that_is_promised() -> None:
    text = (ROOT / "requirements.lock").read_text()
    names = [one[1] for one in LOCKED.finditer(text)]
    assert len(names) == len(re.findall(r"^\w\S*==", text, re.MULTILINE)) > 150
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = promised.removeprefix(">=") + ".0"
    wants = {}
    for name in names:
        try:
            wants[name] = metadata(name).json.get("requires_python", "")
        except PackageNotFoundError:  # of another Python or platform, or of CUDA
            continue
    assert len(wants) > 100
    assert {name: python for name, python in wants.items() if oldest not in SpecifierSet(python)} == {}
