"""What must be so on any machine, held against the records: where it is not, verdicts are withheld.

*A/A controls*: on one worker all presets do the same, and so do a compute cell and a strong one of the same b. Their
iteration times must agree within their intervals (Holm's correction over all pairs of a hardware entry, as one in ten
90 % intervals misses by chance). *Speedups*: n times the workers are at most n times as fast, over the fewest and from
each measured count to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.stats import norm

from stallpoint.models.answers.fitted import FittedStudy, Question
from stallpoint.models.base.measured import Measured, point_key
from stallpoint.models.base.statistics import Ensemble, columns, estimate, is_duration
from stallpoint.models.iteration.curve import ScalingCurve
from stallpoint.records.tables import CONTROLS
from stallpoint.schedule.next_visit import ALIKE, SUPERLINEAR

LEVEL = 0.05
"""Chance that any pair of a hardware entry is said to differ where none does."""


def table(points: Sequence[Measured]) -> list[dict[str, object]]:
    """Rows of the controls table: each point on one worker beside the first one that does the same."""
    rows = list(_pairs(points))
    for hardware in {row["hardware"] for row in rows}:
        here = [row for row in rows if row["hardware"] == hardware]
        for row, differs in zip(here, holm([float(str(row["p"])) for row in here]), strict=True):
            row["agrees"] = not differs
    return rows


def _pairs(points: Sequence[Measured]) -> Iterator[dict[str, object]]:
    alike: dict[tuple[object, ...], list[Measured]] = {}
    for one in points:
        if one.point.ranks == 1 and is_duration(one.parts.iteration_time):
            alike.setdefault(tuple(getattr(one.point, name) for name in ALIKE), []).append(one)
    for key, (first, *others) in alike.items():
        for other in others:
            ratio = other.parts.iteration_time / first.parts.iteration_time
            yield {
                **dict(zip(ALIKE, key, strict=True)),
                "first": _does(first), "second": _does(other), **columns("ratio", ratio), "p": chance(ratio),
                "agrees": True,
            }  # fmt: skip


def _does(measured: Measured) -> str:
    point = measured.point
    return "compute" if point.scaling == "compute" else f"{point.scaling}, {point.sync}"


def chance(ratio: Ensemble) -> float:
    """Chance of a ratio so far from 1 where it is 1: two-sided, by the scatter of its replicates."""
    logs = np.log(ratio)
    scatter = float(np.std(logs[1:]))
    return float(2 * norm.sf(abs(logs[0]) / scatter)) if scatter > 0 else float(logs[0] == 0)


def holm(chances: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of several hypotheses are rejected at `level` over all of them (Holm 1979)."""
    order = np.argsort(chances, kind="stable")
    rejected = [False] * len(chances)
    for place, index in enumerate(order):
        if chances[index] > level / (len(chances) - place):
            break
        rejected[index] = True
    return rejected


def withheld(
    curve: ScalingCurve, rows: Iterable[Mapping[str, object]], disturbed: Collection[tuple[object, ...]] = ()
) -> str:
    """Why no verdict of this curve is to be trusted; empty where nothing speaks against it.

    `rows` are those of the controls table; `disturbed` are the points, as `point_key` names them, whose times are those
    of disturbed iterations.
    """
    hardware = curve.origin.hardware
    for row in rows:
        if row["hardware"] == hardware and not row["agrees"]:
            return (
                f"on one worker {row['first']} and {row['second']} do the same, but of {row['network']}, "
                f"b = {row['worker_batch']}, the second takes {float(str(row['ratio'])):.2f} times as long"
            )
    for ranks, measured in sorted(curve.measured.items()):
        if point_key(measured.point) in disturbed:
            return f"most iterations on n = {ranks} were disturbed and count for want of others"
    for ranks in sorted(set(curve.measured) & set(curve.known)):
        if superlinear(curve, curve.base, ranks):
            value = float(curve.speedup(ranks, "measured")[0])
            return f"a speedup of {value:.2f} on n = {ranks} is more than any machine has"
    return _impossible_gain(curve)


def _impossible_gain(curve: ScalingCurve) -> str:
    """Which measured points make a gain between neighbours impossible, and by how much; empty where none do.

    The point is named without which gains are most like a machine's: it took too long, or not long enough, in all of
    its visits.
    """
    there = sorted(set(curve.measured) & set(curve.known))
    pair = next((pair for pair in pairwise(there) if superlinear(curve, *pair)), None)
    if pair is None:
        return ""

    def without(left_out: int) -> float:
        """The largest gain of the others, over what their workers grow by."""
        others = pairwise(ranks for ranks in there if ranks != left_out)
        return max((float(_gain(curve, few, many)[0]) * few / many for few, many in others), default=0.0)

    few, many = pair
    named = min(pair, key=without)
    cells = ", ".join((f"n = {named}", *curve.measured[named].cells))
    gain = float(_gain(curve, few, many)[0])
    beyond = f"throughput grows {gain:.2f} times from n = {few} to n = {many}, more than any machine's"
    return f"{beyond}: measure {cells} again"


def superlinear(curve: ScalingCurve, few: int, many: int) -> bool:
    """Whether what `many` workers gain over `few`, both measured, is surely more than any machine has."""
    _, low, _ = estimate(_gain(curve, few, many))
    return low > SUPERLINEAR * many / few


def _gain(curve: ScalingCurve, few: int, many: int) -> Ensemble:
    return np.asarray(curve.speedup(many, "measured") / curve.speedup(few, "measured"))


def checked(fitted: FittedStudy) -> list[dict[str, object]]:
    """Rows of the controls table of a study."""
    return table(fitted.seen)


QUESTIONS = (Question(CONTROLS, lambda fitted: fitted.once(checked)),)
