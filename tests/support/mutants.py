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
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path

from mutations import Mutant, drawn, place_of, planted, redrawn
from planted_defects import defects
from tally import ROOT, environment

KEPT = ROOT / "tests/support/data/mutants.csv"
PATIENCE = 900
"""Seconds that tests may take with a mutant; one that makes them hang is found."""
HANGS = "::hangs"


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
    room = file.removeprefix("src/stallpoint/").partition("/")[0]
    yield [path for path in files if path.startswith(f"tests/unit/{room}/") and path not in direct]


def failing(tests: list[str], folder: Path) -> str:
    """The first of the tests that fails in the copy in `folder`; empty: none."""
    cache = folder / ".mutants"
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not night", "-o", f"cache_dir={cache}", *tests]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, timeout=PATIENCE)
        file = cache / "v/cache/lastfailed"
        return next(iter(json.loads(file.read_text())), "") if file.exists() else ""
    return HANGS


def finding(file: str, text: str, before: str, folder: Path) -> str:
    """The test, as file's stem and name, that fails once a file has the `text` and passes without; empty: none."""
    original = (folder / file).read_text()
    for tests in filter(None, candidates(file, before)):
        excluded: list[str] = []
        while True:
            (folder / file).write_text(text)
            try:
                test = failing([*tests, *excluded], folder)
            finally:
                (folder / file).write_text(original)
            if test == HANGS or (test and not failing([test], folder)):
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
    parser.add_argument("--draw", type=int, metavar="N", help="draw N others (with --seed), all of which are tried")
    parser.add_argument(
        "--redraw", type=int, metavar="N", help="no trial: draw (with --seed) others for those without a place, up to N"
    )
    parser.add_argument("--defects", action="store_true", help="the planted defects (planted_defects.yaml) instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="what is found now is what was found `before` from now on")
    given = parser.parse_args()
    mutants = drawn(ROOT / "src", given.draw, given.seed) if given.draw else kept()
    if given.redraw:
        keep(redrawn(mutants, ROOT / "src", given.redraw, given.seed))
        return
    with copies(given.workers) as free, ThreadPoolExecutor(given.workers) as pool:

        def found(name: str, file: str, text: str, before: str) -> str:
            folder = free.get()
            try:
                test = finding(file, text, before, folder)
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
    if given.keep or given.draw:
        keep(tested)


if __name__ == "__main__":
    main()
