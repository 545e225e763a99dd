"""What Slurm's queue says of a run's jobs while it goes on: what they wait for, which will never start, which are gone.

Nothing is run here, as in `accounting`: `command` says what to ask, `Queue` reads the answers. A view of one cluster
proves nothing about jobs of another one: only jobs that the queue has shown can be gone from it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from stallpoint.slurm.asking import Ask, on_clusters

GONE = 200.0
"""How long a job has to be gone from the queue while Snakemake waits for it, s; Snakemake asks at least each 180 s."""
SILENT = 60.0
"""How long the queue may not answer until that is said, s."""

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
"""Reasons that waiting does not mend, and what they mean."""
ON_ITS_WAY = ("None", "Priority", "Prolog", "BeginTime", "Cleaning")
"""Reasons that need nobody's attention."""


def command(clusters: Collection[str] = ()) -> list[str]:
    """Command that prints a line for each job of this user: id, state, name, comment, and what the job waits for.

    Asks the named clusters, ``all`` for all that Slurm's accounting knows; without a name the local one. The user is
    given by number, as ``--me`` is unknown to Slurm 20.02 and older.
    """
    return ["squeue", f"--user={os.getuid()}", *on_clusters(clusters), "--noheader", "--format=%i|%T|%j|%k|%r"]


def all_clusters(ask: Ask) -> str | None:
    """Answer to `command` of all clusters; of the local one where Slurm cannot name the others."""
    answer = ask(command(["all"]))
    return ask(command()) if answer is None else answer


@dataclass(frozen=True)
class Job:
    """A job in the queue; `run` and `rule` where Snakemake submitted it."""

    id: str
    state: str
    run: str
    """Name of the job. Snakemake's executor for Slurm gives its own id to all its jobs."""
    rule: str
    reason: str
    """What the job waits for."""
    cluster: str = ""
    """Where several clusters were asked."""

    def __str__(self) -> str:
        """For messages."""
        return f"{self.id} ({self.rule})"

    @property
    def words(self) -> str:
        """Whether it runs, waits, or was refused: Slurm took it and will never start it."""
        if self.state != "PENDING":
            return f"job {self.id} is {self.state.lower()}"
        if self.reason in NEVER:
            return f"job {self.id} is refused: {self.reason}, {NEVER[self.reason]}"
        return f"job {self.id} is pending ({self.reason})"


def jobs_in(answer: str) -> Iterator[Job]:
    """Jobs of an answer to `command`; Snakemake writes the rule into the comment, behind ``rule_``."""
    cluster = ""
    for line in answer.splitlines():
        if line.startswith("CLUSTER:"):
            cluster = line.partition(":")[2].strip()
        elif line.count("|") >= 4:
            job, state, run, comment, reason = line.strip().split("|", 4)
            rule = comment.removeprefix("rule_").partition("_wildcards_")[0] if comment.startswith("rule_") else ""
            yield Job(job, state, run, rule, reason.split(",")[0], cluster)


def jobs_of_runs(answer: str) -> list[Job]:
    """Jobs that Snakemake submitted, of an answer to `command`."""
    return [job for job in jobs_in(answer) if job.rule]


@dataclass
class Queue:
    """The jobs that Snakemake waits for."""

    jobs: dict[str, str] = field(default_factory=dict)
    """Id of the job -> the rule that it runs."""
    clusters: dict[str, str] = field(default_factory=dict)
    """Id of the job -> the cluster that it was submitted to, where one was named."""
    answered: float | None = None
    """When the queue last answered."""
    _shown: set[str] = field(default_factory=set)
    """Jobs that the queue has listed at least once."""
    _said: dict[str, str] = field(default_factory=dict)
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a job was first found in a state that should not last."""
    _refused: set[tuple[str, str]] = field(default_factory=set)
    """Rules of jobs that will never start, and why: Snakemake submits them again."""

    def submitted(self, job: str, rule: str, cluster: str = "") -> None:
        """Snakemake waits for a job."""
        self.jobs[job] = rule
        if cluster:
            self.clusters[job] = cluster

    @property
    def command(self) -> list[str]:
        """What to ask: the clusters that were submitted to."""
        return command(set(self.clusters.values()))

    def ended(self, job: str) -> None:
        """Snakemake knows how it ended."""
        self.jobs.pop(job, None)
        self._note(job, "", 0.0)

    def read(self, answer: str | None, now: float) -> Iterator[str]:
        """Take an answer to `command` at a time `now` [s], None where there was none; what is to be said of it."""
        self.answered = now if self.answered is None else self.answered
        if answer is None:
            if now - self.answered >= SILENT and self._said.get("") != "silent":
                self._said[""] = "silent"
                yield "Slurm's controller does not answer; jobs that run go on"
            return
        if self._said.pop("", ""):
            yield "Slurm's controller answers again"
        self.answered = now
        found = {job.id: (job.state, job.reason) for job in jobs_in(answer)}
        self._shown |= found.keys() & self.jobs.keys()
        for job, rule in self.jobs.items():
            state, reason = found.get(job, ("GONE" if job in self._shown else "UNSEEN", ""))
            self._note(job, state if state == "GONE" else reason if reason in NEVER else "", now)
            if state == "UNSEEN":
                continue
            if state == "GONE" and self._said.get(job, state) != state:
                yield f"job {job} ({rule}) has ended; Snakemake finds out how within 3 minutes"
            if state != "PENDING":
                self._said[job] = state
            if state == "PENDING" and reason not in ON_ITS_WAY and self._said.get(job) != reason:
                self._said[job] = reason
                why = f": {NEVER[reason]}" if reason in NEVER else ""
                yield f"job {job} ({rule}) waits: {reason}{why}"

    def hopeless(self, now: float, patience: float) -> dict[str, str]:
        """Jobs that will never start, with the reason: Slurm has said so for `patience` seconds, or of one before."""
        refused = {
            job: reason
            for (job, reason), since in self._since.items()
            if reason != "GONE" and (now - since >= patience or (self.jobs[job], reason) in self._refused)
        }
        self._refused |= {(self.jobs[job], reason) for job, reason in refused.items()}
        return refused

    def gone(self, now: float) -> list[str]:
        """Jobs that Slurm does not know any more, though Snakemake still waits for them."""
        return [job for (job, state), since in self._since.items() if state == "GONE" and now - since >= GONE]

    def _note(self, job: str, state: str, now: float) -> None:
        """Remember since when a job is in this state; empty: in none that should not last."""
        for key in [key for key in self._since if key[0] == job and key[1] != state]:
            del self._since[key]
        if state:
            self._since.setdefault((job, state), now)
