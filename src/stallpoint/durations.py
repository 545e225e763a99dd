"""Durations as readers say them."""

from __future__ import annotations

import re


def in_words(seconds: float) -> str:
    """``0.8 s``, ``42 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def in_seconds(words: str) -> float | None:
    """The duration that `in_words` has said; None where the words say none.

    >>> in_seconds("3 min 20 s"), in_seconds("a while")
    (200.0, None)
    """
    parts = re.findall(r"([0-9.]+) (h|min|s)\b", words)
    return sum(float(number) * {"h": 3600, "min": 60, "s": 1}[unit] for number, unit in parts) if parts else None
