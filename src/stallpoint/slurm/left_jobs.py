"""Slurm jobs that an earlier run of the workflow left behind: it was killed, and they run on.

The next run would submit the same turns once more. So each run writes down the id under which its jobs are in Slurm's
queue, and the next one cancels those of runs that are no more. What a job has finished is kept; it loses the visit that
it is in.

Nothing of Slurm is run here, but by `ask`.
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
"""Name of the file with the runs, in the folder of the turns."""
PATIENCE = 90.0
"""How long to wait for the end of cancelled jobs, s: Slurm gives them 30 s by default, and the nodes need some more."""


@dataclass(frozen=True)
class Run:
    """A run of the workflow on a login node."""

    name: str
    """Of its jobs in Slurm's queue."""
    host: str
    pid: int
    began: str
    """When its process began, in the kernel's own count: ids of processes come again."""

    @classmethod
    def this(cls, name: str) -> Self:
        """The run of this process."""
        return cls(name, socket.gethostname(), os.getpid(), _began(os.getpid()))

    @property
    def goes_on(self) -> bool:
        """Whether its process is there: known of this host alone."""
        return self.host == socket.gethostname() and bool(self.began) and _began(self.pid) == self.began


def known(file: Path) -> list[Run]:
    """The runs that were written down."""
    try:
        return [Run(**one) for one in json.loads(file.read_text())]
    except (OSError, ValueError, TypeError):
        return []


def cancel(file: Path, this: Run, ask: Ask, pause: float = 2.0, patience: float = PATIENCE) -> Iterator[str]:
    """Cancel what earlier runs left in the queue, wait for its end, and write down `this` run; says what was done.

    Jobs of a run that goes on are left alone.
    """
    runs = {run.name: run for run in known(file)}
    left = _jobs(ask, runs) if runs else []
    if left is None:
        yield "Slurm does not say whether jobs of an earlier run go on; one that does keeps a second one from measuring"
    gone: list[slurm_queue.Job] = []
    for job in left or []:
        if runs[job.run].goes_on:
            yield f"job {job} belongs to a run that goes on (process {runs[job.run].pid}): left alone"
        else:
            gone.append(job)
            yield f"job {job} was left behind by an earlier run: cancelled; what it finished is kept"
    stay = {job.run for job in left or []} if left is not None else set(runs)
    with atomic(file) as scratch:  # before it is waited: a run that is killed meanwhile has lost nothing
        scratch.write_text(json.dumps([asdict(run) for run in (*(runs[name] for name in sorted(stay)), this)]))
    if gone:
        for command in cancelling(gone):
            ask(command)
        deadline = time.monotonic() + patience
        ids = {(job.cluster, job.id) for job in gone}
        while still := ids & {(job.cluster, job.id) for job in _jobs(ask, runs) or []}:
            if time.monotonic() > deadline:
                named = ", ".join(sorted(job for _, job in still))
                yield f"job {named} is still there {patience:.0f} s after it was cancelled"
                break
            time.sleep(pause)


def cancelling(jobs: Iterable[slurm_queue.Job]) -> Iterator[list[str]]:
    """Commands that cancel jobs, one for each cluster: ids come again on another."""
    for cluster, ids in groupby(sorted((job.cluster, job.id) for job in jobs), key=itemgetter(0)):
        yield ["scancel", *on_clusters([cluster] if cluster else []), *(job for _, job in ids)]


def _jobs(ask: Ask, runs: dict[str, Run]) -> list[slurm_queue.Job] | None:
    answer = slurm_queue.all_clusters(ask)
    return None if answer is None else [job for job in slurm_queue.jobs_of_runs(answer) if job.run in runs]


def _began(pid: int) -> str:
    """When a process of this machine began; empty where there is none (or no Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
