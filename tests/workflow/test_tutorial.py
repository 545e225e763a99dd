"""The tutorial's steps one after the other on one clone: its commands and changes, and what it says that they show."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from checkout import Ran
from pages import ROOT, assert_prints, blocks, commands

from stallpoint.records.parquet import read
from stallpoint.records.tables import PREDICTIONS

pytestmark = pytest.mark.night

PAGE = ROOT / "docs/tutorial.md"
TEXT = PAGE.read_text()
RESULTS = Path("results/default")
PLAN = "snakemake -n --config 'budget={minutes: 6000}'"
"""A plan that a slow machine has the time for."""


def section(heading: str) -> str:
    """The text of a section of the page."""
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def shown(heading: str) -> list[str]:
    """The texts of the fenced blocks of a section."""
    texts = [one.text for one in blocks(PAGE)]
    return [text for text in texts if text in section(heading)]


def found(pattern: str, text: str) -> str:
    """What the page has where the pattern has its group."""
    match = re.search(pattern, text)
    assert match, f"{pattern} is not on the page any more"
    return match[1]


class Clone:
    """A clone of the repository, set up: its environment is this one's, with its own library."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
        self.configuration = folder / "config/config.yaml"

    def run(self, command: str) -> str:
        """Run a command of the page, which has to succeed; return what it prints."""
        words = shlex.split(command, comments=True)
        words[1:1] = ["--old-file=.venv/.ready"] if words[0] == "make" else []
        programs = f"{self.folder}/.venv/bin{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder / "src"), "PATH": programs},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def changed(self, *replaced: tuple[str, str], added: str = "") -> Iterator[None]:
        """The default study with the first of each `replaced` text in place of another, and lines `added`."""
        before = self.configuration.read_text()
        text = before
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new, 1)
        self.configuration.write_text(f"{text}\n{added}")
        yield
        self.configuration.write_text(before)

    def planned(self) -> dict[str, int]:
        """Number of jobs of each rule that a run would have, and of the study's cells."""
        said = self.run(f"{PLAN} --quiet rules")
        return {**Ran(0, said).jobs, "cells": int(found(r"(\d+) cells", said))}

    def measured(self) -> set[Path]:
        """Records of cells."""
        return {link for link in (self.folder / RESULTS / "raw").rglob("repeat~*") if link.exists()}


def measuring(jobs: dict[str, int]) -> int:
    """Number of jobs that measure."""
    return sum(count for rule, count in jobs.items() if rule.startswith("measure_"))


def test_its_steps_one_after_the_other_show_what_the_page_says(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone")
    run_it(clone)
    cells = clone.measured()
    change_one_thing(clone, cells)
    run_parts_of_it(clone, cells)
    predicted = read(PREDICTIONS, clone.folder / RESULTS / "models/predictions.parquet").column_names
    assert {*re.findall(r"`(\w+_iteration)`", section("Look at the records"))} <= {*predicted}
    for command, lines in commands(*shown("Plan a larger one")):
        assert_prints(clone.run(command), lines)


def run_it(clone: Clone) -> None:
    """Run the default study: what is printed begins as the page's lines do; its numbers are of another run.

    On a machine that others keep busy verdicts are withheld, without reasons: then the last line is the page's.
    """
    running, progress, plan, answer = shown("Run it")
    said = clone.run(running)
    lines = [line for line in answer.splitlines() if "withheld" not in said or line.startswith("Report: ")]
    for line in (*progress.splitlines()[:-1], *lines):
        start = re.split("(?<=: )|(?<=cells to measure), ", line)[0]
        assert any(one.startswith(start) for one in said.splitlines()), f"{line}\n{said}"
    assert_prints(clone.run("snakemake -n --quiet rules"), plan.splitlines())
    assert len(clone.measured()) == int(found(r"(\d+) cells", plan))
    for row in re.findall(r"\| `([^|]*)` \|$", section("What was done"), re.MULTILINE):
        for path in row.split("`, `"):
            assert (clone.folder / RESULTS / path).exists(), path
    assert "visit " in (clone.folder / found(r"`(logs/[^`]*\.log)`", section("What was done"))).read_text()


def change_one_thing(clone: Clone, cells: set[Path]) -> None:
    """Make each change, and plan what follows; of the first, measure its four cells."""
    text = section("Change one thing")
    plan, included = shown("Change one thing")[1:]
    entry = found("`local` gets `(nodes: .*?)`", text)
    with clone.changed(*re.findall("`([^`]+)` becomes `([^`]+)`", text), ("nodes: 2 ", f"{entry} ")):
        for command, lines in commands(plan):
            assert_prints(clone.run(command), lines)
        clone.run("snakemake --until measure_local")
        assert len(clone.measured()) == len(cells) + 4
    with clone.changed(("batch: [2, 16]", found("`(batch: .*?)`", text))):
        jobs = clone.planned()
        assert (measuring(jobs), jobs["cells"]) == (1, len(cells) + 3)
    with clone.changed(added=found("`(models: .*?)`", text)):
        jobs = clone.planned()
        assert not measuring(jobs)
        assert {"fit", "draw", "conclude", "report_page"} <= jobs.keys()
    for replaced, added, count in (
        ((), included, 1),
        ((("visits: 6", found("`(visits: .*?)`", text)),), "", 1),
        ((), found("`(repeats: .*?)`", text), 2),
        ((), "", 0),
    ):
        with clone.changed(*replaced, added=added):
            assert measuring(clone.planned()) == count, replaced or added


def run_parts_of_it(clone: Clone, cells: set[Path]) -> None:
    """Run each command but that which measures all again, which is planned."""
    (parts,) = shown("Run parts of it")
    for command in parts.splitlines():
        before = {link: link.lstat().st_mtime_ns for link in cells}
        everything = " -R " in command
        said = clone.run(command.replace("snakemake", PLAN, 1) if everything else command)
        again = {link for link in cells if link.lstat().st_mtime_ns != before[link]}
        assert len(again) == (" -f " in command), f"{command}\n{said}"
        assert ("measure_local" in said) >= everything
    shutil.rmtree(min(cells))
    assert not measuring(clone.planned()), "its visits are there"
