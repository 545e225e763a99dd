"""Plugin of pytest that records which tests reach a mutant, and tries mutants on them (`mutants` starts it).

Tests are collected once; copies of that process run them, a file at a time: first without any mutant, then with one.
What is imported and collected is paid for once, and each file makes anew what tests share.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE, IN_ALL = 60.0, 300.0
"""Seconds that the tests of a mutant may take in a file and in all of them, by what they took without it."""
RECORDING, DEFECTS = -2, 10_000
"""What `mutant_switch.active` is while no mutant is; the number of the first planted defect (mutants count from 0)."""

Outcomes = dict[str, tuple[str, float]]
"""What became of each test, and its seconds."""


def pytest_runtestloop(session: Any) -> bool | None:
    """Try mutants on the tests that found them before; then all that no test has found, file after file."""
    if "MUTANTS" not in os.environ:
        return None
    trials = _Trials(session)
    by_file: dict[str, list[Any]] = defaultdict(list)
    for item in session.items:
        by_file[item.path.stem].append(item)
    trials.known()
    known = {test.partition("::")[0] for test in trials.plan["known"].values()}
    imported = {name: _imported(items[0].path) for name, items in by_file.items()}
    names = trials.plan["names"]
    order = sorted(by_file, key=lambda name: (name not in known, -len(imported[name] & set(names.values()))))
    for named, name in itertools.product((True, False), order):  # mutants whose module the file imports come first
        those = {number for number in trials.sought() if not named or names[str(number)] in imported[name]}
        if those and trials.claimed(f"{name}.{named}"):
            trials.file(name, by_file[name], those, direct=named)
    return True


def pytest_runtest_logreport(report: Any) -> None:
    """Write down how each part of a test went, and how long it took."""
    if file := os.environ.get("MUTANT_RESULTS"):
        with open(file, "a") as results:
            results.write(json.dumps([report.nodeid, report.outcome, round(report.duration, 3)]) + "\n")


def entries(journal: Path) -> list[dict[str, Any]]:
    """Read what is known so far: a line for each file of tests, and for each mutant on each file."""
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def name_of(test: str) -> str:
    """A test's name wherever its file lies."""
    file, _, name = test.partition(".py::")
    return f"{file.rpartition('/')[2]}::{name}"


def outcomes(results: Path) -> Outcomes:
    """Read what became of tests (`pytest_runtest_logreport`)."""
    found: Outcomes = {}
    for test, outcome, seconds in map(json.loads, results.read_text().splitlines()):
        before, already = found.get(test, ("passed", 0.0))
        found[test] = (outcome if before == "passed" else before, round(already + seconds, 3))
    return found


def failed(found: Outcomes, tests: list[str]) -> str:
    """The first test that failed, or that was never over; empty: all passed."""
    wrong = [test for test, (outcome, _) in found.items() if outcome == "failed"]
    return next(iter([*wrong, *(test for test in tests if test not in found)]), "")


def _imported(file: Path) -> set[str]:
    """Modules that a file imports by name, and what may be modules of those."""
    imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    return {name for one in imports for part in one.names for name in (str(one.module), f"{one.module}.{part.name}")}


class _Trials:
    """Tests in copies of the process that has collected them."""

    def __init__(self, session: Any) -> None:
        self.session, self.lane = session, os.environ["MUTANTS_LANE"]
        self.folder = Path(os.environ["MUTANTS"])
        self.journal = self.folder.parent / "journal.jsonl"
        self.plan = json.loads((self.folder.parent / "plan.json").read_text())

    def claimed(self, name: str) -> bool:
        """Whether this process, of those that share the work, is the one to do a part of it."""
        with suppress(FileExistsError):
            (self.folder.parent / f"{self.lane}.{name}.claim").mkdir()
            return True
        return False

    def sought(self) -> set[int]:
        """Mutants that no test has found yet."""
        return set(self.plan["sought"]) - {one["mutant"] for one in entries(self.journal) if one.get("found")}

    def known(self) -> None:
        """Try each mutant on the test that found it before."""
        items = {name_of(item.nodeid): item for item in self.session.items}
        for number, test in self.plan["known"].items():
            if test in items and int(number) in self.sought() and self.claimed(number):
                item = items[test]
                if not failed(self.run([item], RECORDING, 600), [item.nodeid]):
                    self.tried(int(number), [item], 600)

    def file(self, name: str, items: list[Any], numbers: set[int], *, direct: bool) -> None:
        """Record which mutants a file of tests reaches, and try some: on tests known to reach them, or on all."""
        records = (one for one in entries(self.journal) if (one.get("file"), one["lane"]) == (name, self.lane))
        record = next(records, None) or self.recorded(name, items)
        passing = {test: seconds for test, (outcome, seconds) in record["tests"].items() if outcome == "passed"}
        for number in sorted(numbers & self.sought() & set(map(int, record["reached"]))):
            journal = [one for one in entries(self.journal) if one.get("mutant") == number]
            done = {test for one in journal for test in one["tests"]}
            reaching = record["reached"][str(number)]
            chosen = [item for item in items if item.nodeid in passing and item.nodeid not in done]
            if direct:
                chosen = [item for item in chosen if item.nodeid in reaching]
            chosen.sort(key=lambda item: (item.nodeid not in reaching, passing[item.nodeid]))
            patience = min(PATIENCE, IN_ALL - sum(one["seconds"] for one in journal))
            until = list(itertools.accumulate(passing[item.nodeid] for item in chosen))
            chosen = [item for item, seconds in zip(chosen, until, strict=True) if seconds <= patience]
            if chosen:
                self.tried(number, chosen, 300 + 10 * sum(passing.values()))  # what tests share is on another's account

    def recorded(self, name: str, items: list[Any]) -> dict[str, Any]:
        """Run a file of tests without any mutant."""
        (self.folder / "hits").write_text("")
        tests = self.run(items, RECORDING, 7200)
        reached: dict[str, set[str]] = defaultdict(set)
        for line in (self.folder / "hits").read_text().splitlines():
            number, _, test = line.partition("\t")
            reached[number].add(test)
        hits = {number: sorted(tests) for number, tests in reached.items()}
        return self.note({"file": name, "lane": self.lane, "tests": tests, "reached": hits})

    def tried(self, number: int, items: list[Any], seconds: float) -> None:
        """Run tests with a mutant until one fails."""
        found = self.run(items, number, seconds)
        test = failed(found, [item.nodeid for item in items])
        taken = sum(seconds for _, seconds in found.values())
        self.note({"mutant": number, "lane": self.lane, "found": test, "late": bool(test) and test not in found,
                   "seconds": taken, "tests": list(found)})  # fmt: skip

    def note(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Write down an entry, whole."""
        with self.journal.open("a") as journal:
            journal.write(json.dumps(entry) + "\n")
        return entry

    def run(self, items: list[Any], number: int, seconds: float) -> Outcomes:
        """What becomes of tests while a mutant is active, up to the first that fails."""
        results, place = self.folder / "results", self.folder / "t"
        results.write_text("")
        place.mkdir(exist_ok=True)
        (self.folder / "active").write_text(str(number))
        if not (child := os.fork()):
            os.setsid()
            self._in_copy(items, number, results, place)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not os.waitpid(child, os.WNOHANG)[0]:
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests left, too
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        shutil.rmtree(place, ignore_errors=True)
        return outcomes(results)

    def _in_copy(self, items: list[Any], number: int, results: Path, place: Path) -> None:
        """What a copy of the process does: all of its life."""
        try:
            output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            for stream, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
                os.dup2(stream, target)
            os.environ.update(MUTANT_RESULTS=str(results), PYTEST_DEBUG_TEMPROOT=str(place))
            switch: Any = __import__("mutant_switch")
            switch.active = number
            for item, after in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if self.session.testsfailed and number != RECORDING:
                    break
            sys.stdout.flush()
        finally:
            os._exit(0)
