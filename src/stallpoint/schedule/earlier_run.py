"""Clean-up after a run of the workflow that was killed on this machine: its processes, and Snakemake's folder lock.

Each run records its name, and sets an environment variable in its processes. The next run finds the processes by this
variable. Slurm jobs of killed runs are cancelled elsewhere (`stallpoint.slurm.orphaned_jobs`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from stallpoint.records.atomic import atomic
from stallpoint.slurm.orphaned_jobs import WorkflowRun, known
from stallpoint.text import listed

FILE = "stallpoint_runs.json"
"""Name of the file that lists runs, in Snakemake's folder."""
RUN_ENV = "STALLPOINT_RUN"
SLURM_JOB = b"SLURM_JOB_ID"
PATIENCE = 60.0
"""Time that processes have to save their rows and end, before they are killed, s."""


def take_over(folder: Path, locks: Path, patience: float = PATIENCE) -> Iterator[str]:
    """End the processes of killed runs, remove their lock, and record this run; yield a message about what was left.

    The lock is kept if another run is alive, or if it may be alive on another machine.
    """
    file = folder / FILE
    has_locks = locks.is_dir() and any(locks.iterdir())
    runs = known(file)
    live_runs = [run for run in runs if run.is_alive or (has_locks and run.host != socket.gethostname())]
    dead_runs = [run for run in runs if run not in live_runs and run.host == socket.gethostname()]
    processes = [pid for run in dead_runs for pid in _processes(run)]
    _end(processes, patience)
    if dead_runs and not live_runs and has_locks:
        shutil.rmtree(locks, ignore_errors=True)
    if processes or (dead_runs and not live_runs and has_locks):
        words = f"{len(processes)} of its processes still ran and were ended, " if processes else ""
        yield f"an earlier run here was killed: {words}finished visits are kept, and this run goes on with them"
    own_run = WorkflowRun.create(uuid.uuid4().hex)
    os.environ[RUN_ENV] = own_run.name
    with atomic(file) as scratch:
        scratch.write_text(json.dumps([asdict(run) for run in (*live_runs, own_run)]))


def lock_message(folder: Path, locks: Path) -> str:
    """Return a message that says who holds the lock, since when, and how to end the run that holds it."""
    *other_runs, _ = known(folder / FILE)
    found = locks.stat()
    with suppress(OSError):  # the process that holds the lock may end now, and remove the lock
        found = min((lock.stat() for lock in locks.iterdir()), key=lambda one: one.st_mtime, default=found)
    since = f"{datetime.fromtimestamp(found.st_mtime):%Y-%m-%d %H:%M}"
    holders = listed([f"process {run.pid} on {run.host}" for run in other_runs]) or "a process that is not known"
    text = f"user {found.st_uid} measures in this folder since {since} ({holders}): let that run end, or end it there"
    may_be_elsewhere = any(run.host != socket.gethostname() for run in other_runs) or not other_runs
    return text + ("; if it is gone, remove its lock with --unlock" if may_be_elsewhere else "")


def _processes(run: WorkflowRun) -> list[int]:
    """Return ids of all processes on this machine that belong to the run, without processes in other Slurm jobs."""
    own_job, found = os.environb.get(SLURM_JOB), []
    for process in Path("/proc").glob("[0-9]*"):  # a glob of `*/environ` would fail if a process ended meanwhile
        with suppress(OSError):  # the process has ended, or belongs to another user
            environment = (process / "environ").read_bytes()
            variables = dict(entry.partition(b"=")[::2] for entry in environment.split(b"\0"))
            if variables.get(RUN_ENV.encode()) == run.name.encode() and variables.get(SLURM_JOB, own_job) == own_job:
                found.append(int(process.name))
    return found


def _end(processes: list[int], patience: float) -> None:
    """Send SIGTERM to processes, wait up to `patience` s, then kill the processes that still run."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for pid in filter(_is_alive, processes):
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        deadline = time.monotonic() + patience
        while any(map(_is_alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False
