"""Messages and computing at the same time: how much longer the ones take, and how much the other loses.

In training, messages share a worker's cores, memory and caches with the backward pass, and what that costs depends on
how many nodes talk. Here it is measured at every node count, without training: one thread calls collective
operations, as the communication thread of a training job does, while the main thread computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product

import torch

from stallpoint.measure import constants
from stallpoint.measure.device import device_of, has_streams, synchronize, thread_for
from stallpoint.measure.jobs.bursts import agree, send
from stallpoint.measure.jobs.operations import Operations
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.records.tables import CONTENTION
from stallpoint.study.kinds.collectives_kind import CollectivesCell
from stallpoint.text import Progress

_CHANNELS, _SIDE, _KERNEL = 32, 28, 3


def measure(cell: CollectivesCell, world: World, sends: Operations, keep: Recorder) -> None:
    """Measure ``cell.samples`` times for each operation and message size in a visit, after one warm-up.

    Every rank computes alone, and then beside the messages of each sample; all begin at a barrier.
    """
    before = (keep.visit - 1) * (cell.samples + 1)
    device = device_of(cell)
    compute = backward_of_convolution(device)
    kinds = list(product(cell.sent, cell.message_bytes))
    work = [size + constants.BESIDE_AS_BYTES for _, size in kinds]
    progress = Progress("message beside computing", work, silent=world.rank > 0)
    compute()  # the first time is longer, by far where a GPU's library is loaded for it
    with thread_for(device, "communication") as thread:
        world.comm.Barrier()
        alone_operations, alone_computing = _computed(compute, _after(constants.ISOLATED_SECONDS))
        keep.measuring += alone_computing
        for place, (name, size) in enumerate(kinds):
            operation = sends(name, size)
            operation.result.zero_()  # sums of sums of ones would leave the range of numbers
            synchronize(device)  # messages go in another stream
            messages, samples, sample = 1, 1, 0
            while sample < samples:
                world.comm.Barrier()
                sending = thread.submit(send, [operation] * messages)
                operations, computing = _computed(compute, sending.done)
                seconds = sending.result()
                keep.measuring += computing
                keep.add(
                    CONTENTION, operation=name, message_bytes=size, sample=before + sample, warmup=sample == 0,
                    messages=messages, seconds=seconds, operations=operations, computing=computing,
                    alone_operations=alone_operations, alone_computing=alone_computing,
                )  # fmt: skip
                # The one message of the warm-up may have been lucky: every sample decides for the next one.
                wanted = messages * constants.BESIDE_PIECES * alone_computing / alone_operations / seconds
                messages = agree(world, wanted, constants.BESIDE_MESSAGES)
                if sample == 0:
                    samples += cell.samples if messages > 1 else min(constants.BESIDE_SAMPLES, cell.samples)
                sample += 1
            progress.tell(place + 1)


def _computed(compute: Callable[[], None], enough: Callable[[], bool]) -> tuple[int, float]:
    """Pieces of computing, one or more until it is `enough`, and their time in s."""
    begin, pieces = time.perf_counter(), 0
    while not pieces or not enough():
        compute()
        pieces += 1
    return pieces, time.perf_counter() - begin


def _after(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed from now on."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end


def backward_of_convolution(device: torch.device) -> Callable[[], None]:
    """A small piece of what a backward pass consists of; returns when the device has done it."""
    images = torch.randn(constants.PIECE_IMAGES[device.type], _CHANNELS, _SIDE, _SIDE, device=device)
    weights = torch.randn(_CHANNELS, _CHANNELS, _KERNEL, _KERNEL, device=device)
    gradients = torch.ones_like(images)
    edge = [_KERNEL // 2] * 2

    def compute() -> None:
        torch.ops.aten.convolution_backward(
            gradients, images, weights, None, [1, 1], edge, [1, 1], False, [0, 0], 1, [True, True, False]
        )
        if has_streams(device):
            torch.accelerator.current_stream().synchronize()

    return compute
