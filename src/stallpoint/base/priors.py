"""Assumed noise (priors) of numbers that were not measured repeatedly, each with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """Assumed scatter between equal runs, used as a prior for runs without repeats."""

    deviation: float
    """Standard deviation of the logarithm of a rate or time."""
    freedom: float
    """Weight of the prior relative to repeats, in degrees of freedom."""
    words: str
    """Name of what scatters, in readers' words."""


POSTED_NUMBER = Noise(0.02, 4.0, "a number that somebody posted")
"""Rates in tables and logs. Equal runs of MLPerf Training 5.1 differ by 0.22 % (median of 33 systems; 0.01 to 1.4);
numbers that people post differ more, by day, node, rounding and a moving display."""
EQUAL_RUN = Noise(0.0022, 4.0, "equal runs of a GPU cluster, MLPerf Training")
"""Times of runs with logs: the median of MLPerf Training 5.1, as in `POSTED_NUMBER`. In v5.0 median iteration times
of equal runs differ by 0.005 to 0.77 % on 40 systems (root mean square 0.30 %), as four degrees of freedom expect."""
RUN_TO_TARGET = Noise(0.05, 4.0, "runs to a target")
"""Minutes to a target: equal runs of MLPerf Training with other seeds differ by 5 % (median, four rounds)."""
VISIT = Noise(0.08, 4.0, "one visit on a shared machine")
"""Visits on shared machines differed by 1 to 10 %. Where they differ by 10 %, 9 of 10 intervals from one visit contain
the truth (benchmark `truth`); with a deviation of 0.05 here, 7 of 10 would."""
EXTRAPOLATION = Noise(0.06, 4.0, "costs that begin beyond what was measured, for each doubling")
"""Error of the iteration model for each doubling of the workers beyond the largest measured count. Shi et al. (2018,
section V-D) found a mean error of 9.4 %, a deviation of 0.12; half of that covers costs that begin beyond the measured
counts, in the simulated clusters of benchmark `worlds` on which the prior was chosen."""
GRADIENT_ADDITION = Noise(0.5, 30.0, "the time to add gradients, without a copies cell")
"""Time to add the gradients of one more mini-batch, assumed to be `ADDITION_SHARE` of an update with momentum, which
touches weights, gradients and momenta. On a CPU it was 0.17 to 0.37 of it (10 and 61 million weights); a fused update
takes less."""
ADDITION_SHARE = 0.3
MEMORY_PEAK = Noise(0.015, 30.0, "a peak of memory, between runs")
"""Memory peaks of equal training cells differed by 1 to 2 % between two runs of the default study, and by 0.1 to 0.5 %
between visits of one run: what the allocator and the libraries keep is decided once in each run."""
PLACEMENT = Noise(0.035, 4.0, "one placement in one job, on several nodes")
"""Equal runs in different jobs differ by 0.2 to 1.4 % on a GPU cluster (MLPerf Training 5.1, 33 systems), by more on
shared clusters: intervals cover jobs that differ by 5 % (benchmark `worlds`). Equal cells in several placements
replace the prior."""
