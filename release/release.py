"""Release of a version, in the working tree at hand: ``make release VERSION=1.2.3``.

The changelog has the version as its first, tests have passed before. Sets version and date, describes, builds sdist and
wheel twice (both have to be the same), checks them, writes what they are made of (CycloneDX), commits and tags. It
publishes nothing, and ends with how that is done.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import describe

ROOT = describe.ROOT
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
FIRST = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.MULTILINE)
"""Heading of the changelog's newest version."""


def run(*command: str, **variables: str) -> str:
    """Return what a command prints; ends the release with its words where it fails."""
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **variables})
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout.strip()


def check(version: str) -> None:
    """Raise `SystemExit` unless this version can be released from here."""
    if not VERSION.fullmatch(version):
        raise SystemExit(f"VERSION={version}: not of the form 1.2.3 (or 1.2.3rc1)")
    if changed := run("git", "status", "--porcelain", "--untracked-files=no"):
        raise SystemExit(f"commit these first:\n{changed}")
    if run("git", "tag", "--list", f"v{version}"):
        raise SystemExit(f"v{version} is released already")
    first = FIRST.search((ROOT / "CHANGELOG.md").read_text())
    if not first or first[1] != version:
        raise SystemExit(f"CHANGELOG.md: its first version is {first and first[1]}, not {version}")


def set_version(version: str, date: str) -> None:
    """Write version and date where they stand."""
    for file, old, new in (
        ("src/stallpoint/__init__.py", r'(?m)^__version__ = ".*"', f'__version__ = "{version}"'),
        ("CHANGELOG.md", rf"(?m)^## {re.escape(version)}( \(.*\))?$", f"## {version} ({date})"),
    ):
        text = (ROOT / file).read_text()
        (ROOT / file).write_text(re.sub(old, new, text, count=1))


def build(seconds: str) -> list[Path]:
    """Build sdist and wheel into dist/, and again elsewhere; return them if both are the same, byte for byte."""
    python = (sys.executable, "-m", "build", "--no-isolation")
    (ROOT / "dist").mkdir(exist_ok=True)
    for left in (ROOT / "dist").iterdir():
        left.unlink()
    with tempfile.TemporaryDirectory() as again:
        for folder in ("dist", again):
            run(*python, "--outdir", folder, SOURCE_DATE_EPOCH=seconds)
        built = sorted((ROOT / "dist").iterdir())
        if differ := [one.name for one in built if one.read_bytes() != Path(again, one.name).read_bytes()]:
            raise SystemExit(f"built twice and not the same: {', '.join(differ)}")
    return built


def main(version: str) -> None:
    """Release a version."""
    check(version)
    now = datetime.now(UTC)
    set_version(version, f"{now:%Y-%m-%d}")
    for name in describe.write(date=f"{now:%Y-%m-%d}"):
        print(f"release/about.yaml: {name} is empty; left out of CITATION.cff and codemeta.json")
    run("git", "commit", "--quiet", "--all", "--message", f"Release {version}")
    built = build(run("git", "log", "-1", "--format=%ct"))
    tools = Path(sys.executable).parent
    run(str(tools / "twine"), "check", "--strict", *map(str, built))
    parts = f"dist/stallpoint-{version}.cdx.json"
    run(str(tools / "cyclonedx-py"), "requirements", "requirements.lock", "--pyproject", "pyproject.toml", "-o", parts)
    run("git", "tag", "--annotate", f"v{version}", "--message", f"stallpoint {version}")
    print(*(f"dist/{one.name}" for one in built), parts, sep="\n")
    print(f"tagged v{version}. To publish: git push --follow-tags; twine upload dist/*.whl dist/*.tar.gz")


if __name__ == "__main__":
    main(*sys.argv[1:2] or [""])
