"""A scaling curve: rates by worker count with their noise, and the verdict on the curve.

Curves come from a study's visits, from its predictions, and from the rows of a file. The same rules judge all curves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from stallpoint.base.priors import POSTED_NUMBER, VISIT, Noise
from stallpoint.base.stall import Stall, Verdict
from stallpoint.base.statistics import Ensemble, Estimate, estimate, generator

THRESHOLD = 0.1
"""Gain for each doubling of the workers above which more workers pay."""
_USUAL_NODE_SIZES = (4, 8, 16)
"""Usual numbers of workers on a node: a step after one of them may be a node boundary if the node size is unknown."""
SURE_PROBABILITY = 0.99
"""Probability from which on a verdict is called sure."""
MAX_PROBABILITY = 0.9
"""Largest probability of a verdict if some count was measured in a single placement: others may differ."""
_SLOWER_CHANCE = 0.95
"""Probability from which on a count is called slower than an earlier one."""
SUPERLINEAR_RATIO = 1.05
"""Ratio of a doubling's gain to 2 above which something besides the workers must have changed."""
SHARED = 0.5
"""Part of the noise's variance that repeats of a placement share: they ran on the same machines in the same state."""
_DRAWS = 4000
"""Draws of a curve's noise where no visits give an ensemble."""


class Dip(NamedTuple):
    """A worker count `at` that is slower than the smaller count `before`, while the larger count `after` is faster."""

    at: int
    before: int
    """The fastest count below `at`."""
    after: int
    """The first count above `at` that is faster than `before`."""


@dataclass(frozen=True)
class Curve:
    """A scaling curve: the rate of all workers together, by number of workers."""

    rates: Mapping[int, Ensemble]
    """Estimate and draws of each count, [1 + draws], above 0; draws at the same position belong together."""
    per_node: float | None = None
    """Workers of a full node; None if unknown."""
    threshold: float = THRESHOLD
    unit: str = "samples/s"
    counted: str = "workers"
    """Whether `counts` are numbers of workers or of nodes, where no node is known to hold several workers."""
    repeated: bool = True
    """Whether the noise is known from repeats; else from `prior`."""
    is_placed_once: bool = False
    """Whether some count was measured in one placement of several: verdicts are capped at `MAX_PROBABILITY`."""
    prior: Noise = POSTED_NUMBER

    @cached_property
    def counts(self) -> list[int]:
        """Numbers of workers, rising."""
        return sorted(self.rates)

    @cached_property
    def stall(self) -> Stall:
        """Probability that the curve stalls at a count, for each count."""
        found = Stall.of({count: np.log(rate[1:]) for count, rate in self.rates.items()}, self.threshold)
        return found.cap_probability(MAX_PROBABILITY) if self.is_placed_once else found

    @cached_property
    def verdict(self) -> tuple[Verdict, int]:
        """Return verdict and count of the stall; undecided if too few counts beyond the stall were measured."""
        verdict, count = self.stall.verdict
        return (Verdict.UNDECIDED, count) if self.one_step or self.is_short else (verdict, count)

    @property
    def is_sure(self) -> bool:
        """Whether the verdict is certain: no other verdict is likely, and two counts beyond a stall were measured."""
        verdict, count = self.verdict
        stall = self.stall if self.repeated else self._stall_of_noisier_runs
        is_likely = verdict in (Verdict.STALLS, Verdict.SCALES) and stall.probabilities[count] >= SURE_PROBABILITY
        return is_likely and (verdict == Verdict.SCALES or len(self.counts) - self.counts.index(count) > 2)

    @property
    def _stall_of_noisier_runs(self) -> Stall:
        """The `stall` that would follow if the rates scattered as visits on shared machines do."""
        logs = {count: np.log(rate) for count, rate in self.rates.items()}
        widening = max(1.0, VISIT.deviation / self.prior.deviation)
        return Stall.of({count: log[0] + widening * (log[1:] - log[0]) for count, log in logs.items()}, self.threshold)

    @property
    def is_short(self) -> bool:
        """Whether the largest count is less than twice the stall, so that the stall may be just one slow run.

        Pollux' series on T4 GPUs, each cut after each count, showed 32 of these stalls; all gained at the next count.
        """
        verdict, count = self.stall.verdict
        return verdict == Verdict.STALLS and self.counts[-1] < 2 * count

    @cached_property
    def one_step(self) -> bool:
        """Whether only one count beyond one node shows the stall. A second node costs once, so more nodes may gain.

        If the node size is unknown, a last count after 4, 8 or 16 workers is taken for the first one beyond a node.
        """
        verdict, count = self.stall.verdict
        if verdict != Verdict.STALLS:
            return False
        if self.per_node is None:
            return self.counted != "nodes" and count in _USUAL_NODE_SIZES and count == self.counts[-2]
        logs_on_node = {n: np.log(rate[1:]) for n, rate in self.rates.items() if n <= self.per_node}
        if self.per_node <= 1 or len(self.counts) - len(logs_on_node) != 1:
            return False
        return Stall.of(logs_on_node, self.threshold).verdict != (verdict, count)

    @property
    def stalls_within_counts(self) -> bool:
        """Whether the curve stalls within its counts, although noise leaves open at which of several counts."""
        counts = self.stall.likely
        return len(counts) > 1 and counts[-1] != self.stall.largest and self.counts[-1] >= 2 * counts[-1]

    @cached_property
    def dips(self) -> list[Dip]:
        """Each `Dip` of the curve, by rising count."""
        found = []
        for place, count in enumerate(self.counts[1:], start=1):
            fastest_before = max(self.counts[:place], key=self.rate)
            probability_slower = float((self.rates[count][1:] < self.rates[fastest_before][1:]).mean())
            faster_after = next((n for n in self.counts[place:] if self.rate(n) > self.rate(fastest_before)), None)
            if probability_slower >= _SLOWER_CHANCE and faster_after:
                found.append(Dip(count, fastest_before, faster_after))
        return found

    @cached_property
    def slower_largest_count(self) -> int | None:
        """The largest count, if it is slower than the fastest count; else None."""
        largest, fastest = self.counts[-1], max(self.counts, key=self.rate)
        return largest if float((self.rates[largest][1:] < self.rates[fastest][1:]).mean()) >= _SLOWER_CHANCE else None

    @cached_property
    def full_node_workers(self) -> int | None:
        """Workers of one full node; None if unknown."""
        return int(self.per_node) if self.per_node and self.per_node >= 1 else None

    def rate(self, count: int) -> float:
        """Return the estimated rate of a count."""
        return float(self.rates[count][0])

    def estimate(self, count: int) -> Estimate:
        """Return the rate of a count with its interval."""
        return estimate(self.rates[count])

    def speedup(self, count: int) -> Ensemble:
        """Return the speedup of a count over the smallest count, as an array [1 + draws]: estimate and draws."""
        return np.asarray(self.rates[count] / self.rates[self.counts[0]])

    def gain(self, start: int, end: int) -> float:
        """Return the factor by which the rate grows for each doubling of the workers, from `start` to `end` workers."""
        doublings = math.log2(self.rate(end) / self.rate(start)) / math.log2(end / start)
        return float(2 ** min(doublings, 20))  # a limit, as counts as close as 4021 and 4022 could overflow

    def efficiency(self, count: int) -> float:
        """Return the rate of one worker at `count`, divided by the rate of one worker at the smallest count."""
        first = self.counts[0]
        return self.rate(count) / count * first / self.rate(first)

    @cached_property
    def odd_count(self) -> int | None:
        """A count next to a superlinear gain: its run may be disturbed or set otherwise. None without such a gain."""
        steps = list(pairwise(self.counts))
        steep_steps = [(start, end) for start, end in steps if self.gain(start, end) > 2 * SUPERLINEAR_RATIO]
        if not steep_steps:
            return None
        start, end = max(steep_steps, key=lambda pair: self.gain(*pair))
        suspect_counts = [count for count in (start, end) if count not in (self.counts[0], self.counts[-1])]
        return max(suspect_counts or [end], key=self._deviation_from_neighbours)

    def _deviation_from_neighbours(self, count: int) -> float:
        """Return how far, in logarithms, the rate per worker is from that interpolated between neighbouring counts."""
        index = self.counts.index(count)
        if index in (0, len(self.counts) - 1):
            return 0.0
        below, above = self.counts[index - 1], self.counts[index + 1]
        share = math.log(count / below) / math.log(above / below)
        logs = [math.log(self.rate(one) / one) for one in (below, count, above)]
        return abs(logs[1] - (1 - share) * logs[0] - share * logs[2])


def rates_from(runs: Mapping[int, Sequence[float]], prior: Noise = POSTED_NUMBER) -> dict[int, Ensemble]:
    """Return the rates of a `Curve`, from the rates of single runs at each count: medians, with the noise of repeats.

    The variance between repeats is averaged with that of `prior`, weighted by degrees of freedom (moderated t; Smyth
    2004). Without repeats it is that of the prior.
    """
    logs = {count: np.log(list(values)) for count, values in sorted(runs.items())}
    repeats = sum(len(values) - 1 for values in logs.values())
    squares = float(sum(((values - values.mean()) ** 2).sum() for values in logs.values()))
    freedom = prior.freedom + repeats
    deviation = math.sqrt((prior.freedom * prior.deviation**2 + squares) / freedom)
    rng = generator(0, "rates")
    noise = deviation * rng.standard_normal((len(logs), _DRAWS))
    if repeats:
        noise *= np.sqrt(freedom / rng.chisquare(freedom, _DRAWS))
    return {
        count: median(runs[count]) * np.exp(np.append(0.0, row * math.sqrt(SHARED + (1 - SHARED) / len(logs[count]))))
        for (count, row) in zip(logs, noise, strict=True)
    }
