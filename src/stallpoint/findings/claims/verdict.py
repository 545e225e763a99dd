"""A number with its interval against a condition, and the verdict of several."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.stats import t as student_t

from stallpoint.findings.claims.language import Condition
from stallpoint.models.base.statistics import INTERVAL, UNKNOWN

HOLDS, FAILS, UNCLEAR, UNTESTED = "holds", "does not hold", "not distinguishable", "not tested"
_TAIL = (1 - INTERVAL) / 2
VERDICTS = (HOLDS, FAILS, UNCLEAR, UNTESTED)


def verdict(low: float, high: float, condition: Condition) -> str:
    """Return whether the interval lies inside the condition, outside, or neither (or is unknown)."""
    if math.isnan(low) or math.isnan(high):
        return UNCLEAR
    above = low >= condition.low if condition.low_belongs else low > condition.low
    below = high <= condition.high if condition.high_belongs else high < condition.high
    if above and below:
        return HOLDS
    too_low = high < condition.low if condition.low_belongs else high <= condition.low
    too_high = low > condition.high if condition.high_belongs else low >= condition.high
    return FAILS if too_low or too_high else UNCLEAR


def among(value: float, low: float, high: float, count: int) -> tuple[float, float]:
    """Return the interval [low, high] of `value`, widened so that `count` of them all cover theirs with the same
    confidence.

    Bonferroni's correction, by which Holm (1979) rejects the first of several hypotheses: each tail is `count` times
    less likely. Tails are those of few visits, Student's t with the degrees of freedom of a single one's prior.
    """
    if count < 2 or not math.isfinite(value):
        return low, high
    longer = float(student_t.isf(_TAIL / count, UNKNOWN.freedom) / student_t.isf(_TAIL, UNKNOWN.freedom))
    return value - longer * (value - low), value + longer * (high - value)


def overall(verdicts: Sequence[str], among_all: Sequence[str], quantifier: str) -> str:
    """Return the verdict on a claim about ``all`` or ``any`` of its combinations.

    `verdicts` are those of single combinations, `among_all` the same by intervals as `among` makes them: one of many
    combinations lies outside by chance, so that it refutes a claim about all, or proves one about any, by these
    alone. Combinations that were not tested do not count, unless none was.
    """
    tested = {one for one in verdicts if one != UNTESTED}
    if not tested:
        return UNTESTED
    one, each = (FAILS, HOLDS) if quantifier == "all" else (HOLDS, FAILS)
    if one in among_all:
        return one
    return each if tested == {each} else UNCLEAR
