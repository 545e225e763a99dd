"""What the timing of layers costs and whether their times add up: measured in each training job itself."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from stallpoint.measure.clock import clock_for, host_mark
from stallpoint.measure.layer_timing import LayerTimer
from stallpoint.networks.layers import layers

TINY_LAYERS = 200
PAIRS = 15
"""Passes with and without timing that are compared, about 0.2 s in all on a CPU."""


def tiny_network() -> nn.Module:
    """As little computation in `TINY_LAYERS` layers as can be, half of which learn: what is added can be seen."""
    return nn.Sequential(*(layer for _ in range(TINY_LAYERS // 2) for layer in (nn.Linear(4, 4), nn.ReLU())))


class Pass:
    """Forward and backward pass of a tiny network, with or without its layers timed."""

    def __init__(self, device: torch.device, *, timed: bool) -> None:
        self._clock = clock_for(device)
        self._network = tiny_network().to(device)
        self._input = torch.ones(1, 4, device=device)
        self._timer = LayerTimer(layers(self._network), self._clock, lambda _: None) if timed else None

    def run(self, *, read: bool = False) -> float:
        """Seconds of one pass; with `read`, the reading of the layers' times counts too, as after an iteration."""
        mark = self._clock.mark
        begin = host_mark()
        self._clock.start()
        loss = self._network(self._input).sum()
        forward = mark()
        loss.backward()
        backward = mark()
        self._clock.wait()
        end = host_mark()
        if self._timer:
            self._timer.times(forward, backward)
        return ((host_mark() if read else end) - begin) * 1e-9


def timing_cost(device: torch.device) -> float:
    """Seconds that timing adds to an iteration for each layer and call: the median over pairs of passes."""
    bare, timed = Pass(device, timed=False), Pass(device, timed=True)
    pairs = [(bare.run(), timed.run()) for _ in range(1 + PAIRS)][1:]
    return statistics.median(with_timing - without for without, with_timing in pairs) / TINY_LAYERS


class Instrumentation:
    """Collects what tells, at the end, how far the times of a job's layers can be trusted."""

    def __init__(self) -> None:
        self._closures: dict[str, list[float]] = {"forward": [], "backward": []}
        self._turns: list[int] = []
        self._iteration_times: list[float] = []
        self._layers = 0

    def add(self, phases: Mapping[str, float], of_layers: Mapping[str, Sequence[Any]], turns: int) -> None:
        """Add an iteration: columns of `records.ITERATIONS` and `records.LAYERS`, and `LayerTimes.turns`."""
        for phase, closures in self._closures.items():
            closures.append(sum(of_layers[phase]) / phases[phase])
        self._turns.append(turns)
        self._iteration_times.append(phases["iteration_time"])
        self._layers = len(of_layers["layer"])

    def row(self, device: torch.device) -> dict[str, object]:
        """The row of `records.INSTRUMENTATION`; measures the cost of timing, here and now."""
        cost, turns = timing_cost(device), statistics.median_high(self._turns)
        return {
            "layers": self._layers,
            "turns": turns,
            "timing_cost": cost,
            "timing_share": cost * turns / statistics.median(self._iteration_times),
            **{f"{phase}_closure": statistics.median(closures) for phase, closures in self._closures.items()},
        }
