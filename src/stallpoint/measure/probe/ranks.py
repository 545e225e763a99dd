"""Rank and number of the script's workers, under any launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch.distributed as dist

from stallpoint.errors import InputError

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # variables of torchrun, accelerate and stallpoint
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),  # last: under another launcher it is that of the launcher's own step
)
"""Variables in which launchers give a process its rank, and the number of ranks."""


def rank_and_size(variables: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return this process's rank and the number of ranks: those of torch.distributed if it is initialised, else the
    launcher's."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    for names in LAUNCHERS:
        if all(name in variables for name in names):
            texts = [variables[name] for name in names]
            try:
                rank, size = map(int, texts)
            except ValueError:
                raise InputError(f"{names[0]}={texts[0]}, {names[1]}={texts[1]}: whole numbers are expected") from None
            if not 0 <= rank < size:
                raise InputError(
                    f"{names[0]}={rank}, {names[1]}={size}: the rank has to be less than the number of ranks"
                )
            return rank, size
    return 0, 1
