"""State of a run's jobs in Slurm's queue: why jobs wait, which jobs will never start, and which jobs have ended.

No program is run here: `command` returns the command, `Queue` reads its output. A job counts as gone only if the queue
listed it before, because the queue of one cluster never lists the jobs of other clusters.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from typing_extensions import override

from stallpoint.slurm.asking import Ask, on_clusters

GONE_SECONDS = 200.0
"""Time after which a job that is missing from the queue counts as gone, s; Snakemake asks at least every 180 s."""
SILENT_SECONDS = 60.0
"""Time without an answer of the queue after which that is reported, s."""

NEVER = {
    "PartitionNodeLimit": "it asks for more nodes than its partition has, or allows",
    "PartitionConfig": "its partition has no such nodes, or not as many",
    "PartitionTimeLimit": "it asks for more time than its partition allows (resource runtime)",
    "BadConstraints": "no node has what it asks for (constraint, gres, mem_mb, cpus)",
    "AccountNotAllowed": "its account may not use the partition (resource slurm_account)",
    "InvalidAccount": "there is no such account (resource slurm_account)",
    "InvalidQOS": "there is no such quality of service",
    "QOSNotAllowed": "its account may not use this quality of service",
    **{
        f"{limit}Max{what}PerJobLimit": f"it asks for more {words} than one job may have"
        for limit in ("QOS", "Assoc")
        for what, words in {
            "WallDuration": "time", "Node": "nodes", "Cpu": "CPUs", "GRES": "GPUs", "Memory": "memory",
        }.items()
    },
}  # fmt: skip
"""Meaning of the reasons for which jobs never start."""
DOWN_CAUSES = ("ReqNodeNotAvail", "Nodes required for job are DOWN")
"""Reasons, up to a comma, for which jobs wait until their nodes are available again."""
NO_NODES = "nodes that it needs are down, drained or reserved (`sinfo -R` lists them); it starts once they are back"
START_CAUSES = ("None", "Prolog", "BeginTime", "Cleaning")
"""Reasons of jobs that are about to start, which are not reported."""
WAIT_CAUSES = ("Priority", "Resources")
"""Reasons between which Slurm alternates while a job waits for other jobs; only the first of them is reported."""


def command(clusters: Collection[str] = ()) -> list[str]:
    """Return the command that prints each job of this user: id, state, name, comment, reason for waiting, nodes.

    The command asks `clusters` (``all``: every cluster in Slurm's accounting), by default only the local cluster. The
    user is given by number, since Slurm 20.02 and older versions lack ``--me``.
    """
    return ["squeue", f"--user={os.getuid()}", *on_clusters(clusters), "--noheader", "--format=%i|%T|%j|%k|%r|%N"]


def all_clusters(ask: Ask) -> str | None:
    """Return the output of `command` for all clusters; if Slurm has no list of clusters, for the local cluster."""
    answer = ask(command(["all"]))
    return ask(command()) if answer is None else answer


@dataclass(frozen=True)
class QueuedJob:
    """A job in the queue; `rule` is empty unless Snakemake submitted the job."""

    id: str
    state: str
    run: str
    """Name of the job, which Snakemake's executor for Slurm sets to an id of the run."""
    rule: str
    reason: str
    """Reason for waiting."""
    cluster: str = ""
    """Cluster of the job; empty if only one cluster was asked."""
    nodes: str = ""
    """List of the job's nodes as Slurm writes it; empty before the job starts."""

    @override
    def __str__(self) -> str:
        """Return the job's id and its rule in parentheses."""
        return f"{self.id} ({self.rule})"

    @property
    def words(self) -> str:
        """Words for the job's state: running, pending (with a reason), or refused if Slurm will never start the job."""
        if self.state != "PENDING":
            return f"job {self.id} is {self.state.lower()}"
        if self.reason in NEVER:
            return f"job {self.id} is refused: {self.reason}, {NEVER[self.reason]}"
        return f"job {self.id} is pending ({NO_NODES if self.reason in DOWN_CAUSES else self.reason})"


def jobs_in(answer: str) -> Iterator[QueuedJob]:
    """Yield the jobs in the output of `command`. Snakemake writes a job's rule into its comment, after ``rule_``."""
    cluster = ""
    for line in answer.splitlines():
        if line.startswith("CLUSTER:"):
            cluster = line.partition(":")[2].strip()
        elif line.count("|") >= 4:
            job, state, run, comment, reason, *nodes = line.strip().split("|")
            rule = comment.removeprefix("rule_").partition("_wildcards_")[0] if comment.startswith("rule_") else ""
            yield QueuedJob(job, state, run, rule, reason.split(",")[0], cluster, "".join(nodes))


def jobs_of_runs(answer: str) -> list[QueuedJob]:
    """Return the jobs in the output of `command` that Snakemake submitted."""
    return [job for job in jobs_in(answer) if job.rule]


@dataclass
class Queue:
    """The jobs for which Snakemake waits, and their states in Slurm's queue."""

    jobs: dict[str, str] = field(default_factory=dict)
    """Rule of each job, by job id."""
    clusters: dict[str, str] = field(default_factory=dict)
    """Cluster of each job whose submission named one, by job id."""
    answered: float | None = None
    """Time of the queue's last answer, s."""
    _shown: set[str] = field(default_factory=set)
    """Ids of jobs that the queue has listed at least once."""
    _reports: dict[str, str] = field(default_factory=dict)
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    """Time at which a job was first found in a state that should not last, s, by job id and state."""
    _refused_ids: set[tuple[str, str]] = field(default_factory=set)
    """Rule and reason of jobs that will never start, as Snakemake submits a job of the same rule again."""

    def add_submitted(self, job: str, rule: str, cluster: str = "") -> None:
        """Add a job that Snakemake has submitted."""
        self.jobs[job] = rule
        if cluster:
            self.clusters[job] = cluster

    @property
    def command(self) -> list[str]:
        """Command that lists the user's jobs on every cluster that a submission named, or else on the local cluster."""
        return command(set(self.clusters.values()))

    def ended(self, job: str) -> None:
        """Remove a job after Snakemake has learned that it ended."""
        self.jobs.pop(job, None)
        self._note(job, "", 0.0)

    def read(self, answer: str | None, time: float) -> Iterator[str]:
        """Read the output of `command` (None if it failed) at a time, s; yield messages about jobs.

        A message that may call for action by the user begins with ``!``.
        """
        self.answered = time if self.answered is None else self.answered
        if answer is None:
            if time - self.answered >= SILENT_SECONDS and self._reports.get("") != "silent":
                self._reports[""] = "silent"
                yield "! Slurm's controller does not answer; jobs that run go on"
            return
        if self._reports.pop("", ""):
            yield "Slurm's controller answers again"
        self.answered = time
        jobs_by_id = {job.id: job for job in jobs_in(answer)}
        self._shown |= jobs_by_id.keys() & self.jobs.keys()
        for job, rule in self.jobs.items():
            queued_job = jobs_by_id.get(job) or QueuedJob(job, "GONE" if job in self._shown else "UNSEEN", "", rule, "")
            state, reason, last_report = queued_job.state, queued_job.reason, self._reports.get(job, "")
            self._note(job, state if state == "GONE" else reason if reason in NEVER else "", time)
            if state == "UNSEEN":
                continue
            if state == "GONE" and last_report not in ("", state):
                yield f"! job {job} ({rule}) has ended; Snakemake finds out how within 3 minutes"
            if state == "RUNNING" and last_report != state:
                yield f"job {job} ({rule}) runs" + (f" on {queued_job.nodes}" if queued_job.nodes else "")
            if state != "PENDING":
                self._reports[job] = state
            elif reason not in START_CAUSES and last_report != reason and not {last_report, reason} <= set(WAIT_CAUSES):
                self._reports[job] = reason
                meaning = f"{reason}: {NEVER[reason]}" if reason in NEVER else NO_NODES if reason in DOWN_CAUSES else ""
                yield f"{'! ' if meaning else ''}job {job} ({rule}) waits: {meaning or reason}"

    def hopeless_jobs(self, time: float, patience: float) -> dict[str, str]:
        """Return the reason, by id, of each job that will never start. A reason counts if it has lasted for `patience`
        s, or if it stopped an earlier job of the same rule."""
        refused_jobs = {
            job: reason
            for (job, reason), since in self._since.items()
            if reason != "GONE" and (time - since >= patience or (self.jobs[job], reason) in self._refused_ids)
        }
        self._refused_ids |= {(self.jobs[job], reason) for job, reason in refused_jobs.items()}
        return refused_jobs

    def gone_jobs(self, time: float) -> list[str]:
        """Return the ids of jobs that have left the queue although Snakemake still waits for them."""
        return [job for (job, state), since in self._since.items() if state == "GONE" and time - since >= GONE_SECONDS]

    def _note(self, job: str, state: str, time: float) -> None:
        """Remember since when a job has been in `state`; with an empty state, forget the job."""
        for key in [key for key in self._since if key[0] == job and key[1] != state]:
            del self._since[key]
        if state:
            self._since.setdefault((job, state), time)
