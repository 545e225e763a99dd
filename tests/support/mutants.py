"""Small defects in the program's source: which of them do tests find, and do they still find those they once did?

``tests/support/data/mutants.csv`` keeps mutants (`mutations`; drawn by seeds, without those whose place has gone
since), each with the test that found it. Every one is put into a copy of the files alone, in which that test runs;
where it is not known, or no longer fails, those that import the module do, and then those of its room.
``make mutants``, with options in ``MUTANTS="..."``.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import multiprocessing
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from forked import LOADED
from mutations import Mutant, drawn, place_of, planted
from planted_defects import defects
from tally import ROOT, environment

KEPT = ROOT / "tests/support/data/mutants.csv"
PATIENCE = 900
"""Seconds that tests may take with a mutant; one that makes them hang is found."""
HANGS = "::hangs"
TESTED_IN = {
    "base": ("models", "questions"),
    "cli.py": ("explain",),
    "stallpoint_files": ("explain", "inputs"),
    "stallpoint_traces": ("explain",),
    "stallpoint_papers": ("report", "questions"),
    "snakemake_logger_plugin_stallpoint": ("schedule",),
}
"""Folders of unit tests of rooms and packages that have none of their own name."""
PROCESSES = multiprocessing.get_context("forkserver")
"""Trials are copies of one process that has loaded PyTorch and the like, and nothing of the program."""


def kept() -> list[Mutant]:
    """The list of mutants."""
    with KEPT.open(newline="") as file:
        return [Mutant(**{**row, "ordinal": int(row["ordinal"])}) for row in csv.DictReader(file)]


def keep(mutants: list[Mutant]) -> None:
    """Write the list of mutants."""
    with KEPT.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Mutant)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, mutants))


def copy_of_files(folder: Path) -> None:
    """Copy the files that git knows or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def imported(file: Path) -> set[str]:
    """Files of the program that a file of tests imports by name, and what may be files of it."""
    imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    names = {name for one in imports for part in one.names for name in (str(one.module), f"{one.module}.{part.name}")}
    return {f"src/{name.replace('.', '/')}{end}" for name in names for end in (".py", "/__init__.py")}


def candidates(file: str, before: str) -> Iterator[list[str]]:
    """Tests to try on a defect in a file: that which found it before, those that import the file, those of its room."""
    stem, _, name = before.partition("::")
    yield [f"{path.relative_to(ROOT)}::{name}" for path in (ROOT / "tests").rglob(f"{stem or None}.py")]
    files = {
        str(path.relative_to(ROOT)): imported(path) for path in sorted((ROOT / "tests").rglob("unit/**/test_*.py"))
    }
    direct = [path for path, names in files.items() if file in names]
    yield direct
    room = file.removeprefix("src/").removeprefix("stallpoint/").partition("/")[0]
    yield [path for path in files if path.split("/")[2] in TESTED_IN.get(room, (room,)) and path not in direct]


def of_repository(path: object) -> bool:
    """Whether a file or a folder is one of this checkout, but not of its environment."""
    return isinstance(path, str) and Path(path).is_relative_to(ROOT) and ".venv" not in Path(path).parts


def run_tests(options: list[str], folder: Path) -> None:
    """Run pytest in this process with the program and the tests of the copy in `folder`."""
    os.environ.update(environment(folder))
    os.chdir(folder)
    for name in [name for name, one in sys.modules.items() if of_repository(getattr(one, "__file__", None))]:
        del sys.modules[name]
    sys.path[:] = [*os.environ["PYTHONPATH"].split(os.pathsep), *(path for path in sys.path if not of_repository(path))]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os._exit(pytest.main(options))


def failing(tests: list[str], folder: Path) -> str:
    """The first of the tests that fails in the copy in `folder`; empty: none."""
    cache = folder / ".mutants"
    shutil.rmtree(cache, ignore_errors=True)
    options = ["-x", "-q", "-m", "not night", "-o", f"cache_dir={cache}", *tests]
    trial = PROCESSES.Process(target=run_tests, args=(options, folder))
    trial.start()
    trial.join(PATIENCE)
    if trial.is_alive():
        trial.kill()
        return HANGS
    file = cache / "v/cache/lastfailed"
    return next(iter(json.loads(file.read_text())), "") if file.exists() else ""


def finding(file: str, text: str, before: str, folder: Path, passing: set[str]) -> str:
    """The test, as file's stem and name, that fails once a file has the `text` and passes without; empty: none.

    `passing` collects tests that were seen to pass without a mutant."""
    original = (folder / file).read_text()
    for tests in filter(None, candidates(file, before)):
        excluded: list[str] = []
        while True:
            (folder / file).write_text(text)
            try:
                test = failing([*tests, *excluded], folder)
            finally:
                (folder / file).write_text(original)
            if test and test != HANGS and test not in passing and not failing([test], folder):
                passing.add(test)
            if test == HANGS or test in passing:
                return f"{Path(test.partition('::')[0]).stem}::{test.partition('::')[2]}"
            if not test or len(tests) == 1:
                break
            excluded += ["--deselect", test]  # fails in any case
    return ""


@contextmanager
def copies(number: int) -> Iterator[queue.Queue[Path]]:
    """So many copies of the files, of which each trial takes one."""
    with tempfile.TemporaryDirectory(prefix="stallpoint-mutants-") as scratch:
        free: queue.Queue[Path] = queue.Queue()
        for one in range(number):
            copy_of_files(Path(scratch, str(one)))
            free.put(Path(scratch, str(one)))
        yield free


def described(mutant: Mutant) -> str:
    """One line that says what a mutant is."""
    return f"{mutant.module}, {mutant.function}: {mutant.was} -> {mutant.becomes} ({mutant.kind})"


def table(before: list[Mutant], after: list[Mutant], gone: set[Mutant]) -> Iterator[str]:
    """Lines that say by room how many were found before and are now, and which are not."""
    rooms: dict[str, list[int]] = defaultdict(list)
    for number, mutant in enumerate(before):
        rooms[mutant.room].append(number)
    yield "| room | mutants | found before | found now | gone |\n| --- | ---: | ---: | ---: | ---: |"
    for room, numbers in [*sorted(rooms.items()), ("all", list(range(len(before))))]:
        found = (sum(bool(which[one].before) for one in numbers) for which in (before, after))
        yield f"| {room} | {len(numbers)} | {' | '.join(map(str, found))} | {sum(before[n] in gone for n in numbers)} |"
    for was, now in zip(before, after, strict=True):
        if not now.before:
            found_before = f"; found before by {was.before}" if was.before else ""
            yield f"{'gone' if was in gone else 'not found'}: {described(was)}{found_before}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that share the work")
    parser.add_argument("--all", action="store_true", help="also those that were not found before")
    parser.add_argument(
        "--draw", type=int, metavar="N", help="draw N others (with --seed) and try all; --keep: the list has these"
    )
    parser.add_argument("--defects", action="store_true", help="the planted defects (planted_defects.yaml) instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="what is found now is what was found `before` from now on")
    given = parser.parse_args()
    PROCESSES.set_forkserver_preload(["pytest", "hypothesis", *LOADED])
    mutants = drawn(ROOT / "src", given.draw, given.seed) if given.draw else kept()
    passing: set[str] = set()
    with copies(given.workers) as free, ThreadPoolExecutor(given.workers) as pool:

        def found(name: str, file: str, text: str, before: str) -> str:
            folder = free.get()
            try:
                test = finding(file, text, before, folder, passing)
            finally:
                free.put(folder)
            print(f"{test or 'not found'}: {name}", file=sys.stderr, flush=True)
            return test

        if given.defects:
            texts = [(one.name, one.file, one.planted((ROOT / one.file).read_text()), one.test) for one in defects()]
            tests = list(pool.map(found, *zip(*texts, strict=True)))
            print(f"planted defects found: {sum(map(bool, tests))} of {len(tests)}")
            return
        places = {one: place_of(one, ROOT / "src") for one in mutants if given.all or given.draw or one.before}
        running = {
            one: pool.submit(found, described(one), f"src/{place[0]}", planted(one, place, ROOT / "src"), one.before)
            for one, place in places.items()
            if place
        }
        tested = [replace(one, before=running[one].result()) if one in running else one for one in mutants]
    gone = {one for one, place in places.items() if not place}
    print(*table(mutants, [replace(one, before="") if one in gone else one for one in tested], gone), sep="\n")
    if given.keep:
        keep(tested)


if __name__ == "__main__":
    main()
