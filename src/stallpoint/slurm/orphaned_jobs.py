"""Cancellation of Slurm jobs that a killed run of the workflow left behind.

The next run would submit jobs for the same cells again. Each run therefore records the name of its jobs in Slurm's
queue, and the next run cancels the jobs of runs that have ended. A cancelled job loses only its current visit.

Slurm's programs are run only through the function `ask`.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Self

from stallpoint.records.atomic import atomic
from stallpoint.slurm import slurm_queue
from stallpoint.slurm.asking import Ask, on_clusters

FILE = "slurm_runs.json"
"""Name of the file that lists runs, in the folder of the agendas."""
PATIENCE = 90.0
"""Time to wait until cancelled jobs have ended, s: Slurm gives them 30 s by default, and nodes need some more."""


@dataclass(frozen=True)
class WorkflowRun:
    """A run of the workflow, identified by its process on a host."""

    name: str
    """Name of the run's jobs in Slurm's queue."""
    host: str
    pid: int
    began: str
    """Time at which the run's process started, in the kernel's ticks, as process ids are reused."""

    @classmethod
    def create(cls, name: str) -> Self:
        """Return the run of this process."""
        return cls(name, socket.gethostname(), os.getpid(), _began(os.getpid()))

    @property
    def is_alive(self) -> bool:
        """Whether the run's process exists on this host."""
        return self.host == socket.gethostname() and bool(self.began) and _began(self.pid) == self.began


def known(file: Path) -> list[WorkflowRun]:
    """Return the runs that are recorded in `file`; an empty list if the file cannot be read."""
    try:
        return [WorkflowRun(**values) for values in json.loads(file.read_text())]
    except (OSError, ValueError, TypeError):
        return []


def cancel(
    file: Path, own_run: WorkflowRun, ask: Ask, pause: float = 2.0, patience: float = PATIENCE, *, locked: bool = False
) -> Iterator[str]:
    """Cancel orphaned jobs, wait until they have ended, record `own_run`, and yield messages about each step.

    Jobs of a live run are not cancelled. If the folder is `locked`, jobs of runs on other machines are not cancelled
    either: one of these runs may hold the lock.
    """
    runs = {run.name: run for run in known(file)}
    jobs = _jobs(ask, runs) if runs else []
    if jobs is None:
        yield (
            "Slurm does not report its jobs; if one of an earlier run still measures, this run's job ends at its start "
            "with a message"
        )
    orphaned_jobs: list[slurm_queue.QueuedJob] = []
    for job in jobs or []:
        if runs[job.run].is_alive:
            yield f"job {job} belongs to a run that goes on (process {runs[job.run].pid}): not cancelled"
        elif locked and runs[job.run].host != socket.gethostname():
            yield (
                f"job {job} belongs to a run on {runs[job.run].host}, which may go on: not cancelled; if it does not, "
                "snakemake --unlock"
            )
        else:
            orphaned_jobs.append(job)
            yield f"job {job} was left behind by an earlier run: cancelled; what it finished is kept"
    kept_runs = {job.run for job in jobs or []} if jobs is not None else set(runs)
    with atomic(file) as scratch:  # this run is recorded before the wait, during which it may be killed
        scratch.write_text(json.dumps([asdict(run) for run in (*(runs[name] for name in sorted(kept_runs)), own_run)]))
    if orphaned_jobs:
        for command in cancel_commands(orphaned_jobs):
            ask(command)
        deadline = time.monotonic() + patience
        cluster_and_job_ids = {(job.cluster, job.id) for job in orphaned_jobs}
        while remaining_jobs := cluster_and_job_ids & {(job.cluster, job.id) for job in _jobs(ask, runs) or []}:
            if time.monotonic() > deadline:
                job_ids = ", ".join(sorted(job for _, job in remaining_jobs))
                yield f"job {job_ids} is still there {patience:.0f} s after it was cancelled"
                break
            time.sleep(pause)


def cancel_commands(jobs: Iterable[slurm_queue.QueuedJob]) -> Iterator[list[str]]:
    """Yield commands that cancel `jobs`: one command for each cluster, since clusters may use the same job ids."""
    for cluster, ids in groupby(sorted((job.cluster, job.id) for job in jobs), key=itemgetter(0)):
        yield ["scancel", *on_clusters([cluster] if cluster else []), *(job for _, job in ids)]


def _jobs(ask: Ask, runs: dict[str, WorkflowRun]) -> list[slurm_queue.QueuedJob] | None:
    answer = slurm_queue.all_clusters(ask)
    return None if answer is None else [job for job in slurm_queue.jobs_of_runs(answer) if job.run in runs]


def _began(pid: int) -> str:
    """Return the start time of a process of this machine, in ticks; empty if there is none, or outside Linux."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
