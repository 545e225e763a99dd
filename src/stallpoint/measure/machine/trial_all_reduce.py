"""A two-second all-reduce by torch.distributed with Gloo: what this node, or a job's nodes, carry.

``python -m stallpoint.measure.machine.trial_all_reduce RANK RANKS FOLDER`` is one of several local processes, which
meet in a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from stallpoint.measure.world import World

BYTES = 16 * 2**20
"""Of the message: nearly all bandwidth, and short even at 100 Mbit/s."""
SECONDS = 2.0
PATIENCE = 90.0
"""How long local processes may take, s: they import PyTorch first."""


def between_local_processes(ranks: int = 2) -> float | None:
    """Return bytes/s that each of some processes on this node sends while they all-reduce; None where they fail."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        jobs = [
            subprocess.Popen(
                [*command, str(rank), str(ranks), folder],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        try:
            outputs = [job.communicate(timeout=PATIENCE)[0] for job in jobs]
        except subprocess.TimeoutExpired:
            return None
        finally:
            for job in jobs:
                job.kill()
                job.wait()
    return float(outputs[0]) if not any(job.returncode for job in jobs) else None


def between_ranks(world: World) -> float:
    """Return bytes/s that each rank of an MPI job sends while they all-reduce; all ranks call this."""
    import torch

    from stallpoint.measure.synchronisation.torch_distributed import TorchCommunicator

    communicator = TorchCommunicator(world, torch.device("cpu"))
    try:
        return _rate(communicator.all_reduce, world.size)
    finally:
        communicator.close()


def _rate(all_reduce: Callable[[torch.Tensor], object], ranks: int) -> float:
    """Return bytes/s of each rank's link by the ring's factor, as ``busbw`` of nccl-tests."""
    import torch

    values = torch.zeros(BYTES // 4)
    all_reduce(values)  # connects
    first = torch.tensor([_timed(all_reduce, values, 1)])
    all_reduce(first)  # so that all do as many
    seconds = float(first) / ranks
    count = max(1, min(1000, round(SECONDS / max(seconds, 1e-6))))
    return 2 * (ranks - 1) / ranks * BYTES * count / _timed(all_reduce, values, count)


def _timed(all_reduce: Callable[[torch.Tensor], object], values: torch.Tensor, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        all_reduce(values)
    return time.perf_counter() - begin


def _one_process(rank: int, ranks: int, folder: Path) -> float:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    rate = _rate(dist.all_reduce, ranks)
    dist.destroy_process_group()
    return rate


if __name__ == "__main__":
    print(_one_process(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
