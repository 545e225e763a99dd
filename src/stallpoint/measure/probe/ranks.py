"""Rank and number of a script's workers under any launcher, and evidence that the workers train one model."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from stallpoint.errors import InputError

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # set by torchrun, accelerate and stallpoint
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),  # Slurm's variables come last: if srun starts mpirun, they describe mpirun
)
"""Variables in which launchers give a process its rank and the number of ranks."""


def rank_and_size(variables: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return this process's rank and the number of ranks, by torch.distributed if it is initialised, else by the
    launcher's variables."""
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


def backend() -> str:
    """Return the backend of torch.distributed, such as ``gloo``; empty without a process group."""
    return str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else ""


_SHARDED = ("device_mesh", "ds_id")
"""Attributes of sharded parameters, in a DTensor and in DeepSpeed."""


def collectives() -> int | None:
    """Return the number of collectives of torch.distributed so far; None if other libraries may call collectives."""
    mpi = sys.modules.get("mpi4py.MPI")
    if "horovod.torch" in sys.modules or (mpi and mpi.Is_initialized() and mpi.COMM_WORLD.size > 1):
        return None
    if not (dist.is_available() and dist.is_initialized()):
        return 0
    try:
        groups: Iterable[Any] = dist.distributed_c10d._world.pg_map
        return sum(int(group._get_sequence_number_for_group()) for group in groups)
    except (RuntimeError, AttributeError):  # this backend, or this PyTorch, does not count collectives
        return None


def checksum(model: nn.Module) -> int | None:
    """Return the CRC-32 of the trained weights; None if each worker holds a shard of them."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        return None
    found = 0
    for weights in model.parameters():
        if any(hasattr(weights, name) for name in _SHARDED):
            return None
        if weights.requires_grad:
            values = weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            found = zlib.crc32(np.asarray(values).tobytes(), found)
    return found
