"""Numbers as people read them: the same way on pages, in charts, tables and words; and how they are read in files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

WRITTEN = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""How programs write numbers. Python's own reading takes more: digits of every script, ``1_0``."""
_WRITTEN = re.compile(WRITTEN)
DIGITS = 3
"""Significant digits of what is shown without interval."""
DIGITS_WITH_INTERVAL = 2
"""Of what is shown with one, which says how little the next digit would mean."""
_ENDS = ("value", "low", "high")
_UNBOUNDED = {"value": math.inf, "low": -math.inf, "high": math.inf}
EXACT = 1e7
"""Whole numbers below are shown whole: counts, bytes, nodes."""
LARGEST = 1e12
"""From here on a power of ten is easier to read."""


def read_number(text: str) -> float:
    """The number that is `WRITTEN`; not a number where it is none."""
    return float(text) if _WRITTEN.fullmatch(text) else math.nan


def number(value: float | None, digits: int = DIGITS) -> str:
    """``1.83``, ``0.0124``, ``12,300``, ``4,194,304``, ``2.5e-07``; ``∞`` where unbounded, ``not known`` if none."""
    if value is None or math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    whole = value == int(value) and abs(value) < EXACT
    rounded = value if whole else float(f"{value:.{digits}g}")
    if 1e4 <= abs(rounded) < LARGEST:
        return f"{rounded:,.0f}"
    large = 10**digits <= abs(rounded) < 1e4
    return f"{rounded:.0f}" if whole or large else f"{rounded:.{digits}g}"


def interval(estimate: Mapping[str, float | None] | None, scale: float = 1.0, unit: str = "") -> str:
    """``1.8 s (1.7–2.0)`` of ``value``, ``low`` and ``high`` times `scale`; an end that is None is unbounded."""
    if estimate is None:
        return "not known"
    ends = [_UNBOUNDED[name] if estimate[name] is None else float(estimate[name] or 0) * scale for name in _ENDS]
    whole = all(end == int(end) for end in ends if math.isfinite(end))
    value, low, high = (number(end) if whole else _rounded(end) for end in ends)
    return f"{value}{unit} ({low}{' to ' if low[0] in '-−' else '–'}{high})"


def _rounded(value: float) -> str:
    """To `DIGITS_WITH_INTERVAL`, zeros at the end included: so that both ends of an interval look alike."""
    # 99.97 has three digits once it is rounded.
    rounded = float(f"{value:.{DIGITS_WITH_INTERVAL}g}")
    if not math.isfinite(value) or not 1e-4 <= abs(rounded) < 10**DIGITS_WITH_INTERVAL:
        return number(value, DIGITS_WITH_INTERVAL)
    return f"{value:#.{DIGITS_WITH_INTERVAL}g}".rstrip(".")
