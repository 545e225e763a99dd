"""Slurm's accounts of a study's jobs: the output of ``sacct`` as the table `tables.ACCOUNTING`.

No program is run here: `command` returns the command, `from_sacct` reads its output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from stallpoint.errors import InputError
from stallpoint.slurm.asking import on_clusters

_SACCT_FIELDS = {
    "slurm_job_id": "JobID", "partition": "Partition", "state": "State", "exit_code": "ExitCode", "submitted": "Submit",
    "started": "Start", "ended": "End", "elapsed": "ElapsedRaw", "nodes": "NNodes", "cpus": "NCPUS",
    "cpu_time": "CPUTimeRAW", "energy": "ConsumedEnergyRaw", "requested": "ReqTRES", "allocated": "AllocTRES",
    "time_limit": "Timelimit", "node_list": "NodeList",
}  # fmt: skip
"""Field of ``sacct`` by column of `tables.ACCOUNTING`. User, account and folder are not requested."""
_WAIT_REASON = "Reason"
"""Field with the last reason why a job waited, which is not the reason why it ended."""
_NUMBER_COLUMNS = ("elapsed", "nodes", "cpus", "cpu_time", "energy")
_MISSING_TEXTS = ("None", "Unknown", "None assigned")
"""Texts by which ``sacct`` marks a missing value, such as the start of a job that never ran."""
_MAX_ENERGY = 2**63
"""Number of joules from which Slurm means "unknown"."""
_SECONDS_PER_HOUR = 3600
_END_WORDS = {
    "COMPLETED": "",
    "TIMEOUT": "time limit reached",
    "DEADLINE": "deadline reached",
    "OUT_OF_MEMORY": "out of memory",
    "CANCELLED": "cancelled",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "PREEMPTED": "made way for another job",
}
"""Reason why a job did not complete, by its state; other states are described by their name and the exit code."""


def command(jobs: Iterable[str]) -> list[str]:
    """Return the command that prints the accounts of `jobs`, one line for each job."""
    return _sacct(_field_names(), jobs, "--noconvert")


def states_command(jobs: Iterable[str], clusters: Collection[str] = ()) -> list[str]:
    """Return the command that prints id and state of `jobs`, to learn whether jobs that left the queue have ended."""
    return _sacct(["JobIDRaw", "State"], jobs, "--noheader", *on_clusters(clusters))


def active(answer: str | None) -> set[str]:
    """Return the ids of jobs that have not ended, by the output of `states_command`; empty if it has no output."""
    lines = [line.split("|") for line in (answer or "").splitlines() if line.count("|") == 1]
    return {job for job, state in lines if not state.startswith(("FAILED", *_END_WORDS))}


def _sacct(fields: Iterable[str], jobs: Iterable[str], *options: str) -> list[str]:
    selection = [f"--format={','.join(fields)}", f"--jobs={','.join(jobs)}"]
    return ["sacct", "--allocations", "--parsable2", *options, *selection]


def from_sacct(text: str) -> list[dict[str, Any]]:
    """Return the rows of `tables.ACCOUNTING` in the output of `command`."""
    head, *lines = text.splitlines() or [""]
    if head.split("|") != _field_names():
        raise InputError(f"sacct: its first line should be {'|'.join(_field_names())}, but is {head!r}")
    return [_row(line.split("|")) for line in lines if line]


def _field_names() -> list[str]:
    return [*_SACCT_FIELDS.values(), _WAIT_REASON]


def _row(fields: list[str]) -> dict[str, Any]:
    *known_fields, waited_for = ("" if field in _MISSING_TEXTS else field for field in fields)
    texts = dict(zip(_SACCT_FIELDS, known_fields, strict=True))
    numbers = {name: int(texts[name]) if texts[name].isdecimal() else None for name in _NUMBER_COLUMNS}
    state = texts["state"].split(" ")[0]  # removes the user id from "CANCELLED by 1000"
    elapsed, nodes, energy = numbers["elapsed"], numbers["nodes"], numbers["energy"]
    return {
        **texts,
        **numbers,
        "state": state,
        "reason": _failure_reason(state, texts["exit_code"], None if texts["started"] else waited_for),
        "node_hours": None if elapsed is None or nodes is None else elapsed * nodes / _SECONDS_PER_HOUR,
        "energy": energy if energy and energy < _MAX_ENERGY else None,  # Slurm writes 0 if it does not measure energy
    }


def _failure_reason(state: str, exit_code: str, waited_for: str | None) -> str:
    """Return why a job did not complete. If the job never started, `waited_for` is the last reason why it waited."""
    words = _END_WORDS[state] if state in _END_WORDS else _end_in_words(state, exit_code)
    if not words or waited_for is None:
        return words
    return f"{words}, not started" + (f" ({waited_for})" if waited_for else "")


def _end_in_words(state: str, exit_code: str) -> str:
    """Return words for how a job ended, by its exit code ``status:signal``, or, if that is 0 or empty, by its state."""
    status, _, signal = exit_code.partition(":")
    if signal not in ("", "0"):
        return f"killed (signal {signal})"
    return state.lower().replace("_", " ") if status in ("", "0") else f"exit status {status}"
