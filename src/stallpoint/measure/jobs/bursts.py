"""Bursts of collective operations, called as in training: one after the other, without barriers between them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stallpoint.measure import constants
from stallpoint.measure.jobs.operations import Operation
from stallpoint.measure.synchronisation.streams import stream_for
from stallpoint.measure.world import World


def send(operations: Sequence[Operation]) -> float:
    """Do `operations` one after the other; return the time until the last has ended, s."""
    begin, stream = time.perf_counter(), stream_for(operations[0].result.device)
    for operation in operations:
        with stream.entered():
            operation.do()
    stream.drain()
    return time.perf_counter() - begin


def agree(world: World, wanted_calls: float, max_calls: int) -> int:
    """Return, on all ranks, the `wanted_calls` of rank 0: rounded, at least 1 and at most `max_calls`."""
    return int(world.comm.bcast(round(min(max(wanted_calls, 1), max_calls))))


def timed_burst(world: World, operation: Operation, calls: int) -> tuple[float, int]:
    """Time a burst of `calls` calls of `operation`; return its time, s, and the number of calls for the next burst."""
    world.comm.Barrier()
    seconds = send([operation] * calls)
    return seconds, agree(world, calls * constants.BURST_SECONDS / seconds, constants.MAX_BURST_CALLS)
