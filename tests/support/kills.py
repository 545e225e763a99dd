"""A study whose run is killed at random moments; then one command must go on.

``python -m kills [--kills N] [--seed N]`` prints one JSON line for each victim (`Tally`). Each time the study's cells
are new (another number of iterations), and Snakemake, the program of the schedule, the launcher, a rank or all get
a signal at a moment of the run, in processes of their own. Then the same command runs once more: it must end well, ask
for no ``--unlock``, print no traceback and leave no process of the killed run; every record is whole, with each visit
that was finished before, and none twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import forked
from archived import SCHEMA, inside
from checkout import BLOCK, OWN_NETWORK, TINY, Checkout
from little import NETWORK
from tally import Tally, as_program

from stallpoint.errors import InputError
from stallpoint.records.parquet import open_file, read
from stallpoint.records.tables import RUNS, VISITS
from stallpoint.study.collect import Record
from stallpoint.study.kinds import kind_of
from stallpoint.study.study import expand

STUDY = {
    **{name: value for name, value in TINY.items() if name not in ("sgemm", "collectives", "storage_reads")},
    "visits": 2,
    "warmup": 0,
    "networks": OWN_NETWORK,
    "storage": {"jpeg": {"path": "images", "format": "files", "generate": 4}},
    "matrix": [{**BLOCK, "network": "mine", "scaling": "strong"}],
    "external_tables": {},
    "claims": [],
}
TARGET = "results/tiny/tables/runs.parquet"
VICTIMS = {
    "snakemake": "snakemake",
    "schedule": "scripts/measure.py",
    "launcher": "mpirun",
    "a rank": "stallpoint.measure",
    "all": "snakemake",
}
"""What is killed, and how one of the first words of its command line ends."""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV)
PATIENCE = 300.0
"""Seconds after which a run hangs."""


def processes_of(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, own, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            found += [int(process.name)] if int(own) == session and state not in "ZX" else []
    return found


def called(name: str, processes: list[int]) -> list[int]:
    """Return those processes that run the program of this name, in order."""
    found = []
    for process in sorted(processes):
        with suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")[:3]
            found += [process] if any(word.endswith(name) for word in words) else []
    return found


def visited(study: Checkout) -> set[object]:
    """Return when each finished visit on disk started."""
    found = set[object]()
    for file in study.results("visits").rglob("visits.parquet"):
        if file.parent.name != "record" and not file.parent.name.startswith("visit~"):
            continue  # a visit that finds out whether cells disturb each other: no part of a record
        with suppress(InputError):  # the record of all visits has just replaced its folder
            found.update(read(VISITS, file)["started"].to_pylist())
    return found


def kill(study: Checkout, victim: str, number: signal.Signals, delay: float) -> tuple[int, set[object]] | None:
    """Start the study and kill the victim after `delay` s; return its session and the visits then, None if it ended."""
    run = study.start_snakemake(TARGET, said=subprocess.DEVNULL, own_session=True)
    begun = time.monotonic()
    while run.poll() is None:
        hit = called(VICTIMS[victim], processes_of(run.pid))
        if hit and time.monotonic() - begun >= delay:
            before = visited(study)
            with suppress(ProcessLookupError):
                if victim == "all":
                    os.killpg(run.pid, number)
                else:
                    os.kill(hit[-1], number)
            try:
                run.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                raise
            return run.pid, before
        time.sleep(0.02)
    return None


def problem(study: Checkout, iterations: int, session: int, before: set[object]) -> tuple[str, str]:
    """Run the same command once more; return the count of a tally that is wrong then, and why, or two empty texts."""
    again = study.start_snakemake(TARGET, **forked.environment(study.library))
    text, _ = again.communicate(timeout=PATIENCE)
    if again.returncode or "--unlock" in text or "Traceback" in text:
        return "lost", f"the next command ended with {again.returncode}: {text[-600:]}"
    if left := processes_of(session):
        return "hangs", f"{len(left)} processes of the killed run are left"
    visits: list[tuple[object, ...]] = []
    with inside(study.folder):
        paths = list(expand({**study.study, "iterations": iterations}, SCHEMA).cells)
    for path in paths:
        folder = study.results("raw", path)
        (run,) = read(RUNS, folder / "runs.parquet").to_pylist()
        if run["status"] != "ok":
            return "lost", f"{path}: {run['reason']}"
        try:
            record = Record.of(folder, run)
            for table in kind_of(record.cell).tables:
                if table is not RUNS and record.has_file(table):
                    with open_file(table, record.file(table)) as content:
                        record.check(table, content)
        except InputError as error:
            return "half", str(error)
        rows = read(VISITS, folder / "visits.parquet").to_pylist()
        visits += [(path, row["rank"], row["started"]) for row in rows]
    if lost := before - {when for *_, when in visits}:
        return "lost", f"{len(lost)} finished visits are lost"
    return ("doubled", "a visit is there twice") if len(set(visits)) < len(visits) else ("", "")


def trials(kills: int, seed: int) -> list[Tally]:
    """Kill the run `kills` times, each victim in turn; return a tally for each victim."""
    tallies, draw, numbers = [Tally("kills", victim) for victim in VICTIMS], random.Random(seed), count(3)
    with tempfile.TemporaryDirectory(prefix="stallpoint-kills-") as scratch:
        study = Checkout(Path(scratch), STUDY)
        (Path(scratch) / "mine.py").write_text(NETWORK)
        begun = time.monotonic()
        whole = study.run_snakemake(TARGET)
        took = time.monotonic() - begun
        assert whole.status == 0, whole.text
        for trial in range(kills):
            tally, number, delay = tallies[trial % len(tallies)], draw.choice(SIGNALS), draw.uniform(0, took)
            tally.trials += 1
            try:
                killed = None
                while killed is None:
                    old, iterations = visited(study), next(numbers)
                    study.write_study(iterations=iterations)
                    killed = kill(study, tally.fault, number, delay)
                    delay /= 2
                what, why = problem(study, iterations, killed[0], killed[1] - old)
            except subprocess.TimeoutExpired:
                what, why = "hangs", "a run hangs"
            print(f"kill {trial + 1}: {tally.fault}, {number.name}: {why or 'went on'}", file=sys.stderr, flush=True)
            if what:
                setattr(tally, what, getattr(tally, what) + 1)
                tally.red.append(f"{tally.fault}, seed {seed}, kill {trial} ({number.name}): {why}")
    return [tally for tally in tallies if tally.trials]


if __name__ == "__main__":
    as_program(trials, __doc__, kills=40)
