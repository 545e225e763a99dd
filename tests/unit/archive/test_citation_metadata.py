"""What is said of the software in several places is the same everywhere."""

import json
import re
from pathlib import Path

import yaml

import stallpoint

ROOT = Path(__file__).parents[3]


def test_citation_zenodo_and_changelog_are_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited["version"] == zenodo["version"] == versions[0] == stallpoint.__version__
    assert cited["title"] == zenodo["title"]
    assert cited["license"] == zenodo["license"]
    assert cited["keywords"] == zenodo["keywords"]
    assert [one["name"] for one in cited["authors"]] == [one["name"] for one in zenodo["creators"]]
