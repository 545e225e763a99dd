"""All-reduce times over message sizes: what the communication model is fitted to."""

from __future__ import annotations

from itertools import product

import torch

from stallpoint.cells import CollectivesCell
from stallpoint.measure import constants, contention
from stallpoint.measure.all_reduces import send_row
from stallpoint.measure.clock import clock_for
from stallpoint.measure.device import device_of
from stallpoint.measure.progress import Progress
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.synchronisation.communicator import communicator
from stallpoint.measure.world import World
from stallpoint.records import COLLECTIVES


def measure(cell: CollectivesCell, world: World, keep: Recorder) -> None:
    """Time ``cell.samples`` bursts of in-place all-reduce calls (float32, sum) of each size in a visit.

    A call of each size comes before them, as warm-up.

    Calls go the way they go in training: by the cell's backend and reduction, one after the other. A barrier before
    each of them would be dearer than a small message where ranks share cores. Sizes take turns: what slows the machine
    down for a while slows all of them, and nothing but small messages for long would use up a core's quota. Every rank
    records each burst, from a barrier on: ranks leave a call at different times.
    """
    device = device_of(cell)
    clock = clock_for(device)
    communicates = communicator(cell.backend, cell.reduction, 0, world, device)
    buffer = torch.empty(max(cell.message_bytes) // 4, device=device)
    work = [size + constants.BURST_AS_BYTES for _ in range(cell.samples + 1) for size in cell.message_bytes]
    progress = Progress("all-reduce", work, silent=world.rank > 0)
    messages = dict.fromkeys(cell.message_bytes, 1)
    before = (keep.visit - 1) * (cell.samples + 1)
    for burst, (sample, size) in enumerate(product(range(cell.samples + 1), cell.message_bytes), start=1):
        values = buffer[: size // 4].fill_(1)
        clock.wait()
        sent = messages[size]
        seconds, messages[size] = send_row(world, communicates, values, sent)
        _check(values, world.size, sent)
        keep.measuring += seconds
        keep.add(
            COLLECTIVES, message_bytes=values.nbytes, sample=before + sample, warmup=sample == 0, messages=sent,
            seconds=seconds,
        )  # fmt: skip
        progress.tell(burst)
    if world.size > 1:
        contention.measure(cell, world, communicates, keep)
    communicates.close()


def _check(values: torch.Tensor, ranks: int, messages: int) -> None:
    """Raise `ArithmeticError` unless ones were added up so many times: one sum exactly, sums of sums as float32 can."""
    expected = torch.tensor(float(ranks) ** messages).expand(2)
    found = values[[0, -1]].cpu()
    if not torch.allclose(found, expected, rtol=0 if messages == 1 else 1e-4, atol=0):
        raise ArithmeticError(
            f"{messages} all-reduces of {values.nbytes} bytes gave {found.tolist()}, {expected[0]} is the sum"
        )
