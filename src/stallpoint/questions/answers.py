"""Answers: the fastest of competing curves, for each network on each hardware, with its measured points."""

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
from stallpoint.questions.study_tables import CurveRows, MeasuredCount, unique_names

COMPETITION = ("network", "hardware", "scaling", "storage")
"""Columns in which competing curves agree: the fastest is the answer, but only for its B (`Answer.batch`) if
verdicts differ between values of B."""
VARIED_AXES = ("sync", "prefetch", "batch", "workers_per_node")
"""Columns in which competing curves differ."""


class LargestLoss(NamedTuple):
    """The largest loss against ideal scaling at a number of workers, by one cause or by several that may cause it."""

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
    batch: int = 0
    """Mini-batch of the answer, if verdicts differ between mini-batches; else 0."""

    @cached_property
    def measured(self) -> list[MeasuredCount]:
        """Measured points. The largest rate is shrunk towards rivals' rates, as chance favours the fastest curve."""
        return correct_points(self.curve.measured, [curve.measured for curve in self.rivals if curve is not self.curve])

    @property
    def base(self) -> MeasuredCount | None:
        """The point with the fewest workers measured."""
        return self.measured[0] if self.measured else None

    @property
    def point(self) -> MeasuredCount | None:
        """The measured point at the verdict's worker count, or if undecided, preferably at the double of this count."""
        points = {one.ranks: one for one in self.measured[1:]}
        ranks = int(self.curve["verdict_ranks"])
        for wanted in (2 * ranks, ranks) if self.curve["verdict"] == Verdict.UNDECIDED else (ranks, 2 * ranks):
            if wanted in points:
                return points[wanted]
        return points[max(points)] if points else None

    @property
    def rivals_as_fast(self) -> int:
        """Number of rivals that may be as fast."""
        others = [curve.measured for curve in self.rivals if curve is not self.curve]
        return len(_rival_curves(self.curve.measured, others))

    @property
    def loss(self) -> LargestLoss | None:
        """The largest measured loss at the verdict's point, or for a stalling curve, at the next measured count."""
        rows = [row for row in self.curve.of("causes") if row["basis"] == "measured"]
        counts = sorted({int(row["ranks"]) for row in rows})
        if self.point is None or not counts:
            return None
        larger = (n for n in counts if n > self.point.ranks) if self.curve["verdict"] == Verdict.STALLS else iter(())
        ranks = next(larger, self.point.ranks)
        losses = sorted((row for row in rows if row["ranks"] == ranks), key=lambda row: -row["lost"])
        leading = [row for row in losses if row["verdict"] != LossVerdict.MINOR]
        return LargestLoss(ranks, str(leading[0]["verdict"]), leading) if leading else None

    @property
    def differing(self) -> set[str]:
        """Columns in which the rivals differ."""
        return {name for name in VARIED_AXES if len({curve[name] for curve in self.rivals}) > 1}


def answers(curves: Sequence[CurveRows]) -> list[Answer]:
    """Return an answer for each group of competing curves, network by network, with stalls first in each network."""
    found = [Answer(leading(rivals), rivals) for rivals in _competing_curves(curves)]
    found.sort(key=lambda one: list(Verdict).index(one.curve["verdict"]))
    networks = unique_names(one.curve["network"] for one in found)
    found.sort(key=lambda one: networks.index(one.curve["network"]))
    counts = Counter(_competition(one.curve) for one in found)
    return [replace(one, batch=one.curve["batch"]) if counts[_competition(one.curve)] > 1 else one
            for one in found]  # fmt: skip


def _competition(curve: CurveRows) -> tuple[object, ...]:
    return tuple(curve[name] for name in COMPETITION)


def _competing_curves(curves: Sequence[CurveRows]) -> list[list[CurveRows]]:
    """Return the groups of competing curves. With strong scaling, values of B compete only if their verdicts agree."""
    curves_of_batch: dict[tuple[object, ...], list[CurveRows]] = {}
    for curve in curves:
        batch = curve["batch"] if curve["scaling"] == "strong" else None
        curves_of_batch.setdefault((*_competition(curve), batch), []).append(curve)
    groups: dict[tuple[object, ...], list[CurveRows]] = {}
    for (*competition, batch), rivals in curves_of_batch.items():
        best = leading(rivals)
        verdict = (best["verdict"], best["verdict_ranks"]) if batch is not None else ()
        groups.setdefault((*competition, *verdict), []).extend(rivals)
    return list(groups.values())


def leading(curves: Sequence[CurveRows]) -> CurveRows:
    """Return the curve with the largest throughput at any number of workers that was measured."""
    return max(curves, key=lambda curve: at.rate.value if (at := _fastest_count(curve.measured)) else 0.0)


def _fastest_count(measured: Sequence[MeasuredCount]) -> MeasuredCount | None:
    """Return the measured number of workers with the largest throughput; None if nothing was measured."""
    return max(measured, key=lambda at: at.rate.value, default=None)


def _rival_curves(
    best: Sequence[MeasuredCount], curves: Sequence[Sequence[MeasuredCount]]
) -> list[Sequence[MeasuredCount]]:
    """Return the `curves` that may be as fast as `best`: the interval of their largest rate reaches that of `best`."""
    lowest_rate = at.rate.low if (at := _fastest_count(best)) else 0.0
    return [other for other in curves if (at := _fastest_count(other)) and at.rate.high >= lowest_rate]


def correct_points(best: Sequence[MeasuredCount], curves: Sequence[Sequence[MeasuredCount]]) -> list[MeasuredCount]:
    """Return the measured points of the fastest curve, corrected for the choice among all curves.

    Chance favours the fastest of many curves. Its rate, time and speedup are therefore shrunk towards those of the
    curves that may be as fast (`shrink_to_each_other`).
    """
    fastest = [_fastest_count(measured) for measured in (best, *_rival_curves(best, curves))]
    rates = [at.rate for at in fastest if at]
    if len(rates) < 2 or any(not 0 < rate.low < rate.high < float("inf") for rate in rates):
        return list(best)
    values, lows, highs = (np.log(ends) for ends in zip(*rates, strict=True))
    factor = float(np.exp(shrink_to_each_other(values, (highs - lows) / NORMAL_INTERVAL)[0] - values[0]))
    base = factor if fastest[0] is best[0] else 1.0
    return [_correct_point(at, factor if at is fastest[0] else 1.0, base) for at in best]


def _correct_point(at: MeasuredCount, factor: float, base: float) -> MeasuredCount:
    """Return a point with its rate times `factor`. Its speedup refers to a rate that is multiplied by `base`."""
    return at._replace(
        rate=at.rate.times(factor), seconds=at.seconds.times(1 / factor), speedup=at.speedup.times(factor / base),
        efficiency=at.efficiency.times(factor / base),
    )  # fmt: skip
