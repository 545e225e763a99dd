"""Numbers as people read them: the same way on pages, in charts, tables and words."""

from __future__ import annotations

import math
from collections.abc import Mapping

DIGITS = 3
"""Significant digits of what is measured or computed."""
EXACT = 1e7
"""Whole numbers below are shown whole: counts, bytes, nodes."""
LARGEST = 1e12
"""From here on a power of ten is easier to read."""


def number(value: float | None) -> str:
    """``1.83``, ``0.0124``, ``12,300``, ``4,194,304``, ``2.5e-07``; ``∞`` where unbounded, ``not known`` if none."""
    if value is None or math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    whole = value == int(value) and abs(value) < EXACT
    rounded = value if whole else float(f"{value:.{DIGITS}g}")
    if 1e4 <= abs(rounded) < LARGEST:
        return f"{rounded:,.0f}"
    return f"{rounded:.0f}" if whole or 1e3 <= abs(rounded) < 1e4 else f"{rounded:.{DIGITS}g}"


def interval(estimate: Mapping[str, float | None] | None, scale: float = 1.0, unit: str = "") -> str:
    """``1.83 s [1.71, 1.95]`` of ``value``, ``low`` and ``high`` times `scale`; an end that is None is unbounded."""
    if estimate is None:
        return "not known"
    value, low, high = (
        "∞" if estimate[name] is None else number(float(estimate[name] or 0) * scale)
        for name in ("value", "low", "high")
    )
    return f"{value}{unit} [{low}, {high}]"
