"""A release: what is said of it, its archives, and the workflow in one that is installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import describe
import forked
import pytest
import yaml
from house import ROOT

import stallpoint

VERSION = "7.8.9"
USERS_OWN = """import stallpoint
configfile: "study.yaml"
module scaling:
    snakefile: stallpoint.snakefile()
    config: config
use rule * from scaling
"""
"""The Snakefile of somebody whose workflow has ours as a module."""


def run(*command: str, folder: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository in which a version was released, and what the release said."""
    folder = tmp_path_factory.mktemp("release") / "stallpoint"
    files = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=ROOT).split("\0")
    for file in filter(None, files):
        if (ROOT / file).is_file() and not file.startswith("docs/images/"):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, folder / file, follow_symlinks=False)
    changelog = (folder / "CHANGELOG.md").read_text()
    (folder / "CHANGELOG.md").write_text(re.sub(r"(?m)^## .*", f"## {VERSION} (not released)", changelog, count=1))
    for command in ("init -q", "config user.email a@example.org", "config user.name A", "add -A", "commit -qm all"):
        run("git", *command.split(), folder=folder)
    return folder, run(sys.executable, "release/release.py", VERSION, folder=folder)


@pytest.fixture(scope="module")
def wheel(released: tuple[Path, str]) -> Path:
    return next(released[0].glob("dist/*.whl"))


def test_what_is_committed_says_what_the_sources_say() -> None:
    said = describe.about(ROOT)
    assert describe.citation(said) == (ROOT / "CITATION.cff").read_text()
    assert describe.codemeta(said) == (ROOT / "codemeta.json").read_text()


def test_people_and_addresses_of_the_owner_reach_both_descriptions() -> None:
    one = {"given-names": "Ada", "family-names": "L", "orcid": "https://orcid.org/0000-0002-1825-0097", "email": "a@b"}
    said = {**describe.about(ROOT), "people": [one], "doi": "10.5281/zenodo.1", "repository": "https://example.org/x"}
    cited, meta = yaml.safe_load(describe.citation(said, "2026-01-02")), json.loads(describe.codemeta(said))
    assert cited["authors"] == [{key: value for key, value in one.items() if key != "email"}]
    assert (cited["doi"], cited["repository-code"]) == ("10.5281/zenodo.1", "https://example.org/x")
    assert meta["author"][0]["id"] == one["orcid"]
    assert describe.missing(said) == ["documentation"]


def test_a_release_is_tagged_and_says_what_the_owner_left_empty(released: tuple[Path, str]) -> None:
    folder, said = released
    assert run("git", "tag", folder=folder).split() == [f"v{VERSION}"]
    assert run("git", "status", "--porcelain", folder=folder) == ""
    assert yaml.safe_load((folder / "CITATION.cff").read_text())["version"] == VERSION
    assert re.search(rf"^## {VERSION} \(\d{{4}}-\d\d-\d\d\)$", (folder / "CHANGELOG.md").read_text(), re.MULTILINE)
    empty = describe.missing(describe.about(ROOT))
    assert [line.split()[1] for line in said.splitlines() if " is empty" in line] == empty
    parts = json.loads((folder / f"dist/stallpoint-{VERSION}.cdx.json").read_text())
    assert {"numpy", "pyarrow"} <= {one["name"] for one in parts["components"]}


@pytest.mark.parametrize(
    ("version", "message"),
    [("1.2", "not of the form"), (VERSION, "is released already"), ("7.9.0", f"its first version is {VERSION}")],
)
def test_a_release_that_cannot_be_is_refused(released: tuple[Path, str], version: str, message: str) -> None:
    command = [sys.executable, "release/release.py", version]
    ran = subprocess.run(command, cwd=released[0], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert message in ran.stderr


def test_archives_hold_every_file_of_the_packages_and_no_tests_in_the_wheel(released: tuple[Path, str]) -> None:
    folder, _ = released
    tracked = run("git", "ls-files", folder=folder).split()
    with zipfile.ZipFile(next(folder.glob("dist/*.whl"))) as file:
        held = set(file.namelist())
    assert {one.removeprefix("src/") for one in tracked if one.startswith("src/")} <= held
    assert {f"stallpoint_workflow/{one}" for one in tracked if one.startswith(("workflow/", "scripts/"))} <= held
    assert {one.split("/")[0] for one in held} == {
        *(path.name for path in (ROOT / "src").iterdir() if (path / "__init__.py").exists()),
        "stallpoint_workflow", f"stallpoint-{VERSION}.dist-info",
    }  # fmt: skip
    with tarfile.open(next(folder.glob("dist/*.tar.gz"))) as archive:
        source = {one.partition("/")[2] for one in archive.getnames()}
    assert {one for one in tracked if one.startswith(("tests/", "docs/", "src/", "examples/"))} <= source


def test_a_snakefile_of_six_lines_imports_the_workflow_from_a_wheel(wheel: Path, tmp_path: Path) -> None:
    target, folder = tmp_path / "installed", tmp_path / "work"
    installs = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target))
    run(*installs, str(wheel), folder=tmp_path)
    folder.mkdir()
    (folder / "Snakefile").write_text(USERS_OWN)
    shutil.copy2(target / "stallpoint_workflow/config/config.yaml", folder / "study.yaml")
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    planned = run(snakemake, "--nocolor", "-n", "all", folder=folder, **forked.environment(str(target)))
    assert re.search(r"^fit +1$", planned, re.MULTILINE), planned
    code = "import stallpoint; print(stallpoint.snakefile(), stallpoint.__version__)"
    where = run(sys.executable, "-c", code, folder=folder, PYTHONPATH=str(target))
    assert where.split() == [str(target / "stallpoint_workflow/workflow/Snakefile"), VERSION]


def test_the_workflow_of_a_checkout_is_found_too() -> None:
    assert stallpoint.snakefile() == ROOT / "workflow/Snakefile"
