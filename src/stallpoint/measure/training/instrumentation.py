"""Cost of the timing of layers, and whether their times add up: measured in each training job itself."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import nn

from stallpoint.measure import constants
from stallpoint.measure.clock import clock_for, host_mark
from stallpoint.measure.training.layer_timing import LayerTimer
from stallpoint.networks.layers import layers


@dataclass(frozen=True)
class PassTimes:
    """Times of one forward and backward pass, s."""

    seconds: float
    seconds_read: float
    """Time with the reading of the layers' times, which follows an iteration."""
    forward_closure: float
    """Sum of the layers' times over that of the pass; 0 without timing."""
    backward_closure: float


class Pass:
    """Forward and backward pass of a network, with or without its layers timed."""

    def __init__(
        self, network: nn.Module, inputs: Sequence[torch.Tensor], device: torch.device, *, timed: bool
    ) -> None:
        self.network = network.to(device)
        self._inputs = [values.to(device) for values in inputs]
        self._clock = clock_for(device)
        self._timer = LayerTimer(layers(network), self._clock, lambda _: None) if timed else None

    def run(self) -> PassTimes:
        """Do both passes once, as in an iteration."""
        mark, seconds = self._clock.mark, self._clock.seconds
        begin = host_mark()
        self._clock.start()
        loss = self.network(*self._inputs).sum()
        forward = mark()
        loss.backward()
        backward = mark()
        self._clock.wait()
        end = host_mark()
        closures = [0.0, 0.0]
        if self._timer:
            self._timer.passed(forward, backward)
            times = self._timer.times()
            ends = seconds(forward), seconds(backward)
            closures = [sum(times.forward) / ends[0], sum(times.backward) / (ends[1] - ends[0])]
        return PassTimes((end - begin) * 1e-9, (host_mark() - begin) * 1e-9, *closures)


def tiny_pass(device: torch.device, *, timed: bool) -> Pass:
    """Return a pass with minimal computation in `TINY_LAYERS` layers, half of them with parameters, so that the
    overhead is visible."""
    pairs = ((nn.Linear(4, 4), nn.ReLU()) for _ in range(constants.TINY_LAYERS // 2))
    return Pass(nn.Sequential(*chain.from_iterable(pairs)), [torch.ones(1, 4)], device, timed=timed)


@cache
def timing_cost(device: torch.device) -> float:
    """Return the seconds that timing adds to an iteration for each layer and call: the median over pairs of passes,
    measured once."""
    bare, timed = tiny_pass(device, timed=False), tiny_pass(device, timed=True)
    pairs = [(bare.run().seconds, timed.run().seconds) for _ in range(1 + constants.PAIRS)][1:]
    return statistics.median(with_timing - without for without, with_timing in pairs) / constants.TINY_LAYERS


class Instrumentation:
    """Collects evidence of how far the times of a job's layers can be trusted."""

    def __init__(self) -> None:
        self._closures: dict[str, list[float]] = {"forward": [], "backward": []}
        self._marks: list[int] = []
        self._iteration_times: list[float] = []
        self._layers = 0

    def add(self, phases: Mapping[str, float], of_layers: Mapping[str, Sequence[Any]], marks: int) -> None:
        """Add an iteration: columns of `tables.ITERATIONS` and `tables.LAYERS`, and `LayerTimes.marks`."""
        for phase, closures in self._closures.items():
            closures.append(sum(of_layers[phase]) / phases[phase])
        self._marks.append(marks)
        self._iteration_times.append(phases["iteration_time"])
        self._layers = len(of_layers["layer"])

    def row(self, device: torch.device) -> dict[str, object]:
        """Return the row of `tables.INSTRUMENTATION`; measures the cost of timing."""
        cost, marks = timing_cost(device), statistics.median_high(self._marks)
        return {
            "layers": self._layers,
            "marks": marks,
            "timing_cost": cost,
            "timing_share": cost * marks / statistics.median(self._iteration_times),
            **{f"{phase}_closure": statistics.median(closures) for phase, closures in self._closures.items()},
        }
