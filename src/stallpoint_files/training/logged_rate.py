"""Rate of a training, or seconds of its steps, from its log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles

MIN_VALUES = 10
"""Minimum number of logged values to estimate their spread."""
WARMUP = 0.1
"""Fraction of the lines that is warm-up."""
EVALUATION = re.compile(r"(?<![a-z])(?:eval|evaluation|valid|validation|val|test)[\W_]", re.IGNORECASE)
"""Words of lines and headings about evaluation, not training."""


@dataclass(frozen=True)
class LoggedRate:
    """Rate or step time from a training log, or from its part on other workers."""

    program: str
    value: float
    """The median after warm-up: a rate, or seconds of an iteration."""
    unit: str
    seconds: bool = False
    of: str = ""
    workers: int | None = None
    batch: float | None = None
    """Global mini-batch, samples."""
    lines: int = 0
    values: Sequence[float] = ()
    """Values after the warm-up, in order, of which `value` is the median."""
    setup: str = ""
    """Words about model, precision and hardware."""
    notes: Sequence[str] = ()
    nodes: int | None = None
    model: str = ""
    """Layers and sizes of the model, if the log lists them."""
    run: str = ""
    """Name of the run, if a file has several."""
    learning: bool = False
    """Whether the training is reinforcement learning, whose step is a sum of phases."""
    epochs: bool = False
    """Whether the time is that of an epoch, which is the same work on any count."""
    steps: int | None = None
    """Number of steps of an epoch or run, if lines show it as ``[ 10/1251]``."""
    phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of parts of an iteration, for each of `values`; only parts that every line has."""

    @property
    def spread(self) -> float | None:
        """Return the relative deviation of the values by their interquartile range, robust to outliers; None if few."""
        if len(self.values) < MIN_VALUES:
            return None
        low, _, high = quantiles(self.values, n=4)
        return (high - low) / 1.349 / self.value


def after_warmup(values: list[float]) -> list[float]:
    """Return the values after the warm-up."""
    return values[int(len(values) * WARMUP) + (len(values) > 2) :] or values
