"""Priors of noise, for whatever was not repeated: one table, each row with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """How much equal runs differ."""

    deviation: float
    """Standard deviation of the logarithm of a rate or time."""
    freedom: float
    """How much a row counts beside repeats, in degrees of freedom."""
    words: str
    """What it is of, as readers see it."""


POSTED = Noise(0.02, 4.0, "a number that somebody posted")
"""Rates in tables and logs: equal runs of MLPerf Training 5.1 differ by 0.22 % (median of 33 systems; 0.01 to 1.4),
numbers that people post by more: other days and nodes, rounded, read off a moving display."""
VISIT = Noise(0.08, 4.0, "one visit on a shared machine")
"""Visits on shared machines were 1 to 10 % apart: at 10 %, nine of ten intervals from one visit contain the truth
(benchmark `truth`); at 5 %, 7 of 10."""
