"""Accounts of jobs, as ``sacct --parsable2`` prints them: node-seconds, failures of nodes, energy.

State, ElapsedRaw and NNodes are required, ConsumedEnergyRaw is optional. Only jobs count, not their steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stallpoint.inputs.documents import Document

_REQUIRED = frozenset(("State", "ElapsedRaw", "NNodes"))
_FAILED = "NODE_FAIL"
_ENERGY = "ConsumedEnergyRaw"
_MAX_ENERGY = 2**63
"""Energy above which Slurm's numbers mean "unknown", J."""


@dataclass(frozen=True)
class SlurmAccounts:
    """Sums over all jobs that ran."""

    jobs: int
    failures: int
    """Jobs that ended because a node failed."""
    node_seconds: float
    energy: float
    """Energy of the jobs whose energy is known, J."""
    energy_node_seconds: float
    """Node-seconds of the jobs whose energy is known."""


def recognised(document: Document) -> bool:
    """Return whether the first line has headings of sacct."""
    return {"JobID", "State"} <= _headings(document) or _headings(document) >= _REQUIRED


def _headings(document: Document) -> set[str]:
    return set(re.split(r"[|\s]+", next((line for line in document.lines if line.strip()), "")))


def read(document: Document) -> SlurmAccounts:
    """Return the sums over jobs; `InputError` if a column is missing or no job ran."""
    if missing := sorted(_REQUIRED - _headings(document)):
        form = "sacct --parsable2 --format=JobID,State,ElapsedRaw,NNodes,ConsumedEnergyRaw"
        raise document.error(1, f"no {', '.join(missing)}; they are printed by  {form}")
    columns: list[str] = []
    jobs = []
    for line in document.lines:
        fields = line.strip().split("|")
        if not columns:
            columns = fields if set(fields) >= _REQUIRED else []
        elif len(fields) == len(columns):
            job = dict(zip(columns, fields, strict=True))
            if "." not in job.get("JobID", "") and _number(job, "ElapsedRaw") * _number(job, "NNodes") > 0:
                jobs.append(job)
    if not jobs:
        raise document.error(1, "accounts without a job that ran")
    known = [job for job in jobs if 0 < _number(job, _ENERGY) < _MAX_ENERGY]  # an energy of 0 was not measured
    return SlurmAccounts(
        len(jobs),
        sum(job["State"].startswith(_FAILED) for job in jobs),
        sum(map(_node_seconds, jobs)),
        sum(_number(job, _ENERGY) for job in known),
        sum(map(_node_seconds, known)),
    )


def _node_seconds(job: Mapping[str, str]) -> float:
    return _number(job, "ElapsedRaw") * _number(job, "NNodes")


def _number(job: Mapping[str, str], name: str) -> float:
    text = job.get(name, "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 25 else 0.0
