"""Comparison of two states of a training by logs: each log is one run, and even equal runs differ.

A log's iterations do not show the scatter between runs. Several runs of a state update the prior of this scatter, or
replace it if they contradict it; for single runs it is the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from stallpoint.archive.comparison.change import ERROR_RATE, judge
from stallpoint.base.distributions import fisher_quantile, student_cdf, student_quantile
from stallpoint.base.priors import EQUAL_RUN, PLACEMENT, Noise
from stallpoint.base.section import Change
from stallpoint.base.statistics import Reals
from stallpoint.records.tables import COMPARISON
from stallpoint.text import number

BLOCKS = 10
"""Number of blocks of successive (correlated) iterations; a log's error is a jackknife over the blocks."""
MIN_ITERATIONS = 2 * BLOCKS
"""Minimum number of iterations of a log, for blocks."""
PRIOR_WEIGHT = 1.0
"""Weight of the prior if there are repeats, in degrees of freedom: it may stem from other machines. With four, equal
groups of three that are 1 % apart would be called changed in 2 of 100 cases."""
CONTRADICTED = 0.01
"""Probability of the repeats' scatter under the prior below which the prior is dropped."""
GIVEN_WEIGHT = 30.0
"""Weight of a deviation given by the user, in degrees of freedom."""
SLOWDOWN, WANTED_POWER = 0.03, 0.8
"""Slowdown for which the power of the comparison is reported, and power for which the slowdown is reported."""
MIN_PHASE_SHARE = 0.5
"""Minimum share of the difference for a phase to be named."""


@dataclass(frozen=True)
class LoggedRun:
    """A run as logged."""

    seconds: Reals
    """Iteration times after the warm-up, s; for rates, their inverse."""
    phases: Mapping[str, Reals]
    """Time of each phase in these iterations, s, if the log has it."""


def _trimmed_mean(seconds: Reals) -> float:
    """Return the mean without the shortest and the longest tenth of values."""
    cut = len(seconds) // 10
    return float(np.sort(seconds)[cut : len(seconds) - cut].mean())


def _percentile(share: float, seconds: Reals) -> float:
    """Return the value at the quantile `share`, without interpolation."""
    return float(np.sort(seconds)[round(share * (len(seconds) - 1))])


USUAL = "usual iteration (without the shortest and the longest tenth)"
MEAN = "mean of all iterations"
STATISTICS: Mapping[str, Callable[[Reals], float]] = {
    USUAL: _trimmed_mean,
    MEAN: lambda seconds: float(seconds.mean()),
    "short iterations (10th percentile)": partial(_percentile, 0.1),
    "long iterations (90th percentile)": partial(_percentile, 0.9),
}
"""Compared statistics of a log: data-dependent iterations can have equal means and different extremes."""
OF_USUAL = 0.75
"""Part of `LEVEL` that the test of the usual iteration gets; the other statistics share the rest."""


@dataclass(frozen=True)
class LogChanges:
    """Changes between two states."""

    rows: pd.DataFrame
    """Columns of `tables.COMPARISON`."""
    between: float
    """Standard deviation of the logarithm between runs of a state, in addition to that of iterations."""
    notes: Sequence[str]
    power: float
    """Probability that a slowdown of `SLOWDOWN` is detected."""


def compare_logs(old: Sequence[LoggedRun], new: Sequence[LoggedRun], where: pd.Series, between: float) -> LogChanges:
    """Return the changes between two states' runs; `where` has a point's columns, `between` > 0 replaces the prior."""
    prior = Noise(between, GIVEN_WEIGHT, "as given by --between") if between else EQUAL_RUN
    changes = [_change(old, new, statistic, prior) for statistic in STATISTICS.values()]
    frame = pd.DataFrame([{**where, "network": name, **one} for name, one in zip(STATISTICS, changes, strict=True)])
    usual, others = judge(frame[:1], OF_USUAL), judge(frame[1:], 1 - OF_USUAL)
    rows = pd.concat(
        [usual.assign(subject="hardware", points=1), usual.assign(subject="point"), others.assign(subject="point")]
    )
    moved = rows[rows["change"].isin((Change.SLOWER, Change.FASTER))]
    contradicted = bool(frame["contradicted"].iloc[0])
    notes = [_noise_in_words(prior, (len(old), len(new)), len(moved) > 0, contradicted), _power_in_words(usual.iloc[0])]
    if {USUAL, MEAN} & set(moved["network"]):
        notes += list(_moved_phase(old, new))
    return LogChanges(
        rows.reindex(columns=COMPARISON.names).reset_index(drop=True),
        0.0 if contradicted else prior.deviation,
        notes,
        power(usual.iloc[0]),
    )


def _change(
    old: Sequence[LoggedRun], new: Sequence[LoggedRun], statistic: Callable[[Reals], float], prior: Noise
) -> dict[str, float | bool]:
    """Return the change of a statistic, with the columns of `change.changes`."""
    values = [np.log([statistic(run.seconds) for run in state]) for state in (old, new)]
    weight = 1 / len(old) + 1 / len(new)
    inside = _variance_inside(old, new, statistic) / weight
    expected = prior.deviation**2 + inside
    known = sum(((one - one.mean()) ** 2).sum() for one in values)
    repeats = len(old) + len(new) - 2
    contradicted = False
    if repeats:
        contradicted = known / repeats / expected > fisher_quantile(1 - CONTRADICTED, repeats, prior.freedom)
        believed = 0.0 if contradicted else PRIOR_WEIGHT if prior is EQUAL_RUN else prior.freedom
    else:
        believed = expected**2 / (prior.deviation**4 / prior.freedom + inside**2 / (BLOCKS - 1))
    freedom = believed + repeats
    variance = (believed * expected + known) / freedom
    first, second = (float(one.mean()) for one in values)
    return {
        "old": np.exp(first), "new": np.exp(second), "old_visits": len(old), "new_visits": len(new),
        "log": second - first, "error": float(np.sqrt(variance * weight)), "freedom": freedom,
        "contradicted": contradicted,
    }  # fmt: skip


def _variance_inside(old: Sequence[LoggedRun], new: Sequence[LoggedRun], statistic: Callable[[Reals], float]) -> float:
    """Return the variance of the change due to iterations (jackknife over blocks) and rounding.

    A block is omitted from all logs at once: if both states read the same samples in the same order, common
    variations of iterations cancel.
    """
    without = [[_without_blocks(run.seconds, statistic) for run in state] for state in (old, new)]
    changes = np.mean(without[1], axis=0) - np.mean(without[0], axis=0)
    together = (BLOCKS - 1) / BLOCKS * float(((changes - changes.mean()) ** 2).sum())
    values = np.unique(np.concatenate([run.seconds for run in (*old, *new)]))
    step = float(np.diff(values).min() / np.median(values)) if len(values) > 1 else 0.0
    return together + step**2 / 12 * (1 / len(old) + 1 / len(new))


def _without_blocks(seconds: Reals, statistic: Callable[[Reals], float]) -> Reals:
    blocks = np.array_split(seconds, BLOCKS)
    return np.log([statistic(np.concatenate(blocks[:one] + blocks[one + 1 :])) for one in range(BLOCKS)])


def _noise_in_words(prior: Noise, counts: tuple[int, int], moved: bool, contradicted: bool) -> str:
    """Return, in words, where the scatter between runs comes from."""
    percents = f"{number(100 * prior.deviation)} % ({prior.words})"
    if counts != (1, 1):
        which = f", which is more than {percents}" if contradicted else f", together with {percents}"
        return f"How far equal runs differ: as {counts[0]} and {counts[1]} logs scatter{which}."
    text = f"How far equal runs differ, one log of each cannot show: {percents} is taken."
    if prior is EQUAL_RUN:
        text += " On a shared machine or a laptop it is more: can you give several logs of each, or --between 0.05?"
    if moved:
        text += f" Another placement on nodes can be {number(100 * PLACEMENT.deviation)} % by itself."
    return text


def power(usual: pd.Series, slower: float = SLOWDOWN) -> float:
    """Return the probability to detect a slowdown by the fraction `slower` in the usual iteration."""
    return float(student_cdf(np.log1p(slower) / usual["error"] - _critical_difference(usual), usual["freedom"]))


def _critical_difference(usual: pd.Series) -> float:
    """Return the minimum difference, in standard errors, for the usual iteration to have changed."""
    return float(student_quantile(1 - ERROR_RATE * OF_USUAL / 2, usual["freedom"]))


def _power_in_words(usual: pd.Series) -> str:
    """Return, in words, which slowdown would be detected, and how often."""
    seen = np.expm1(usual["error"] * (_critical_difference(usual) + student_quantile(WANTED_POWER, usual["freedom"])))
    return (
        f"Power: a state {number(100 * SLOWDOWN)} % slower would be called slower in {100 * power(usual):.0f} of 100 "
        f"comparisons, one {number(100 * float(seen), 2)} % slower in {100 * WANTED_POWER:.0f}."
    )


def _moved_phase(old: Sequence[LoggedRun], new: Sequence[LoggedRun]) -> Iterator[str]:
    """Yield which phase changed, if all logs have phases."""
    names = set.intersection(*(set(run.phases) for run in (*old, *new)))
    if not names:
        return
    means = [
        {name: float(np.mean([run.phases[name].mean() for run in state])) for name in names} for state in (old, new)
    ]
    first, second = (float(np.mean([run.seconds.mean() for run in state])) for state in (old, new))
    name = max(names, key=lambda one: (means[1][one] - means[0][one]) / (second - first or 1))
    share = (means[1][name] - means[0][name]) / (second - first or 1)
    if share >= MIN_PHASE_SHARE:
        both = f"{number(means[0][name])} s before, {number(means[1][name])} s now"
        yield f"The phase that moved is {name}: {both}, {100 * share:.0f} % of the difference of an iteration."
    else:
        yield f"None of the phases that the logs print ({', '.join(sorted(names))}) has half of the difference."
