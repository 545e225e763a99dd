"""Requests and allocation of the Slurm job that measures a cell, as the job itself sees them.

Without accounting, Slurm forgets jobs that have ended: each job therefore records its own requests. It asks
``scontrol``, or else uses Slurm's environment variables, most of which Snakemake's executor drops.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from stallpoint.slurm.asking import output_of

_UNITS = {"": 2**20, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""Bytes of Slurm's units of memory."""


def own_job(variables: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the Slurm job of this process as a row of `tables.SLURM_JOBS` without cell columns; None outside Slurm."""
    job = variables.get("SLURM_JOB_ID")
    if not job:
        return None
    output = output_of(["scontrol", "show", "job", "--oneliner", job]) or ""
    return {"slurm_job_id": job, **_from_variables(variables), **from_scontrol(output)}


def memory_of_node(job: Mapping[str, Any] | None) -> int | None:
    """Return the memory that `job` (from `own_job`) requested on each node, bytes; None if it is unknown."""
    match = re.search(r"(?:^|,)mem=(\d+(?:\.\d+)?)([KMGT]?)", str((job or {}).get("requested", "")))
    if not match or not job or not job["nodes"]:
        return None
    return int(float(match[1]) * _UNITS[match[2]] / job["nodes"])


def from_scontrol(text: str) -> dict[str, Any]:
    """Return the columns of `tables.SLURM_JOBS` that a line of ``scontrol show job --oneliner`` states."""
    fields = dict(part.split("=", 1) for part in text.split() if "=" in part)
    texts = {
        "partition": "Partition",
        "requested": "ReqTRES" if "ReqTRES" in fields else "TRES",
        "time_limit": "TimeLimit",
        "submitted": "SubmitTime",
        "started": "StartTime",
        "node_list": "NodeList",
    }
    numbers = {"nodes": "NumNodes", "tasks": "NumTasks", "cpus_per_task": "CPUs/Task", "cpus": "NumCPUs"}
    return {
        **{column: fields[name] for column, name in texts.items() if name in fields},
        **{column: number for column, name in numbers.items() if (number := _number(fields.get(name))) is not None},
    }


def _from_variables(variables: Mapping[str, str]) -> dict[str, Any]:
    return {
        "partition": variables.get("SLURM_JOB_PARTITION", ""),
        "nodes": _number(variables.get("SLURM_JOB_NUM_NODES")),
        "tasks": _number(variables.get("SLURM_NTASKS")),
        "cpus_per_task": _number(variables.get("SLURM_CPUS_PER_TASK")),
        "cpus": None,
        "requested": "",
        "time_limit": "",
        "submitted": "",
        "started": "",
        "node_list": variables.get("SLURM_JOB_NODELIST", ""),
    }


def _number(text: str | None) -> int | None:
    """Return the first number of a text; before nodes are allocated, Slurm writes a range such as ``2-2``."""
    first_number = (text or "").split("-")[0]
    return int(first_number) if first_number.isdecimal() else None
