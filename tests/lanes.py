"""Run the tests in lanes: ``make test`` all that must hold before a change lands, ``make test-all`` repetitions too.

As root on Debian or Ubuntu it first installs what the cluster and the browser need; elsewhere those tests are skipped,
and the summary says so. With CI=true a skipped test fails. Two lanes run at a time, each on half of the cores, and
whichever ends first makes room for the next; tests with MPI ranks never run beside the Slurm cluster, whose ranks they
would starve. At the end: each lane's time and CPU beside its budget, the slowest folders, and what failed with the
command that runs just that.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".venv/tests"
"""JUnit files and logs of the last run, one of each for a lane."""
AT_ONCE = 2
"""Lanes that run at a time."""
SHOWN_FAILURES = 8
PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 5.0
"""Time for processes to end before they are killed, s."""


@dataclass(frozen=True)
class Lane:
    """Tests that run in one pytest process, or its workers (pytest-xdist)."""

    name: str
    options: tuple[str, ...]
    marker: str
    """Chooses tests, beside those of the night."""
    budget: int
    """CPU seconds that the lane may take in ``make test``, all its processes together, those of Slurm's jobs too."""
    after: tuple[str, ...] = ("installing",)
    """Steps and lanes that have to end before this one begins."""

    def command(self, workers: int, night: bool) -> list[str]:
        """Return the command line: `workers` at a time where the lane may share, nightly repetitions if `night`."""
        chosen = " and ".join(part for part in (self.marker, "" if night else "not night") if part)
        examples = ["--hypothesis-profile=night"] if night else []
        # One worker needs no process beside the one that collects.
        shared = ["--numprocesses", str(workers if workers > 1 else 0)] if "--dist" in self.options else []
        output = ["-o", "junit_family=xunit1", f"--junitxml={RESULTS / self.name}.xml"]
        marked = ["-m", chosen] if chosen else []
        return [sys.executable, "-m", "pytest", *self.options, *marked, *examples, *shared, *output]


UNIT = "tests/unit"
FOLDERS = {
    "report": tuple(f"{UNIT}/{room}" for room in ("report", "archive")),
    "models": (f"{UNIT}/models",),
    "files": tuple(f"{UNIT}/{room}" for room in ("explain", "inputs", "questions")),
}
"""Folders of unit tests with lanes of their own: short ones at the end leave no core idle, and load no PyTorch."""
OTHERS = tuple(f"--ignore={folder}" for rooms in FOLDERS.values() for folder in rooms)
RANKED = [str(file.relative_to(ROOT)) for file in sorted((ROOT / UNIT).rglob("test_*.py"))
          if "mark.ranks" in file.read_text()]  # fmt: skip
"""Files with tests that need MPI ranks; to import all others takes 20 s."""
LANES = (
    Lane("cluster", ("tests/cluster",), "", 450),
    Lane("workflow", ("tests/workflow", "--dist", "loadgroup"), "", 400),
    Lane("ranks", (*RANKED,), "ranks", 300, after=("installing", "cluster")),
    Lane("unit", (UNIT, *OTHERS, "--dist", "worksteal"), "not ranks", 280),
    Lane("report", (*FOLDERS["report"], "--dist", "worksteal"), "not ranks", 220),
    Lane("models", (*FOLDERS["models"], "--dist", "worksteal"), "not ranks", 220),
    Lane("files", (*FOLDERS["files"], "--dist", "worksteal"), "not ranks", 160),
)
"""Lanes in the order in which they begin, two at a time: long ones first, so that both cores are busy to the end."""


@dataclass(frozen=True)
class Ran:
    """A lane that ended."""

    lane: Lane
    status: int
    wall: float
    cpu: float


@dataclass(frozen=True)
class Case:
    """One test: where it stands, how long it took in seconds, and why it failed (empty if it did not)."""

    node: str
    seconds: float
    failure: str
    skipped: str


def cases(lane: Lane) -> Iterator[Case]:
    """Yield the tests that the lane's JUnit file holds."""
    file = RESULTS / f"{lane.name}.xml"
    if not file.exists():
        return
    for case in ElementTree.parse(file).iter("testcase"):
        path = case.get("file") or case.get("classname", "").replace(".", "/") + ".py"
        reasons = {kind: found.get("message", "") for kind in ("failure", "error", "skipped")
                   if (found := case.find(kind)) is not None}  # fmt: skip
        failure = reasons.get("failure", reasons.get("error", ""))
        yield Case(f"{path}::{case.get('name')}", float(case.get("time", 0)), failure, reasons.get("skipped", ""))


def install() -> None:
    """Install Slurm, its accounts, GlusterFS and a browser, where this user may."""
    if os.getuid() == 0 and shutil.which("apt-get"):
        subprocess.run([ROOT / "tests/cluster/install.sh"], check=True)
        if not shutil.which("chromium"):
            chromium = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium"]
            subprocess.run(chromium, check=True, stdout=subprocess.DEVNULL)


def check() -> bool:
    """Return whether ``make check`` fails."""
    return subprocess.run(["make", "--no-print-directory", "check"], cwd=ROOT, check=False).returncode != 0


Step = tuple[tuple[str, ...], Callable[[], Any]]
"""Names of the steps that have to end before, and what is done."""


def carry_out(steps: Mapping[str, Step]) -> dict[str, Future[Any]]:
    """Do all steps, some at a time, each time the first of those that wait for no other; return how each ended."""
    waiting, begun = dict(steps), dict[str, Future[Any]]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while waiting:
            running = {name for name, one in begun.items() if not one.done()}
            ready = [name for name, (after, _) in waiting.items() if not {*after} & {*waiting, *running}]
            for name in ready[: AT_ONCE - len(running)]:
                begun[name] = pool.submit(waiting.pop(name)[1])
            wait([one for one in begun.values() if not one.done()], return_when=FIRST_COMPLETED)
    return begun


def run(lane: Lane, workers: int, night: bool) -> Ran:
    """Run the lane to its end; its output goes to the screen, once it is there as a whole, and to its log."""
    began = time.monotonic()
    log = RESULTS / f"{lane.name}.log"
    with log.open("w") as output:
        command = [sys.executable, __file__, "--adopt", *lane.command(workers, night)]
        threads = {} if lane.name == "cluster" else {"OMP_NUM_THREADS": "1"}  # jobs of Slurm have their own
        environment = {**os.environ, **threads}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    print(log.read_text(), flush=True)
    return Ran(lane, os.waitstatus_to_exitcode(status), time.monotonic() - began, usage.ru_utime + usage.ru_stime)


def adopt(command: list[str]) -> int:
    """Run a command as the parent of all that it leaves (daemons of the cluster, their jobs): CPU time counts so."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    process, ended = os.posix_spawn(command[0], command, os.environ), 0
    while ended != process:
        ended, status = os.wait()
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return os.waitstatus_to_exitcode(status)


def leave_nothing() -> None:
    """At SIGTERM end all processes below this one, whatever they detached from, and then this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def end(number: int, _: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while left := below():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
            time.sleep(0.1)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def below() -> set[int]:
    """Return the processes below this one that have not ended."""
    parents: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(process.name)] = int(parent)
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def folders(found: Iterable[Case]) -> list[tuple[float, int, str]]:
    """Return seconds, number of tests and name of each folder of tests, the slowest first."""
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for case in found:
        groups[str(Path(case.node.partition("::")[0]).parent)].append(case.seconds)
    return sorted(((sum(times), len(times), folder) for folder, times in groups.items()), reverse=True)


def summary(ran: list[Ran], wall: float, night: bool) -> list[str]:
    """Return lines: lanes beside their budgets, the slowest folders, failed tests and how to run them again."""
    found = {each.lane: list(cases(each.lane)) for each in ran}
    lines = [f"{'lane':10}{'tests':>7}{'wall s':>9}{'CPU s':>8}{'budget':>8}"]
    for each in ran:
        over = not night and each.cpu > each.lane.budget
        mark = "  over its budget: CONTRIBUTING.md, Tests" if over else ""
        tests = len(found[each.lane])
        lines.append(f"{each.lane.name:10}{tests:7}{each.wall:9.0f}{each.cpu:8.0f}{each.lane.budget:8}{mark}")
    budget = sum(each.lane.budget for each in ran)
    tests, cpu = sum(map(len, found.values())), sum(each.cpu for each in ran)
    lines.append(f"{'all':10}{tests:7}{wall:9.0f}{cpu:8.0f}{budget:8}")
    everything = [case for lane in found.values() for case in lane]
    slowest = ", ".join(f"{folder} {seconds:.0f} s" for seconds, _, folder in folders(everything)[:5])
    lines.append(f"slowest folders: {slowest}")
    if skipped := sorted({case.skipped for case in everything if case.skipped}):
        lines.append(f"skipped: {'; '.join(skipped)}")
    failed = [case for case in everything if case.failure]
    lines += [f"FAILED {case.node}: {case.failure.splitlines()[0][:160]}" for case in failed[:SHOWN_FAILURES]]
    if failed:
        nodes = " ".join(f"'{case.node}'" for case in failed)
        more = f"{len(failed)} failed; " if len(failed) > SHOWN_FAILURES else ""
        lines.append(f"{more}just those: .venv/bin/pytest {nodes}")
    lines += [f"lane {each.lane.name} ended with status {each.status}: {RESULTS / each.lane.name}.log"
              for each in ran if each.status and not any(case.failure for case in found[each.lane])]  # fmt: skip
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--adopt"]:
        sys.exit(adopt(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--night", action="store_true", help="repetitions, too (make test-all)")
    parser.add_argument("--lane", choices=[lane.name for lane in LANES])
    arguments = parser.parse_args()
    leave_nothing()
    began = time.monotonic()
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    workers = max(1, len(os.sched_getaffinity(0)) // 2)
    chosen = [lane for lane in LANES if arguments.lane in (None, lane.name)]
    steps: dict[str, Step] = {lane.name: (lane.after, partial(run, lane, workers, arguments.night)) for lane in chosen}
    if arguments.lane is None:  # a lane by itself runs as things are
        steps = {"installing": ((), install), "checking": ((), check), **steps}
    begun = carry_out(steps)
    ran = [begun[lane.name].result() for lane in chosen]
    print(*summary(ran, time.monotonic() - began, arguments.night), sep="\n")
    wrong = "checking" in begun and begun["checking"].result()
    if wrong:
        print("FAILED make check")
    if "installing" in begun:
        begun["installing"].result()
    sys.exit(wrong or any(each.status for each in ran))


if __name__ == "__main__":
    main()
