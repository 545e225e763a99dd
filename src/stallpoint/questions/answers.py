"""Answers: for each network on each hardware entry the fastest of competing curves, with its measured points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stallpoint.base.section import TableRow
from stallpoint.base.shrinkage import shrink_to_each_other
from stallpoint.base.stall import Verdict
from stallpoint.base.statistics import NORMAL_INTERVAL
from stallpoint.models.answers.causes import LossVerdict
from stallpoint.questions.study_tables import CurveRows, MeasuredCount, unique

COMPETITION = ("network", "hardware", "scaling", "storage")
"""Columns in which competing curves agree: the fastest is the answer, but only for its B (`Answer.of_batch`) if
verdicts differ between values of B."""
VARIED = ("sync", "prefetch", "batch", "workers_per_node")
"""Columns in which competing curves differ."""


class LargestLoss(NamedTuple):
    """The largest loss against ideal scaling at a number of workers, by one cause or several indistinguishable ones."""

    ranks: int
    verdict: str
    """Verdict in the table ``causes``."""
    leading: Sequence[TableRow]
    """Rows of ``causes``, the largest loss first."""


@dataclass(frozen=True)
class Answer:
    """The fastest of competing curves."""

    curve: CurveRows
    rivals: Sequence[CurveRows]
    """All competing curves, including this one."""
    of_batch: int = 0
    """Mini-batch of the answer, if verdicts differ between mini-batches; else 0."""

    @cached_property
    def measured(self) -> list[MeasuredCount]:
        """Measured points, corrected for the choice of the curve."""
        return as_chosen(self.curve.measured, [curve.measured for curve in self.rivals if curve is not self.curve])

    @property
    def base(self) -> MeasuredCount | None:
        """The fewest workers measured."""
        return self.measured[0] if self.measured else None

    @property
    def at(self) -> MeasuredCount | None:
        """The measured point of the verdict: the largest count, the stall, or the double of an undecided count."""
        larger = {one.ranks: one for one in self.measured[1:]}
        ranks = int(self.curve["verdict_ranks"])
        for wanted in (2 * ranks, ranks) if self.curve["verdict"] == Verdict.UNDECIDED else (ranks, 2 * ranks):
            if wanted in larger:
                return larger[wanted]
        return larger[max(larger)] if larger else None

    @property
    def as_fast(self) -> int:
        """Number of rivals that may be as fast."""
        others = [curve.measured for curve in self.rivals if curve is not self.curve]
        return len(_may_be_as_fast(self.curve.measured, others))

    @property
    def loss(self) -> LargestLoss | None:
        """The largest measured loss; for a stalling curve the loss at the next measured count."""
        rows = [row for row in self.curve.of("causes") if row["basis"] == "measured"]
        counts = sorted({int(row["ranks"]) for row in rows})
        if self.at is None or not counts:
            return None
        beyond = (n for n in counts if n > self.at.ranks) if self.curve["verdict"] == Verdict.STALLS else iter(())
        ranks = next(beyond, self.at.ranks)
        here = sorted((row for row in rows if row["ranks"] == ranks), key=lambda row: -row["lost"])
        leading = [row for row in here if row["verdict"] != LossVerdict.MINOR]
        return LargestLoss(ranks, str(leading[0]["verdict"]), leading) if leading else None

    @property
    def differ(self) -> set[str]:
        """Columns in which the rivals differ."""
        return {name for name in VARIED if len({curve[name] for curve in self.rivals}) > 1}


def answers(curves: Sequence[CurveRows]) -> list[Answer]:
    """Return an answer for each group of competing curves: stalls first, then undecided; a network's are adjacent."""
    found = [Answer(leading(rivals), rivals) for rivals in _competing(curves)]
    found.sort(key=lambda one: list(Verdict).index(one.curve["verdict"]))
    networks = unique(one.curve["network"] for one in found)
    found.sort(key=lambda one: networks.index(one.curve["network"]))
    answering = Counter(_competition(one.curve) for one in found)
    return [replace(one, of_batch=one.curve["batch"]) if answering[_competition(one.curve)] > 1 else one
            for one in found]  # fmt: skip


def _competition(curve: CurveRows) -> tuple[object, ...]:
    return tuple(curve[name] for name in COMPETITION)


def _competing(curves: Sequence[CurveRows]) -> list[list[CurveRows]]:
    """Return the groups of competing curves; with strong scaling a group for each B if the fastest curves of different
    B have different verdicts."""
    of_batch: dict[tuple[object, ...], list[CurveRows]] = {}
    for curve in curves:
        batch = curve["batch"] if curve["scaling"] == "strong" else None
        of_batch.setdefault((*_competition(curve), batch), []).append(curve)
    places: dict[tuple[object, ...], list[CurveRows]] = {}
    for (*competition, batch), rivals in of_batch.items():
        best = leading(rivals)
        verdict = (best["verdict"], best["verdict_ranks"]) if batch is not None else ()
        places.setdefault((*competition, *verdict), []).extend(rivals)
    return list(places.values())


def leading(curves: Sequence[CurveRows]) -> CurveRows:
    """Return the curve with the largest throughput at any measured number of workers."""
    return max(curves, key=lambda curve: at.rate.value if (at := _fastest(curve.measured)) else 0.0)


def _fastest(measured: Sequence[MeasuredCount]) -> MeasuredCount | None:
    """Return the measured number of workers with the largest throughput."""
    return max(measured, key=lambda at: at.rate.value, default=None)


def _may_be_as_fast(
    best: Sequence[MeasuredCount], others: Sequence[Sequence[MeasuredCount]]
) -> list[Sequence[MeasuredCount]]:
    """Return those of the `others` whose throughput is not surely below that of `best`."""
    least = at.rate.low if (at := _fastest(best)) else 0.0
    return [other for other in others if (at := _fastest(other)) and at.rate.high >= least]


def as_chosen(best: Sequence[MeasuredCount], others: Sequence[Sequence[MeasuredCount]]) -> list[MeasuredCount]:
    """Return the measured points of the fastest curve, corrected for the choice among all.

    Chance helps the fastest of many curves: its rate, time and speedup are shrunk towards those of the curves that may
    be as fast (`shrink_to_each_other`).
    """
    fastest = [_fastest(measured) for measured in (best, *_may_be_as_fast(best, others))]
    rates = [at.rate for at in fastest if at]
    if len(rates) < 2 or any(not 0 < rate.low < rate.high < float("inf") for rate in rates):
        return list(best)
    values, lows, highs = (np.log(ends) for ends in zip(*rates, strict=True))
    factor = float(np.exp(shrink_to_each_other(values, (highs - lows) / NORMAL_INTERVAL)[0] - values[0]))
    of_base = factor if fastest[0] is best[0] else 1.0
    return [_corrected(at, factor if at is fastest[0] else 1.0, of_base) for at in best]


def _corrected(at: MeasuredCount, rate: float, of_base: float) -> MeasuredCount:
    """Return a measured point with its rate times `rate`, and the rate of the fewest workers times `of_base`."""
    return at._replace(
        rate=at.rate.times(rate), seconds=at.seconds.times(1 / rate), speedup=at.speedup.times(rate / of_base),
        efficiency=at.efficiency.times(rate / of_base),
    )  # fmt: skip
