"""Workers that train independently and average their weights, over all workers or over neighbours (gossip)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from stallpoint.errors import InputError
from stallpoint.strategies.one_message import OneMessage, PeriodOptions
from stallpoint.strategies.strategy import PresetEntry

if TYPE_CHECKING:
    from stallpoint.strategies.buckets import Reals


@dataclass(frozen=True)
class AveragingOptions(PeriodOptions):
    """Options of averaging over all workers."""

    synchronous_steps: int = 0
    """Number of iterations at the beginning, in each of which weights are averaged."""
    outer_step: float = 1.0
    """Step of the outer optimiser; without momentum, the share of the distance to the mean that weights move."""
    outer_momentum: float = 0.0
    """Nesterov momentum of the outer optimiser, whose gradient is the weights at the start minus their mean."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.synchronous_steps < 0:
            raise InputError(f"synchronous_steps: {self.synchronous_steps} is below 0; 0 stands for none")
        if not 0 < self.outer_step < math.inf:
            raise InputError(f"outer_step: {self.outer_step} is not above 0")
        if not 0 <= self.outer_momentum < 1:
            raise InputError(f"outer_momentum: {self.outer_momentum} is not from 0 to below 1")


class Averaging(OneMessage):
    """Periodic averaging of weights over all workers."""

    value = "averaging"
    meaning = "each worker updates its own weights; every period iterations all get their mean"
    own = AveragingOptions
    training = "measure.synchronisation.averaging:Averaging.begin"
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "parameter-averaging": PresetEntry(
            "each worker trains by itself; after every 16 iterations all take the mean of their weights",
            "McDonald, Hall & Mann (2010); the survey, Parameter averaging",
            {"start": "after-backward", "period": 16},
            look=("red", "square"),
        ),
        "local-sgd": PresetEntry(
            "the same with few local steps, 4; momenta stay with their workers",
            "Stich (2019), algorithm 1",
            {"start": "after-backward", "period": 4},
            look=("green", "circle"),
        ),
        "post-local-sgd": PresetEntry(
            "weights are averaged in each of the first 500 iterations (with sgd, momentum and nesterov that is "
            "synchronous SGD), then in every fourth. The paper switches at the first decay of the step size",
            "Lin et al. (2020), section 3",
            {"start": "after-backward", "period": 4, "synchronous_steps": 500},
            look=("lime", "diamond"),
        ),
        "diloco": PresetEntry(
            "the mean way of the workers in 32 iterations is the gradient of an outer Nesterov step. The paper's "
            "inner optimiser is AdamW over 500 iterations; here it is that of the recipe",
            "Douillard et al. (2023), DiLoCo, algorithm 1 and section 3",
            {"start": "after-backward", "period": 32, "outer_step": 0.7, "outer_momentum": 0.9},
            look=("pink", "circle"),
        ),
    }


class Gossip(OneMessage):
    """Periodic averaging of weights over neighbours."""

    value = "gossip"
    meaning = (
        "each worker updates its own weights; every period iterations it takes the mean of them and its two "
        "neighbours' around a ring"
    )
    training = "measure.synchronisation.averaging:Gossip.begin"
    presets: ClassVar[Mapping[str, PresetEntry]] = {
        "gossip": PresetEntry(
            "decentralised: after each iteration the mean of a worker's weights and its two neighbours' around a ring",
            "Lian et al. (2017), D-PSGD, algorithm 1; mixed after the update",
            {"start": "after-backward"},
            look=("lilac", "cross"),
        ),
    }

    @override
    def check(self) -> None:
        super().check()
        options = self.options
        if (options.backend, options.reduction, options.segment_bytes) != ("mpi", "library", 0):
            raise InputError(
                "backend: gossip reduces nothing; it goes with backend: mpi, reduction: library, no segments"
            )

    @override
    def exchanged(self, latency: Reals, transfer: Reals, ranks: int, computing: Reals) -> tuple[Reals, Reals]:
        """Return the mean latency and transfer time of a worker's messages to its one or two neighbours.

        A ring all-reduce of p ranks takes `latency` and `transfer`: 2 (p - 1) messages, each with 1/p of the weights.
        """
        share = min(2, ranks - 1) / (2 * (ranks - 1))
        return super().exchanged(latency * share, transfer * share * ranks, ranks, computing)
