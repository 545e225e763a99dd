"""Rate of a one-second all-reduce by torch.distributed with Gloo, on this node or between a job's nodes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from stallpoint.measure.world import World

BYTES = 16 * 2**20
"""Size of the message: bandwidth explains nearly all of its time, which is short even at 100 Mbit/s."""
SECONDS = 1.0
PATIENCE = 90.0
"""Time after which local processes are ended, s."""


def between_local_processes(ranks: int = 2) -> float | None:
    """Return the rate at which each of `ranks` processes on this node sends in an all-reduce, B/s; None on failure."""
    import torch.distributed as dist  # imported before the fork: else each process would spend seconds on it

    if not dist.is_available():
        return None
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [context.Process(target=_one_process, args=(rank, ranks, Path(folder), sender)) for rank in range(ranks)]
        for job in jobs:
            job.start()
        sender.close()
        try:
            return float(receiver.recv()) if receiver.poll(PATIENCE) else None
        except EOFError:  # all processes have ended
            return None
        finally:
            for job in jobs:
                job.kill()
                job.join()


def between_ranks(world: World) -> float:
    """Return the rate at which each rank of an MPI job sends in an all-reduce, B/s; called on all ranks."""
    import torch

    from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator

    communicator = TorchCommunicator(world, torch.device("cpu"))
    try:
        return _rate(communicator.all_reduce, world.size)
    finally:
        communicator.close()


def _rate(all_reduce: Callable[[torch.Tensor], object], ranks: int) -> float:
    """Return the rate of each rank's link in a ring all-reduce, B/s, like ``busbw`` of nccl-tests."""
    import torch

    values = torch.zeros(BYTES // 4)
    all_reduce(values)  # the first call connects the ranks
    first = torch.tensor([_timed(all_reduce, values, 1)])
    all_reduce(first)  # the sum of all ranks' times, from which all ranks get the same number of repetitions
    seconds = float(first) / ranks
    count = max(1, min(1000, round(SECONDS / max(seconds, 1e-6))))
    return 2 * (ranks - 1) / ranks * BYTES * count / _timed(all_reduce, values, count)


def _timed(all_reduce: Callable[[torch.Tensor], object], values: torch.Tensor, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        all_reduce(values)
    return time.perf_counter() - begin


def _one_process(rank: int, ranks: int, folder: Path, sender: Connection) -> None:
    """Measure the rate in one process; rank 0 sends it by `sender`. An error ends all processes, and is not printed."""
    import torch
    import torch.distributed as dist

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    rate = _rate(dist.all_reduce, ranks)
    if rank == 0:
        sender.send(rate)
    dist.destroy_process_group()
