"""Collective operations by torch.distributed: Gloo between CPUs, NCCL between GPUs.

Ranks find each other by MPI, under any launcher: rank 0 opens a port and sends its address to the other ranks. No
settings and no files are needed.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from stallpoint.errors import CannotRun
from stallpoint.measure.machine.node_addresses import GLOO
from stallpoint.measure.synchronisation.rendezvous import interface
from stallpoint.measure.world import World

all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Collectives of single tensors, which had other names before PyTorch 2.13."""
_PATIENCE = timedelta(minutes=10)
"""Time after which a collective fails if a rank does not join it; a rank that dies ends the job at once."""


class TorchCommunicator:
    """The default process group of torch.distributed, with MPI's ranks."""

    def __init__(self, world: World, device: torch.device) -> None:
        backend = "nccl" if device.type == "cuda" else "gloo"
        if not (dist.is_available() and dist.is_backend_available(backend)):
            raise CannotRun(f"this PyTorch has no torch.distributed with {backend}; use a preset with backend: mpi")
        if dist.is_initialized():  # an earlier visit failed before it left its group
            dist.destroy_process_group()
        self.ranks, self.rank = world.size, world.rank
        name, address = interface(world)
        os.environ[GLOO] = name  # an earlier visit may have set this variable to another value
        dist.init_process_group(
            backend, store=_store(world, address), rank=world.rank, world_size=world.size, timeout=_PATIENCE
        )

    def all_reduce(self, values: torch.Tensor) -> int:
        """Sum over all ranks, in place."""
        dist.all_reduce(values)
        return values.nbytes

    def collect(self, values: torch.Tensor) -> int:
        """Sum at rank 0."""
        dist.reduce(values, 0)
        return values.nbytes if self.rank else 0

    def spread(self, values: torch.Tensor) -> int:
        """Send the values of rank 0 to all ranks."""
        dist.broadcast(values, 0)
        return 0 if self.rank else values.nbytes

    def all_to_all(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Send the i-th row of `outgoing`, bytes, to rank i; `received` gets a row from every rank."""
        dist.all_to_all_single(received, outgoing)
        return outgoing.nbytes

    def all_gather(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Gather every rank's `outgoing` as the rows of `received`."""
        all_gather(received.view(-1), outgoing)
        return outgoing.nbytes

    def reduce_scatter(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Sum `outgoing` over all ranks; `received` gets this rank's row of the sum."""
        reduce_scatter(received, outgoing.view(-1))
        return outgoing.nbytes

    def broadcast(self, values: torch.Tensor) -> int:
        """Send the values of rank 0 to all ranks."""
        return self.spread(values)

    def pass_on(self, received: torch.Tensor, outgoing: torch.Tensor) -> int:
        """Send `outgoing` to the next rank, and receive `received` from the previous one."""
        sending = dist.P2POp(dist.isend, outgoing, (self.rank + 1) % self.ranks)
        arriving = dist.P2POp(dist.irecv, received, (self.rank - 1) % self.ranks)
        for work in dist.batch_isend_irecv([sending, arriving]):
            work.wait()
        return outgoing.nbytes

    def close(self) -> None:
        """Leave the process group; called on all ranks."""
        dist.destroy_process_group()


def _store(world: World, address: str) -> TCPStore:
    """Return the store through which ranks exchange addresses; rank 0 serves it on a free port."""
    if world.rank == 0:
        store = TCPStore(address, 0, world.size, is_master=True, wait_for_workers=False, timeout=_PATIENCE)
        world.comm.bcast(store.port)
        return store
    return TCPStore(address, world.comm.bcast(None), world.size, is_master=False, timeout=_PATIENCE)
