"""Scaling of a step's phases: speedups, shares of the change, the phase that stops scaling, and predictions.

A phase that gets shorter follows t(n) = a + b/n on n workers, where a is not divided among workers, such as the longest
answer of a generation, whose tokens are sequential; a phase that grows follows t(n) = a + b log2 n. The law is scaled
to the last measured count; beyond it, `base.priors.EXTRAPOLATION` widens the interval, less if more are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2, sqrt

import numpy as np

from stallpoint.base.non_negative_fits import non_negative_fit
from stallpoint.base.priors import EXTRAPOLATION, POSTED_NUMBER, VISIT
from stallpoint.base.statistics import Ensemble, Estimate, Reals, estimate, generator
from stallpoint_files.phases.phased_steps import PhasedSteps

DRAWS = 400
FEW = 3
"""Minimum number of steps to estimate their scatter."""
SURE_OF_PHASE = 0.95
"""Minimum probability for a single phase to be named."""
FOR_A_LAW = 3
"""Minimum number of counts to report the fixed part of a phase."""


@dataclass(frozen=True)
class PhaseTimes:
    """Phases of one training on several counts."""

    runs: Mapping[int, Sequence[PhasedSteps]]
    """Runs by number of workers, or of nodes."""
    work: Mapping[int, float]
    """Ratio of each count's mini-batch to the smallest count's."""

    @cached_property
    def counts(self) -> list[int]:
        """Numbers of workers (or nodes) in ascending order."""
        return sorted(self.runs)

    @cached_property
    def names(self) -> list[str]:
        """Names of the phases in any run, the longest first."""
        names = {name for runs in self.runs.values() for run in runs for name in run.phases}
        return sorted(names, key=lambda name: -float(sum(self.seconds(name, count)[0] for count in self.counts)))

    @cached_property
    def concurrent(self) -> bool:
        """Whether phases run concurrently."""
        return any(run.concurrent for runs in self.runs.values() for run in runs)

    def seconds(self, name: str, count: int) -> Ensemble:
        """Return the mean time of a phase at a count, s."""
        runs = self.runs[count]
        values = [value for run in runs for value in run.phases.get(name, [0.0] * len(run.total))]
        return drawn(
            values, max(run.rounded for run in runs), f"{name} {count}", posted=any(run.rounded for run in runs)
        )

    def step(self, count: int) -> Ensemble:
        """Return the mean time of a step, s: the sum of its phases, unless these run concurrently."""
        if not self.concurrent:
            return np.asarray(np.sum([self.seconds(name, count) for name in self.names], axis=0))
        runs = self.runs[count]
        return drawn([value for run in runs for value in run.total], runs[0].rounded, f"step {count}", posted=False)

    def factor(self, name: str) -> Ensemble:
        """Return the speedup of a phase from the smallest to the largest count, at equal work."""
        first, last = self.counts[0], self.counts[-1]
        return np.asarray(self.seconds(name, first) * self.work[last] / np.maximum(self.seconds(name, last), 1e-12))

    def change(self, name: str) -> Ensemble:
        """Return the share of a phase in the step's change from the smallest to the largest count."""
        first, last = self.counts[0], self.counts[-1]
        whole = self.step(first) - self.step(last)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((self.seconds(name, first) - self.seconds(name, last)) / whole)

    @cached_property
    def lost(self) -> dict[str, Ensemble]:
        """Time of each phase at the largest count beyond ideal scaling from the smallest count, s."""
        first, last = self.counts[0], self.counts[-1]
        even = first / last * self.work[last]
        return {name: self.seconds(name, last) - even * self.seconds(name, first) for name in self.names}

    @cached_property
    def stopping(self) -> dict[str, float]:
        """Probability of each phase to lose the most time (none if it loses nothing), the most probable phase first."""
        losses = np.array([self.lost[name][1:] for name in self.names])
        most = np.argmax(losses, axis=0)
        chances = {name: float(np.mean((most == at) & (losses[at] > 0))) for at, name in enumerate(self.names)}
        return dict(sorted(chances.items(), key=lambda one: -one[1]))

    def share_of_loss(self, name: str) -> Estimate:
        """Return the share of a phase in the total of all losses."""
        whole = np.sum([np.maximum(lost, 0.0) for lost in self.lost.values()], axis=0)
        return estimate(np.maximum(self.lost[name], 0.0) / np.maximum(whole, 1e-12))

    def at(self, name: str, count: float) -> Ensemble:
        """Return the predicted time of a phase at a larger count, s, with the largest measured count's mini-batch."""
        counts, last = np.array(self.counts, dtype=float), self.counts[-1]
        times = np.array([self.seconds(name, one) * self.work[last] / self.work[one] for one in self.counts]).T
        if times.max() <= 0:
            return np.zeros(1 + DRAWS)
        falling = times[0, -1] <= times[0, 0]
        points = np.append(counts, count)
        law = 1 / points if falling else np.log2(points / counts[0])
        fitted = non_negative_fit(np.stack([np.ones_like(counts), law[:-1]], axis=-1), times)
        on_line, at_last = (fitted[:, 0] + fitted[:, 1] * law[at] for at in (-1, -2))
        doubt = EXTRAPOLATION.deviation * log2(count / last) / sqrt(len(self.counts) - 1)
        noise = doubt * generator(0, "phases beyond", name).standard_normal(DRAWS)
        ratio = np.where(at_last > 0, on_line / np.maximum(at_last, 1e-12), 1.0)
        return np.asarray(times[:, -1] * ratio * np.exp(np.concatenate([[0.0], noise])))

    def fixed(self, name: str) -> Estimate | None:
        """Return the time of a phase that more workers do not shorten, s; None with too few counts, or if it grows."""
        if (
            len(self.counts) < FOR_A_LAW
            or self.seconds(name, self.counts[-1])[0] > self.seconds(name, self.counts[0])[0]
        ):
            return None
        counts = np.array(self.counts, dtype=float)
        times = np.array([self.seconds(name, one) for one in self.counts]).T
        return estimate(non_negative_fit(np.stack([np.ones_like(counts), 1 / counts], axis=-1), times)[:, 0])

    def saved(self, count: float) -> Ensemble:
        """Return the fraction of a step's time that a larger count saves."""
        after = np.sum([self.at(name, count) for name in self.names], axis=0)
        return np.asarray(1 - after / np.sum([self.at(name, self.counts[-1]) for name in self.names], axis=0))


def drawn(values: Sequence[float], rounded: float, key: str, *, posted: bool) -> Ensemble:
    """Return draws of the mean of values, with the scatter of the values (if enough) and of runs."""
    mean = float(np.mean(values))
    if mean <= 0:
        return np.zeros(1 + DRAWS)
    few = len(values) < FEW
    own = 0.0 if few else float(np.std(values, ddof=1)) / sqrt(len(values)) / mean
    between = VISIT.deviation if few and not posted else POSTED_NUMBER.deviation
    deviation = sqrt(own**2 + between**2 + (rounded / sqrt(12) / mean) ** 2)
    noise: Reals = generator(0, "phases", key).standard_normal(DRAWS)
    return np.asarray(mean * np.exp(np.concatenate([[0.0], deviation * noise])))
