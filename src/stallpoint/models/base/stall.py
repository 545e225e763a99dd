"""Where doubling workers stops paying, with its probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stallpoint.models.base.statistics import REPLICATES, Reals, likely


@dataclass(frozen=True)
class Stall:
    """Probability that doubling stops paying at each worker count."""

    probabilities: Mapping[int, float]
    """By rising worker count; the last count, which has no double, stands for no stall."""

    @classmethod
    def of(cls, gains: Mapping[int, Reals], largest: int, threshold: float) -> Stall:
        """Build from draws of log X(2n)/X(n), [draws], by n: a draw stalls at the first n that gains less than
        `threshold`.

        `largest` is the largest known worker count.
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
        """Median stalling point; `largest` if there is none."""
        passed = np.cumsum(list(self.probabilities.values())) >= 0.5
        return list(self.probabilities)[int(passed.argmax())]

    @property
    def reached(self) -> bool:
        """Whether the median is a stall."""
        return self.ranks != self.largest

    @property
    def likely(self) -> list[int]:
        """The smallest set of worker counts with a total probability of 90 %, rising."""
        ranks = list(self.probabilities)
        return [ranks[index] for index in likely(list(self.probabilities.values()))]

    @property
    def columns(self) -> dict[str, float]:
        """The median and the range of `likely`, as ``stall_ranks``."""
        ends = (self.ranks, min(self.likely), max(self.likely))
        return dict(zip(("stall_ranks", "stall_ranks_low", "stall_ranks_high"), map(float, ends), strict=True))

    @property
    def verdict(self) -> tuple[str, int]:
        """``stalls`` or ``scales`` and the only likely worker count; else ``undecided`` and the smallest likely one."""
        if len(self.probabilities) < 2:
            return "undecided", 0
        first, *others = self.likely
        if others:
            return "undecided", first
        return ("stalls" if first != self.largest else "scales"), first

    @property
    def answer(self) -> dict[str, object]:
        """Columns of a table of stalls: `columns`, and the verdict."""
        verdict, ranks = self.verdict
        reached = {"reached": self.reached, "verdict": verdict, "verdict_ranks": ranks}
        return {**self.columns, **reached, "largest_considered": self.largest}

    @property
    def deciding(self) -> list[int]:
        """Worker counts whose times decide between the likely ones: both ends of each doubling in question."""
        return sorted({ranks for n in self.likely[:-1] for ranks in (n, 2 * n)})
