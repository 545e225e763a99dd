"""A number with its interval against a condition, and what many such verdicts say together."""

from __future__ import annotations

import math
from collections.abc import Iterable

from stallpoint.claims.language import Condition

HOLDS, FAILS, UNCLEAR, UNTESTED = "holds", "does not hold", "not distinguishable", "not tested"
VERDICTS = (HOLDS, FAILS, UNCLEAR, UNTESTED)


def verdict(low: float, high: float, condition: Condition) -> str:
    """Whether the interval lies wholly inside the condition, wholly outside, or neither (or is not known)."""
    if math.isnan(low) or math.isnan(high):
        return UNCLEAR
    above = low >= condition.low if condition.low_belongs else low > condition.low
    below = high <= condition.high if condition.high_belongs else high < condition.high
    if above and below:
        return HOLDS
    too_low = high < condition.low if condition.low_belongs else high <= condition.low
    too_high = low > condition.high if condition.high_belongs else low >= condition.high
    return FAILS if too_low or too_high else UNCLEAR


def overall(verdicts: Iterable[str]) -> str:
    """The verdict on a claim: one combination for which it does not hold refutes it, one that is unclear leaves it so.

    Combinations that were not tested do not count, unless none was.
    """
    found = set(verdicts)
    return next((one for one in (FAILS, UNCLEAR, HOLDS) if one in found), UNTESTED)
