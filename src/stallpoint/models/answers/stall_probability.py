"""Where a curve stalls, as probabilities: P(stall = n) for each worker count n, from draws of its gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stallpoint.models.base.statistics import INTERVAL, REPLICATES, Reals


@dataclass(frozen=True)
class Stall:
    """The probability that doubling stops paying at each worker count."""

    probabilities: Mapping[int, float]
    """By worker count, rising; the last one, which has no double, stands for no stall up to it."""

    @classmethod
    def of(cls, gains: Mapping[int, Reals], largest: int, threshold: float) -> Stall:
        """From draws of log X(2n)/X(n), [draws], by n: a curve stalls at the first n that gains less than `threshold`.

        `largest` is the largest worker count that is known.
        """
        ranks = sorted(gains)
        paid = np.ones(len(gains[ranks[0]]) if ranks else REPLICATES, dtype=np.bool_)
        found = {}
        for n in ranks:
            pays = gains[n] >= np.log1p(threshold)
            found[n] = float((paid & ~pays).mean())
            paid &= pays
        return cls(found | {largest: float(paid.mean())})

    @property
    def largest(self) -> int:
        """The worker count up to which there may be no stall."""
        return max(self.probabilities)

    @property
    def ranks(self) -> int:
        """The median; `largest` where there is no stall."""
        passed = np.cumsum(list(self.probabilities.values())) >= 0.5
        return list(self.probabilities)[int(passed.argmax())]

    @property
    def reached(self) -> bool:
        """Whether the median is a stall."""
        return self.ranks != self.largest

    @property
    def likely(self) -> list[int]:
        """The smallest set of worker counts that together have 90 % probability, rising."""
        order = sorted(self.probabilities, key=lambda n: (-self.probabilities[n], n))
        passed = np.cumsum([self.probabilities[n] for n in order]) >= INTERVAL - 1e-9
        return sorted(order[: int(passed.argmax()) + 1])

    @property
    def columns(self) -> dict[str, float]:
        """The median and the ends of `likely`, as ``stall_ranks``."""
        ends = (self.ranks, min(self.likely), max(self.likely))
        return dict(zip(("stall_ranks", "stall_ranks_low", "stall_ranks_high"), map(float, ends), strict=True))

    @property
    def verdict(self) -> tuple[str, int]:
        """``stalls`` or ``scales`` and the worker count that alone has 90 %; else ``undecided`` from where on."""
        if len(self.probabilities) < 2:
            return "undecided", 0
        first, *others = self.likely
        if others:
            return "undecided", first
        return ("stalls" if first != self.largest else "scales"), first

    @property
    def deciding(self) -> list[int]:
        """Node counts whose times decide between the likely ones: both ends of each gain in question."""
        return sorted({ranks for n in self.likely[:-1] for ranks in (n, 2 * n)})
