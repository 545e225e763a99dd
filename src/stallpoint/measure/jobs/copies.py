"""Rates of memory copies: within the host by numbers of threads, and between the host and a GPU.

On a CPU the copies are two kernels of STREAM (McCalpin: Memory Bandwidth and Machine Balance in Current High
Performance Computers, 1995), copy and triad, over arrays larger than any cache. On a GPU they are the copies that Shi
et al. (2018), Table II, measure by dd and p2pBandwidthLatencyTest: host to device from pageable and pinned memory,
device to host, within the device (run on one H100), and to other visible devices (not run yet).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from stallpoint.measure.device import device_of, synchronize
from stallpoint.measure.machine.caches import caches
from stallpoint.measure.recorder import Recorder
from stallpoint.measure.world import World
from stallpoint.records.tables import COPIES
from stallpoint.study.kinds.copies_kind import CopiesCell
from stallpoint.text import Progress

TIMES_CACHE = 4
"""Ratio of an array's size to that of the largest caches, as STREAM requires."""
MIN_BYTES, GPU_BYTES = 64 * 2**20, 256 * 2**20
"""Smallest bytes of an array in the host's memory, and bytes of an array on a GPU."""


class TimedCopy(NamedTuple):
    """A copy to be timed."""

    name: str
    """Value of the column ``copy``."""
    threads: int
    moved: int
    """Bytes read and written, as STREAM counts; for a copy over a link, bytes transferred."""
    run: Callable[[], object]


def measure(cell: CopiesCell, world: World, recorder: Recorder) -> None:
    """Time each copy ``cell.samples`` times, after one warm-up."""
    device = device_of(cell)
    first_sample = (recorder.visit - 1) * cell.samples
    begin = time.perf_counter()
    try:
        timed_copies = list(_on_cpu(device) if device.type == "cpu" else _on_gpu(device))
        progress = Progress("copy", [one.moved for one in timed_copies] * (1 + cell.samples), silent=world.rank > 0)
        count = 0
        for sample in range(-1, cell.samples):
            for one in timed_copies:
                torch.set_num_threads(one.threads)
                seconds = _seconds(one, device)
                progress.tell(count := count + 1)
                if sample >= 0:
                    recorder.add(
                        COPIES, copy=one.name, threads=one.threads, sample=first_sample + sample, bytes=one.moved,
                        seconds=seconds,
                    )  # fmt: skip
    finally:
        torch.set_num_threads(cell.threads_per_worker)
    recorder.measuring += time.perf_counter() - begin


def _seconds(timed_copy: TimedCopy, device: torch.device) -> float:
    synchronize(device)
    begin = time.perf_counter()
    timed_copy.run()
    synchronize(device)
    return time.perf_counter() - begin


def _on_cpu(device: torch.device) -> Iterator[TimedCopy]:
    """Yield copy and triad with 1, 2, 4, ... threads, and with all threads that the process may use."""
    size = max(MIN_BYTES, TIMES_CACHE * caches(device).largest_bytes)
    target, first, second = (torch.full((size // 8,), 1.0, dtype=torch.float64) for _ in range(3))
    cores = len(os.sched_getaffinity(0))
    for threads in sorted({*(2**power for power in range(cores.bit_length()) if 2**power < cores), cores}):
        yield TimedCopy("copy", threads, 2 * target.nbytes, lambda: target.copy_(first))
        yield TimedCopy("triad", threads, 3 * target.nbytes, lambda: torch.add(first, second, alpha=3.0, out=target))


def _on_gpu(device: torch.device) -> Iterator[TimedCopy]:
    """Yield copies between host and device, within the device, and to each other device of the node."""
    buffer = torch.empty(GPU_BYTES, dtype=torch.uint8, device=device)
    second_buffer = torch.empty_like(buffer)
    pageable = torch.zeros(GPU_BYTES, dtype=torch.uint8)
    pinned = torch.zeros(GPU_BYTES, dtype=torch.uint8).pin_memory()
    threads = torch.get_num_threads()
    yield TimedCopy("host to device, pageable", threads, GPU_BYTES, lambda: buffer.copy_(pageable))
    yield TimedCopy("host to device", threads, GPU_BYTES, lambda: buffer.copy_(pinned, non_blocking=True))
    yield TimedCopy("device to host", threads, GPU_BYTES, lambda: pinned.copy_(buffer, non_blocking=True))
    yield TimedCopy("within the device", threads, 2 * GPU_BYTES, lambda: second_buffer.copy_(buffer))
    for number in range(torch.accelerator.device_count()):
        if number != buffer.device.index:
            peer_buffer = torch.empty(GPU_BYTES, dtype=torch.uint8, device=torch.device(device.type, number))
            yield TimedCopy("device to device", threads, GPU_BYTES, lambda to=peer_buffer: to.copy_(buffer))  # type: ignore[misc]
