"""What a log of a training says: its rate, or the seconds of its steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles

MIN_VALUES = 10
"""Logged values below which their spread says nothing."""
WARMUP = 0.1
"""Part of the lines that are warm-up."""
EVALUATION = re.compile(r"(?<![a-z])(?:eval|evaluation|valid|validation|val|test)[\W_]", re.IGNORECASE)
"""Words of lines and headings that are of no training."""


@dataclass(frozen=True)
class LoggedRate:
    """What a training log, or a part of it on other workers, says."""

    program: str
    value: float
    """The median after warm-up: a rate, or seconds of an iteration."""
    unit: str
    seconds: bool = False
    of: str = ""
    workers: int | None = None
    batch: float | None = None
    """Samples in the mini-batch of all workers."""
    lines: int = 0
    values: Sequence[float] = ()
    """What the median is of, in their order."""
    setup: str = ""
    """Lines about model, precision and hardware."""
    notes: Sequence[str] = ()
    nodes: int | None = None
    model: str = ""
    """Its layers and sizes, where the log lists them."""
    run: str = ""
    """The run's name, where a file has several."""
    learning: bool = False
    """Whether it trains by reinforcement, whose step is a sum of phases."""
    epochs: bool = False
    """Whether `seconds` are those of an epoch, which is the same work on any count."""
    steps: int | None = None
    """Steps of an epoch or of all, where lines say ``[ 10/1251]``."""
    phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of the parts of an iteration, for each of `values`: those that every line has."""

    @property
    def spread(self) -> float | None:
        """Return the relative deviation of the values by their middle half, which outliers leave; None of a few."""
        if len(self.values) < MIN_VALUES:
            return None
        low, _, high = quantiles(self.values, n=4)
        return (high - low) / 1.349 / self.value


def after_warmup(values: list[float]) -> list[float]:
    """Return the values after the warm-up."""
    return values[int(len(values) * WARMUP) + (len(values) > 2) :] or values
