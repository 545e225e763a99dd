"""What is read of rates, whoever wrote it: one row for each measurement, and what all have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

EACH, ALL = "each", "all"
"""Rates are those of each worker, or of all."""
WEAK, STRONG = "weak", "strong"


@dataclass(frozen=True)
class RateRow:
    """One measurement: samples per second, or seconds of a step or an epoch where `seconds` says so."""

    series: str
    workers: int
    value: float | None
    workers_per_node: float | None = None
    batch_per_worker: float | None = None
    line: int = 0
    global_batch: float | None = None
    """Samples in the mini-batch of all workers."""
    deviation: float = 0.0
    """How far repeats or steps scatter, relative to the value, where the table says it."""
    place: int = 0
    """Number of its row in the table; objects of a file may have one line."""


@dataclass(frozen=True)
class Rates:
    """What a table says of rates."""

    rows: Sequence[RateRow]
    unit: str = "samples/s"
    of: str = ""
    """`EACH` or `ALL`, where the heading says it."""
    seconds: str = ""
    """``iteration`` or ``epoch`` where values are times, s; also of a whole run, which is as much work on any count."""
    counted: str = "workers"
    """What the counts are of, in the table's word: GPUs; nodes, where no column says how many workers these have."""
    notes: Sequence[str] = field(default=())
    setup: str = ""
    """What the file says of model, precision and hardware."""
    text: str = ""
    """The text around them, where it is as short as people post it."""
    scaling: str = ""
    """`WEAK` or `STRONG`, where the text says it."""
    spread: float | None = None
    """Relative deviation of iterations within a run, where a log has many."""
    tables: int = 1
    """Number of tables of the file, this one included."""
