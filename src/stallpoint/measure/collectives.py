"""All-reduce times over message sizes: what the communication model is fitted to."""

from __future__ import annotations

import time

import torch

from stallpoint.cells import CollectivesCell
from stallpoint.measure import contention
from stallpoint.measure.clock import clock_for
from stallpoint.measure.progress import Progress
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.world import World
from stallpoint.records import COLLECTIVES


def measure(cell: CollectivesCell, world: World, keep: Recorder) -> None:
    """Time ``cell.samples`` in-place all-reduce calls (float32, sum) of each size, after one warm-up call.

    Calls go the way they go in training, by the cell's backend and reduction. Every rank records each call, from a
    barrier on: ranks leave a call at different times.
    """
    device = torch.device(cell.device)
    clock = clock_for(device)
    communicates = communicator(cell.backend, cell.reduction, 0, world, device)
    calls = cell.samples + 1
    # Small messages take as long as their latency, which that of 64 KiB stands for here.
    work = [size + 2**16 for size in cell.message_bytes for _ in range(calls)]
    progress = Progress("all-reduce", work, silent=world.rank > 0)
    for place, size in enumerate(cell.message_bytes):
        values = torch.empty(size // 4, device=device)
        for sample in range(calls):
            values.fill_(1)
            clock.wait()
            world.comm.Barrier()
            begin = time.perf_counter()
            communicates.all_reduce(values)
            clock.wait()
            seconds = time.perf_counter() - begin
            if not (values[0] == values[-1] == world.size):
                raise ArithmeticError(f"all-reduce of {size} bytes gave {values[0]}, {world.size} is the sum")
            keep.add(COLLECTIVES, message_bytes=values.nbytes, sample=sample, warmup=sample == 0, seconds=seconds)
            progress.tell(place * calls + sample + 1)
    if world.size > 1:
        contention.measure(cell, world, communicates, keep)
    communicates.close()
