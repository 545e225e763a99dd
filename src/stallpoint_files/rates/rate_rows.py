"""Result of all readers of rates: a row for each measurement, and what all rows have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

EACH, ALL = "each", "all"
"""Whether rates are per worker or totals of all workers."""
WEAK, STRONG = "weak", "strong"


@dataclass(frozen=True)
class RateRow:
    """One measurement: samples per second, or seconds of a step or an epoch if `Rates.seconds` says so."""

    series: str
    workers: int
    value: float | None
    workers_per_node: float | None = None
    batch_per_worker: float | None = None
    line: int = 0
    global_batch: float | None = None
    """Global mini-batch, samples."""
    deviation: float = 0.0
    """Relative deviation of repeats or steps, if the table gives it."""
    place: int = 0
    """Number of the row in the table; several objects may share a line."""


@dataclass(frozen=True)
class Rates:
    """Rates from one table."""

    rows: Sequence[RateRow]
    unit: str = "samples/s"
    of: str = ""
    """`EACH` or `ALL`, if the heading says it; else empty."""
    seconds: str = ""
    """``iteration`` or ``epoch`` if values are times, s; ``epoch`` also for runs, the same work on any count."""
    counted: str = "workers"
    """Unit of the counts in the table's words: GPUs, workers, or nodes if no column gives the workers of a node."""
    notes: Sequence[str] = field(default=())
    setup: str = ""
    """Text of the file about model, precision and hardware."""
    text: str = ""
    """The complete text, if it is as short as a post."""
    scaling: str = ""
    """`WEAK` or `STRONG`, if the text says it; else empty."""
    spread: float | None = None
    """Relative deviation of iterations within a run, if a log has many."""
    tables: int = 1
    """Number of tables in the file, this one included."""
