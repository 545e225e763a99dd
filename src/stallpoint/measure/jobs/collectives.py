"""Times of collective operations by message size, from which the communication model is fitted."""

from __future__ import annotations

from itertools import product

from stallpoint.measure import constants
from stallpoint.measure.clock import clock_for
from stallpoint.measure.device import device_of
from stallpoint.measure.jobs import co_running
from stallpoint.measure.jobs.bursts import timed_burst
from stallpoint.measure.jobs.operations import Operations
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.world import World
from stallpoint.records.tables import COLLECTIVES
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.text import Progress


def measure(cell: CollectivesCell, world: World, recorder: Recorder) -> None:
    """Time ``cell.samples`` bursts of each of the cell's operations (float32, sums) at each size in a visit.

    One call of each size precedes the bursts as warm-up.

    As in training, the calls of a burst follow one another without barriers: if ranks share cores, a barrier costs more
    than a small message. Operations and sizes are interleaved. So a slow phase of the machine slows all of them, and
    many small messages do not use up a core's quota. Ranks leave a call at different times; so each rank times its
    burst from the barrier before the burst.
    """
    device = device_of(cell)
    clock = clock_for(device)
    transport = communicator(cell.backend, cell.reduction, 0, world, device)
    operations = Operations(transport, max(cell.message_bytes), device)
    pairs = list(product(cell.timed_operations, cell.message_bytes))
    work_bytes = [size + constants.BURST_AS_BYTES for _ in range(cell.samples + 1) for _, size in pairs]
    progress = Progress("message", work_bytes, silent=world.rank > 0)
    calls = dict.fromkeys(pairs, 1)
    first_sample = (recorder.visit - 1) * (cell.samples + 1)
    for burst, (sample, (name, size)) in enumerate(product(range(cell.samples + 1), pairs), start=1):
        operation = operations(name, size)
        clock.wait()
        count = calls[name, size]
        seconds, calls[name, size] = timed_burst(world, operation, count)
        operation.check(count)
        recorder.measuring += seconds
        recorder.add(
            COLLECTIVES, operation=name, message_bytes=size, sample=first_sample + sample, warmup=sample == 0,
            calls=count, seconds=seconds,
        )  # fmt: skip
        progress.tell(burst)
    if world.size > 1:
        co_running.measure(cell, world, operations, recorder)
    transport.close()
