"""The definition of a stall, the worker count beyond which more workers do not pay, and the probability of each count.

The gain of m workers over n workers for each doubling is (X(m) / X(n))^(1 / log2(m / n)); X(n) is the throughput of n
workers. A curve stalls at the smallest count n over which no larger count m gains at least the threshold: if a curve
falls at the first node boundary, but gains from n at a larger count, n is no stall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from stallpoint.base.statistics import Reals, likely


class Verdict(StrEnum):
    """Verdicts on a scaling curve, in the order in which reports list them."""

    STALLS = "stalls"
    UNDECIDED = "undecided"
    SCALES = "scales"
    WITHHELD = "withheld"


VERDICTS = {
    Verdict.STALLS: "stops getting faster at",
    Verdict.SCALES: "still gets faster at",
    Verdict.UNDECIDED: "undecided beyond",
}
"""Words of a verdict that its worker count follows."""

_ROUNDING = 1e-9
"""Amount by which rounding may keep a gain below the threshold."""


@dataclass(frozen=True)
class Stall:
    """Probability that a curve stalls at a worker count, for each worker count."""

    probabilities: Mapping[int, float]
    """By rising worker count; the probability of the last count is that of no stall, as nothing is known beyond it."""

    @classmethod
    def of(cls, log_rates: Mapping[int, Reals], threshold: float) -> Stall:
        """Return the `Stall` of a curve; `log_rates` maps each worker count to the logarithms of its rate, [draws]."""
        counts = sorted(log_rates)
        if not counts:
            return cls({0: 1.0})
        logs = np.stack([log_rates[count] for count in counts])
        doublings = np.log2(counts)[:, None]
        gains_so_far = np.ones(logs.shape[1], dtype=np.bool_)
        probabilities = {}
        for place, count in enumerate(counts[:-1], start=1):
            needed_gain = (np.log1p(threshold) - _ROUNDING) * (doublings[place:] - doublings[place - 1])
            some_count_pays = (logs[place:] - logs[place - 1] >= needed_gain).any(axis=0)
            probabilities[count] = float((gains_so_far & ~some_count_pays).mean())
            gains_so_far &= some_count_pays
        return cls(probabilities | {counts[-1]: float(gains_so_far.mean())})

    def cap_probability(self, max_probability: float) -> Stall:
        """Return a copy with the largest probability reduced to `max_probability`; other counts share the excess."""
        found = dict(self.probabilities)
        top = max(found, key=lambda count: found[count])
        if len(found) < 2 or found[top] <= max_probability:
            return self
        share = (found[top] - max_probability) / (len(found) - 1)
        return Stall({count: max_probability if count == top else chance + share for count, chance in found.items()})

    @property
    def largest(self) -> int:
        """The largest worker count."""
        return max(self.probabilities)

    @property
    def ranks(self) -> int:
        """Median stalling point; `largest` if the median is that the curve does not stall."""
        is_past_median = np.cumsum(list(self.probabilities.values())) >= 0.5
        return list(self.probabilities)[int(is_past_median.argmax())]

    @property
    def reached(self) -> bool:
        """Whether the median stalling point (`ranks`) is a stall, and not the largest count."""
        return self.ranks != self.largest

    @property
    def likely(self) -> list[int]:
        """The smallest set of worker counts with a total probability of 90 %, rising."""
        ranks = list(self.probabilities)
        return [ranks[index] for index in likely(list(self.probabilities.values()))]

    @property
    def columns(self) -> dict[str, float]:
        """Columns ``stall_ranks``, ``stall_ranks_low``, ``stall_ranks_high``: the median, and the ends of `likely`."""
        ends = (self.ranks, min(self.likely), max(self.likely))
        return dict(zip(("stall_ranks", "stall_ranks_low", "stall_ranks_high"), map(float, ends), strict=True))

    @property
    def verdict(self) -> tuple[Verdict, int]:
        """Verdict (`UNDECIDED` unless a single worker count is likely), and the smallest likely count."""
        if len(self.probabilities) < 2:
            return Verdict.UNDECIDED, 0
        smallest, *others = self.likely
        if others:
            return Verdict.UNDECIDED, smallest
        return (Verdict.STALLS if smallest != self.largest else Verdict.SCALES), smallest

    @property
    def answer(self) -> dict[str, object]:
        """Row of a table of stalls: the stalling point with its interval, the verdict, and the largest count."""
        verdict, ranks = self.verdict
        reached = {"reached": self.reached, "verdict": verdict, "verdict_ranks": ranks}
        return {**self.columns, **reached, "largest_considered": self.largest}

    @property
    def crucial_counts(self) -> list[int]:
        """Worker counts whose rates decide between `likely` stalls: each stall but the last, and the count after it."""
        counts = list(self.probabilities)
        return sorted({at for n in self.likely[:-1] for at in (n, counts[counts.index(n) + 1])})
