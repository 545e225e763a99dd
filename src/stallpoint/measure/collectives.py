"""All-reduce times over message sizes: what the communication model is fitted to."""

from __future__ import annotations

import time

import numpy as np

from stallpoint.cells import CollectivesCell
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import MPI, World
from stallpoint.records import COLLECTIVES


def measure(cell: CollectivesCell, world: World, keep: Recorder) -> None:
    """Time ``cell.samples`` in-place all-reduce calls (float32, sum) of each size, after one warm-up call.

    Every rank records each call, from a barrier on: ranks leave a call at different times.
    """
    for size in cell.message_bytes:
        buffer = np.empty(size // 4, np.float32)
        for sample in range(cell.samples + 1):
            buffer.fill(1)
            world.comm.Barrier()
            begin = time.perf_counter()
            world.comm.Allreduce(MPI.IN_PLACE, buffer, MPI.SUM)
            seconds = time.perf_counter() - begin
            if not (buffer[0] == buffer[-1] == world.size):
                raise ArithmeticError(f"all-reduce of {size} bytes gave {buffer[0]}, {world.size} is the sum")
            keep.add(COLLECTIVES, message_bytes=buffer.nbytes, sample=sample, warmup=sample == 0, seconds=seconds)
