"""Bursts of collective operations, as training calls them: one after the other, with no barrier in between."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stallpoint.measure import constants
from stallpoint.measure.jobs.operations import Operation
from stallpoint.measure.synchronisation.streams import stream_for
from stallpoint.measure.world import World


def send(operations: Sequence[Operation]) -> float:
    """Do `operations`, each when the one before has returned; seconds until the last has."""
    begin, stream = time.perf_counter(), stream_for(operations[0].result.device)
    for operation in operations:
        with stream.entered():
            operation.do()
    stream.drain()
    return time.perf_counter() - begin


def agree(world: World, wanted: float, most: int) -> int:
    """How many messages to send next, the same on all ranks: what rank 0 wants, between 1 and `most`."""
    return int(world.comm.bcast(round(min(max(wanted, 1), most))))


def send_row(world: World, operation: Operation, messages: int) -> tuple[float, int]:
    """Do `operation` `messages` times, from a barrier on: seconds it took, and how many to send next time."""
    world.comm.Barrier()
    seconds = send([operation] * messages)
    return seconds, agree(world, messages * constants.BURST_SECONDS / seconds, constants.BURST_MESSAGES)
