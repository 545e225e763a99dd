"""Collectives co-running with computing: their mutual slowdown.

In training, collectives share a worker's cores, memory and caches with the backward pass, at a cost that depends on the
number of nodes. The cost is measured at every node count, without training: a thread calls collective operations, like
the communication thread of training, while the main thread computes.
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


def measure(cell: CollectivesCell, world: World, factory: Operations, recorder: Recorder) -> None:
    """Take ``cell.samples`` samples of each operation and message size in a visit, after one warm-up.

    Every rank first computes without messages. In each sample it computes while a thread sends messages.
    """
    first_sample = (recorder.visit - 1) * (cell.samples + 1)
    device = device_of(cell)
    compute = backward_of_convolution(device)
    pairs = list(product(cell.timed_operations, cell.message_bytes))
    work_bytes = [size + constants.CO_RUNNING_AS_BYTES for _, size in pairs]
    progress = Progress("message beside computing", work_bytes, silent=world.rank > 0)
    compute()  # the first call takes longer, by far if it loads a GPU's library
    with thread_for(device, "communication") as thread:
        world.comm.Barrier()
        isolated_operations, isolated_computing = _compute_until(compute, _timeout(constants.ISOLATED_SECONDS))
        recorder.measuring += isolated_computing
        for index, (name, size) in enumerate(pairs):
            operation = factory(name, size)
            operation.result.zero_()  # repeated sums would overflow
            synchronize(device)  # the stream of communication does not wait for the stream that writes the zeros
            calls, samples, sample = 1, 1, 0
            while sample < samples:
                world.comm.Barrier()
                future = thread.submit(send, [operation] * calls)
                operations, computing = _compute_until(compute, future.done)
                seconds = future.result()
                recorder.measuring += computing
                recorder.add(
                    CONTENTION, operation=name, message_bytes=size, sample=first_sample + sample, warmup=sample == 0,
                    calls=calls, seconds=seconds, operations=operations, computing=computing,
                    isolated_operations=isolated_operations, isolated_computing=isolated_computing,
                )  # fmt: skip
                # Each sample sets the next sample's number of calls: the warm-up's single call may be an outlier.
                wanted = calls * constants.COMPUTE_BURSTS * isolated_computing / isolated_operations / seconds
                calls = agree(world, wanted, constants.MAX_CO_RUNNING_CALLS)
                if sample == 0:
                    samples += cell.samples if calls > 1 else min(constants.CO_RUNNING_SAMPLES, cell.samples)
                sample += 1
            progress.tell(index + 1)


def _compute_until(compute: Callable[[], None], is_enough: Callable[[], bool]) -> tuple[int, float]:
    """Compute bursts, at least one, until `enough` returns True; return their number and their total time, s."""
    begin, bursts = time.perf_counter(), 0
    while not bursts or not is_enough():
        compute()
        bursts += 1
    return bursts, time.perf_counter() - begin


def _timeout(seconds: float) -> Callable[[], bool]:
    """Return a function that returns whether `seconds` have passed since `_timeout` was called."""
    deadline = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= deadline


def backward_of_convolution(device: torch.device) -> Callable[[], None]:
    """Return a function that computes one burst, a convolution's backward pass, and waits for the device."""
    images = torch.randn(constants.COMPUTE_IMAGES[device.type], _CHANNELS, _SIDE, _SIDE, device=device)
    weights = torch.randn(_CHANNELS, _CHANNELS, _KERNEL, _KERNEL, device=device)
    gradients = torch.ones_like(images)
    padding = [_KERNEL // 2] * 2

    def compute() -> None:
        torch.ops.aten.convolution_backward(
            gradients, images, weights, None, [1, 1], padding, [1, 1], False, [0, 0], 1, [True, True, False]
        )
        if has_streams(device):
            torch.accelerator.current_stream().synchronize()

    return compute
