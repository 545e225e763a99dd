"""Priors of noise for what was not repeated, each with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """How much equal runs differ."""

    deviation: float
    """Standard deviation of the logarithm of a rate or time."""
    freedom: float
    """Weight of the prior beside repeats, in degrees of freedom."""
    words: str
    """What scatters so, in readers' words."""


POSTED = Noise(0.02, 4.0, "a number that somebody posted")
"""Rates in tables and logs. Equal runs of MLPerf Training 5.1 differ by 0.22 % (median of 33 systems; 0.01 to 1.4);
numbers that people post differ more, by day, node, rounding and a moving display."""
RUN = Noise(0.0022, 4.0, "equal runs of a GPU cluster, MLPerf Training")
"""Iteration times of a run with its log: the median that `POSTED` names for MLPerf Training 5.1. In v5.0 the medians of
40 systems'
runs are 0.005 to 0.77 % apart, 0.30 % in the root mean square, which is what four degrees of freedom expect."""
TO_TARGET = Noise(0.05, 4.0, "runs to a target")
"""Minutes to a target: equal runs of MLPerf Training with other seeds differ by 5 % (median, four rounds)."""
VISIT = Noise(0.08, 4.0, "one visit on a shared machine")
"""Visits on shared machines were 1 to 10 % apart: at 10 %, nine of ten intervals from one visit contain the truth
(benchmark `truth`); at 5 %, 7 of 10."""
EXTRAPOLATED = Noise(0.06, 4.0, "costs that begin beyond what was measured, for each doubling")
"""Error of the model of an iteration for each doubling of the workers beyond the largest measured count. The model was
9.4 % off in the mean where Shi et al. measured it (2018, section V-D), which is a deviation of 0.12; half of it holds
costs that begin beyond the counts measured in the worlds that benchmark `worlds` chooses on."""
ADDED = Noise(0.5, 30.0, "the time to add gradients, without a copies cell")
"""Adding the gradients of a later mini-batch, as a share of `ADDED_SHARE` of an update with momentum, which touches
weights, gradients and momenta: 0.17 to 0.37 of it for 10 and 61 million weights on a CPU; a fused update takes less."""
ADDED_SHARE = 0.3
PEAK = Noise(0.015, 30.0, "a peak of memory, between runs")
"""Peaks of memory of equal training cells in two runs of the default study were 1 to 2 % apart, those of visits of one
run 0.1 to 0.5 %: what the allocator and the libraries keep is decided once in each run."""
PLACED = Noise(0.035, 4.0, "one placement in one job, on several nodes")
"""Equal runs of a GPU cluster in other jobs differ by 0.2 to 1.4 % (MLPerf Training 5.1, 33 systems), those of shared
clusters by more: jobs 5 % apart are held (benchmark `worlds`). Cells that do the same in several placements show it."""
