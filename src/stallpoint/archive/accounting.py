"""Slurm's accounts of a study's jobs: what ``sacct`` prints, as the table `records.ACCOUNTING`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stallpoint.errors import InputError

_FIELDS = {
    "slurm_job_id": "JobID", "partition": "Partition", "state": "State", "exit_code": "ExitCode", "submitted": "Submit",
    "started": "Start", "ended": "End", "elapsed": "ElapsedRaw", "nodes": "NNodes", "cpus": "NCPUS",
    "cpu_time": "CPUTimeRAW", "requested": "ReqTRES", "allocated": "AllocTRES", "time_limit": "Timelimit",
    "node_list": "NodeList",
}  # fmt: skip
"""Field of ``sacct`` for each column. Neither user, account nor folder is asked for."""
_NUMBERS = ("elapsed", "nodes", "cpus", "cpu_time")


def command(jobs: Iterable[str]) -> list[str]:
    """The command that prints the accounts of the given jobs, one line for each."""
    return [
        "sacct", "--allocations", "--parsable2", "--noconvert", f"--format={','.join(_FIELDS.values())}",
        f"--jobs={','.join(jobs)}",
    ]  # fmt: skip


def from_sacct(text: str) -> list[dict[str, Any]]:
    """Rows of `records.ACCOUNTING` from what `command` printed."""
    head, *lines = text.splitlines() or [""]
    if head.split("|") != list(_FIELDS.values()):
        raise InputError(f"sacct: its first line should be {'|'.join(_FIELDS.values())}, but is {head!r}")
    return [_row(dict(zip(_FIELDS, line.split("|"), strict=True))) for line in lines if line]


def _row(texts: dict[str, str]) -> dict[str, Any]:
    numbers = {name: int(texts[name]) if texts[name].isdecimal() else None for name in _NUMBERS}
    state = texts["state"].split(" ")[0]  # "CANCELLED by 1000" names a user
    return {**texts, **numbers, "state": state}
