"""CITATION.cff and codemeta.json, from release/about.yaml and pyproject.toml; says what the owner has not filled in."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
OWNERS = ("repository", "documentation", "doi", "people")
"""Entries that only the owner knows."""
NOBODY = [{"name": "The stallpoint developers"}]


def about(root: Path = ROOT) -> dict[str, Any]:
    """Return what is said of the software: about.yaml, with what pyproject.toml and the version say."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    version = re.search(r'^__version__ = "(.+)"', (root / "src/stallpoint/__init__.py").read_text(), re.MULTILINE)
    assert version
    said: dict[str, Any] = yaml.safe_load((root / "release/about.yaml").read_text())
    package = {name: project[name] for name in ("name", "license", "keywords", "requires-python")}
    return {**said, **package, "version": version[1]}


def missing(said: dict[str, Any]) -> list[str]:
    """Return the entries that the owner has left empty."""
    return [name for name in OWNERS if not said[name]]


def citation(said: dict[str, Any], date: str = "") -> str:
    """Return CITATION.cff (Citation File Format 1.2.0)."""
    people = [{key: value for key, value in one.items() if key != "email"} for one in said["people"]]
    found = {
        "cff-version": "1.2.0",
        "message": "If you use stallpoint, please cite it, and the papers whose models it fits.",
        "type": "software",
        "title": said["title"],
        "abstract": said["abstract"],
        "authors": people or NOBODY,
        "version": said["version"],
        "date-released": date,
        "license": said["license"],
        "keywords": said["keywords"],
        "repository-code": said["repository"],
        "url": said["documentation"],
        "doi": said["doi"],
        "references": said["references"],
    }
    filled = {key: value for key, value in found.items() if value}
    return yaml.safe_dump(filled, sort_keys=False, allow_unicode=True, width=120)


def codemeta(said: dict[str, Any]) -> str:
    """Return codemeta.json (CodeMeta 3.0)."""
    names = {"given-names": "givenName", "family-names": "familyName", "affiliation": "affiliation", "email": "email"}
    people = [
        {"type": "Person", "id": one.get("orcid"), **{new: one.get(old) for old, new in names.items()}}
        for one in said["people"]
    ]
    found = {
        "@context": "https://w3id.org/codemeta/3.0",
        "type": "SoftwareSourceCode",
        "name": said["name"],
        "description": said["title"].partition(": ")[2],
        "version": said["version"],
        "license": f"https://spdx.org/licenses/{said['license']}",
        "keywords": said["keywords"],
        "programmingLanguage": {"type": "ComputerLanguage", "name": "Python"},
        "runtimePlatform": f"Python {said['requires-python']}",
        "operatingSystem": "Linux",
        "codeRepository": said["repository"],
        "softwareHelp": said["documentation"],
        "identifier": said["doi"],
        "author": [{key: value for key, value in one.items() if value} for one in people]
        or [{"type": "Organization", **NOBODY[0]}],
    }
    return json.dumps({key: value for key, value in found.items() if value}, indent=1, ensure_ascii=False) + "\n"


def write(root: Path = ROOT, date: str = "") -> list[str]:
    """Write both files; return what the owner has left empty."""
    said = about(root)
    (root / "CITATION.cff").write_text(citation(said, date))
    (root / "codemeta.json").write_text(codemeta(said))
    return missing(said)


if __name__ == "__main__":
    for name in write():
        print(f"release/about.yaml: {name} is empty; the owner fills it in")
