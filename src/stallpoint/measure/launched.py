"""Variables by which launchers (mpirun, srun) describe a job to its processes, read without MPI."""

from __future__ import annotations

import os
from collections.abc import Mapping

_RANKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables with the number of ranks; Slurm's come last, here and below, as mpirun runs in a Slurm step of its own."""
_RANKS_ON_NODE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE")


def first_process() -> bool:
    """Return whether this process is the first of its job, by the launcher's variables."""
    for variable in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if variable in os.environ:
            return os.environ[variable] == "0"
    return True


def ranks_started(variables: Mapping[str, str]) -> int:
    """Return the number of processes that the launcher started; 1 without a launcher."""
    return _process_count(_RANKS, variables)


def ranks_on_node(variables: Mapping[str, str]) -> int:
    """Return the number of processes on this node; under srun, the number on the first node of its step."""
    return _process_count(_RANKS_ON_NODE, variables)


def _process_count(names: tuple[str, ...], variables: Mapping[str, str]) -> int:
    text = next((variables[name] for name in names if name in variables), "")
    count = text.split("(")[0].split(",")[0]  # Slurm writes 2(x3),1 for 2, 2, 2 and 1 tasks
    return int(count) if count.isdecimal() and int(count) else 1
