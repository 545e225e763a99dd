"""Defects planted in the code that writes, collects and resumes: the trials of crashes and histories find each.

``python -m planted_defects [NAME ...]`` prints one JSON line (`Tally`) over all: every defect is put into a copy of the
program's files, and a trial that must turn red runs there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from tally import ROOT, Tally, environment, tell

COPIED = ("src", "scripts", "workflow", "config", "resources", "tests", "LICENSE", "pyproject.toml")
PATIENCE = 3600
"""Seconds that a trial may take: one that does not end has found something, too."""


@dataclass(frozen=True)
class Defect:
    """One change of one file."""

    name: str
    file: str
    was: str
    """Stands in the file exactly once."""
    becomes: str
    trial: tuple[str, ...]
    """The module that finds it, and its options."""
    test: str
    """A test of the day that finds it: the file's stem, and the name."""

    def planted(self, text: str) -> str:
        """The file's text with the defect."""
        assert text.count(self.was) == 1, f"{self.name}: not once in {self.file}"
        return text.replace(self.was, self.becomes)


def defects() -> list[Defect]:
    """All of them (planted_defects.yaml)."""
    entries = yaml.safe_load((ROOT / "tests/support/planted_defects.yaml").read_text())
    return [Defect(**{**entry, "trial": tuple(entry["trial"])}) for entry in entries]


def _found(defect: Defect, folder: Path) -> bool:
    """Whether the trial finds the defect in the program in `folder`."""
    command = [sys.executable, "-m", *defect.trial]
    try:
        ran = subprocess.run(
            command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return True
    tallies = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return ran.returncode != 0 or any(tally["red"] for tally in tallies)


def planted(chosen: Iterable[Defect]) -> Iterator[tuple[Defect, bool]]:
    """Each defect, and whether it was found."""
    for defect in chosen:
        with tempfile.TemporaryDirectory(prefix="stallpoint-planted-") as scratch:
            for name in COPIED:
                place = ROOT / name
                copy = shutil.copytree if place.is_dir() else shutil.copy
                copy(place, Path(scratch, name))
            Path(scratch, defect.file).write_text(defect.planted((ROOT / defect.file).read_text()))
            yield defect, _found(defect, Path(scratch))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="all, unless some are named")
    names = parser.parse_args().names
    tally = Tally("planted", "planted defects found")
    for defect, found in planted([one for one in defects() if not names or one.name in names]):
        print(f"{'found' if found else 'NOT FOUND'}: {defect.name}", file=sys.stderr, flush=True)
        tally.trials += 1
        tally.refused += 1
        tally.clear += found
        if not found:
            tally.red.append(f"planted and not found: {defect.name} ({' '.join(defect.trial)})")
    tell([tally])


if __name__ == "__main__":
    main()
