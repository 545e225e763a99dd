"""Layer timing: what it costs beside torch.profiler and module hooks, whether layers add up, what AlexNet feels."""

from __future__ import annotations

import logging
import os
import statistics
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler writes to standard error

import torch
from paired import Figure, Timing, figure, interleaved, of, ratio
from torch import nn
from torch.profiler import profile

from stallpoint.measure.clock import host_mark
from stallpoint.measure.constants import TINY_LAYERS
from stallpoint.measure.training.layer_timing import Pass, PassTimes, tiny_pass
from stallpoint.networks import find_network

CPU = torch.device("cpu")


def hooked() -> Callable[[], PassTimes]:
    """A tiny pass whose modules have PyTorch's own forward and full backward hooks."""
    bare, marks = tiny_pass(CPU, timed=False), []
    for module in bare.network:
        module.register_forward_pre_hook(lambda *_: marks.append(host_mark()))
        module.register_forward_hook(lambda *_: marks.append(host_mark()))
        module.register_full_backward_pre_hook(lambda *_: marks.append(host_mark()))
        module.register_full_backward_hook(lambda *_: marks.append(host_mark()))

    def run() -> PassTimes:
        times = bare.run()
        marks.clear()
        return times

    return run


class Profiled:
    """A tiny pass under torch.profiler."""

    def __init__(self) -> None:
        self._bare = tiny_pass(CPU, timed=False)

    def run(self) -> PassTimes:
        """One pass; its times can be read when the profiler has ended."""
        begin = host_mark()
        with profile():
            times = self._bare.run()
        return replace(times, seconds_read=(host_mark() - begin) * 1e-9)


def warm(run: Callable[[], PassTimes]) -> PassTimes:
    """The second of two runs: the first finds in the caches what another candidate left there."""
    run()
    return run()


def cost(count: int) -> tuple[list[Timing | Figure], list[str]]:
    """What timing adds to each of many tiny layers."""
    bare, again, ours, ours_read = (tiny_pass(CPU, timed=timed) for timed in (False, False, True, True))
    hooks, profiler, profiler_read = hooked(), Profiled(), Profiled()
    candidates = {
        "bare": lambda: warm(bare.run).seconds,
        "bare again": lambda: warm(again.run).seconds,
        "stallpoint, in the iteration": lambda: warm(ours.run).seconds,
        "stallpoint, times read": lambda: warm(ours_read.run).seconds_read,
        "torch.profiler, in the iteration": lambda: warm(profiler.run).seconds,
        "torch.profiler, times read": lambda: warm(profiler_read.run).seconds_read,
        "full backward hooks": lambda: warm(hooks).seconds,
    }
    name = f"timing {TINY_LAYERS} tiny layers"
    with warnings.catch_warnings():  # of full backward hooks on the first layer, whose input needs no gradient
        warnings.simplefilter("ignore")
        timings = interleaved(name, candidates, count)
    bare_seconds = [timing.seconds for timing in of(timings, "bare")]
    costs = [
        figure(
            name,
            candidate,
            "added to a layer, us",
            [
                1e6 * (timing.seconds - less) / TINY_LAYERS
                for timing, less in zip(of(timings, candidate), bare_seconds, strict=True)
            ],
        )
        for candidate in candidates
        if candidate != "bare"
    ]
    ratios = [
        ratio(timings, "stallpoint, times read", "torch.profiler, times read", "<= 0.1", above="bare"),
        ratio(timings, "stallpoint, in the iteration", "full backward hooks", above="bare"),
    ]
    each = 1e6 * statistics.median(bare_seconds) / TINY_LAYERS
    return [*timings, *costs, *ratios], [
        f"{name}, {count} interleaved rounds (bare: {each:.1f} us a layer)",
        *(found.line(" us", 2) for found in costs),
        *(found.line() for found in ratios),
    ]


def network_pass(name: str, batch: int, *, timed: bool, like: nn.Module | None = None) -> Pass:
    """A pass of a registered network; with `like`, in the same memory for weights and gradients."""
    network = find_network(name).build(seed=1)
    if like:
        for mine, other in zip(network.parameters(), like.parameters(), strict=True):
            mine.data, mine.grad = other.data, other.grad
    else:
        for weights in network.parameters():
            weights.grad = torch.zeros_like(weights)
    size = find_network(name).takes.size
    return Pass(network, (torch.randn(batch, 3, size, size), torch.zeros(batch, dtype=torch.int64)), CPU, timed=timed)


def closure(count: int) -> tuple[list[Figure], list[str]]:
    """Whether the layers' times add up to the passes, iteration by iteration."""
    benchmark = "closure"
    figures = []
    for name in ("alexnet", "googlenet", "resnet50"):
        timed = network_pass(name, 2, timed=True)
        timed.run()
        measured = [timed.run() for _ in range(count)]
        figures += [
            figure(benchmark, name, "layers / forward pass", [run.forward_closure for run in measured], "1 +- 0.02"),
            figure(benchmark, name, "layers / backward pass", [run.backward_closure for run in measured], "1 +- 0.02"),
        ]
    return figures, [f"{benchmark}, batch 2, {count} iterations", *(found.line(digits=4) for found in figures)]


def alexnet(count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Instrumented against bare AlexNet; the A/A control tells what the comparison can show."""
    benchmark = "AlexNet, batch 2"
    bare = network_pass("alexnet", 2, timed=False)
    again, timed = (network_pass("alexnet", 2, timed=timed, like=bare.network) for timed in (False, True))
    candidates = {
        "bare": lambda: bare.run().seconds,
        "bare again (A/A)": lambda: again.run().seconds,
        "timed": lambda: timed.run().seconds,
    }
    timings = interleaved(benchmark, candidates, count)
    ratios = [ratio(timings, "bare again (A/A)", "bare"), ratio(timings, "timed", "bare", "<= 1.01")]
    milliseconds = 1e3 * statistics.median(timing.seconds for timing in of(timings, "bare"))
    head = f"{benchmark}, {count} interleaved rounds (bare: {milliseconds:.1f} ms forward and backward)"
    return [*timings, *ratios], [head, *(found.line(digits=4) for found in ratios)]


def benchmark(_scratch: Path, count: int) -> tuple[list[Timing | Figure], list[str]]:
    """Measurements and lines to print."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    logging.disable(logging.WARNING)
    parts: list[Any] = [cost(20 * count), closure(2 * count), alexnet(20 * count)]
    return [row for rows, _ in parts for row in rows], [line for _, lines in parts for line in lines]
