"""Formatting of numbers, durations, lists and progress for people, and reading of numbers."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate

NUMBER_PATTERN = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""Pattern of numbers as programs write them. Python's `float` accepts more: digits of any script, ``1_0``."""
_WHOLE_NUMBER = re.compile(NUMBER_PATTERN)
DIGITS = 3
"""Significant digits of a value that has no interval."""
DIGITS_WITH_INTERVAL = 2
"""Significant digits of a value that has an interval: further digits would be noise."""
NEGLIGIBLE = 1e-4
"""Fraction of an interval's width below which the value or an end of the interval is printed as 0."""
_UNBOUNDED_ENDS = (math.inf, -math.inf, math.inf)
"""Values that replace an unknown value, and unknown ends of its interval."""
EXACT_LIMIT = 1e7
"""Integers (counts, bytes, nodes) below this limit are shown with all digits."""
SCIENTIFIC_LIMIT = 1e12
"""Numbers from this limit on are shown with powers of ten."""


def read_number(text: str) -> float:
    """Return the number if `text` is nothing but a number (`NUMBER_PATTERN`); NaN for other texts."""
    return float(text) if _WHOLE_NUMBER.fullmatch(text) else math.nan


def number(value: float | None, digits: int = DIGITS) -> str:
    """Return a number as ``1.83``, ``12,300``, ``4,194,304`` or ``2.5e-07``, or ``not known`` for None and NaN."""
    if value is None or math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    is_integral = value == int(value) and abs(value) < EXACT_LIMIT
    rounded_value = value if is_integral else float(f"{value:.{digits}g}")
    if 1e4 <= abs(rounded_value) < SCIENTIFIC_LIMIT:
        return f"{rounded_value:,.0f}"
    needs_no_point = 10**digits <= abs(rounded_value) < 1e4
    return f"{rounded_value:.0f}" if is_integral or needs_no_point else f"{rounded_value:.{digits}g}"


def interval(estimate: Sequence[float] | None, scale: float = 1.0, unit: str = "") -> str:
    """Return an estimate with the ends of its interval, such as ``1.8 s (1.7–2.0)``; a NaN end is unbounded.

    All three are multiplied by `scale`. Less than `NEGLIGIBLE` times the interval's width is written as 0.
    """
    if estimate is None:
        return "not known"
    ends = [other if math.isnan(end) else end * scale for end, other in zip(estimate, _UNBOUNDED_ENDS, strict=True)]
    if math.isfinite(width := ends[2] - ends[1]):
        ends = [0.0 if abs(end) < NEGLIGIBLE * width else end for end in ends]
    is_integral = all(end == int(end) for end in ends if math.isfinite(end))
    value, low, high = (number(end) if is_integral else _rounded_number(end) for end in ends)
    return f"{value}{unit} ({low}{' to ' if low[0] in '-−' else '–'}{high})"


def _rounded_number(value: float) -> str:
    """Return a number with `DIGITS_WITH_INTERVAL` significant digits, final zeros included."""
    # Rounding may add a digit: 99.97 becomes 100.
    rounded_value = float(f"{value:.{DIGITS_WITH_INTERVAL}g}")
    if not math.isfinite(value) or not 1e-4 <= abs(rounded_value) < 10**DIGITS_WITH_INTERVAL:
        return number(value, DIGITS_WITH_INTERVAL)
    return f"{value:#.{DIGITS_WITH_INTERVAL}g}".rstrip(".")


def in_words(seconds: float) -> str:
    """Return a duration in words: ``0.8 s``, ``42 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left} s"
    return f"{minutes // 60} h {minutes % 60} min"


def in_round_words(seconds: float) -> str:
    """Return an expected duration in words, with few digits: ``40 s``, ``3 min``, ``2 h 5 min``."""
    if seconds < 55:
        return f"{max(5, 5 * round(seconds / 5))} s"
    total_minutes = round(seconds / 60)
    return f"{total_minutes} min" if total_minutes < 60 else f"{total_minutes // 60} h {total_minutes % 60} min"


def in_seconds(words: str) -> float | None:
    """Return the duration that `in_words` wrote, s; None for other words.

    >>> in_seconds("3 min 20 s"), in_seconds("a while")
    (200.0, None)
    """
    parts = re.findall(r"([0-9.]+) (h|min|s)\b", words)
    return sum(float(number) * {"h": 3600, "min": 60, "s": 1}[unit] for number, unit in parts) if parts else None


def sort_key(text: str) -> list[str | int]:
    """Return a sort key by which ``B = 64`` comes before ``B = 256``."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", text)]


def listed(texts: Sequence[str]) -> str:
    """Return texts as a list in words: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else ""


_MARKUP = re.compile(r"[\\`*|]|(?<=\])\(|~(?=~)|(?<![^\W_])_|_(?![^\W_])|^(?:\[|>|#+(?=\s|$)|[+-](?=[\s+-]|$))")
"""Characters that start code, emphasis, a table's cell or the target of a link (``_`` inside a word starts none), and,
at the begin of a line, a heading, a quotation, a list or a definition."""
_LIST_NUMBER = re.compile(r"^(\d{1,9})(?=[.)](?:\s|$))")
_HTML_START = re.compile(r"<(?=\S)|&(?=[#\w]+;)")


def quote(text: str) -> str:
    """Return `text` on one line, escaped so that Markdown shows all characters literally."""
    line = _MARKUP.sub(lambda found: f"\\{found[0]}", for_terminal(" ".join(text.split())))
    return _HTML_START.sub(lambda found: {"<": "&lt;", "&": "&amp;"}[found[0]], _LIST_NUMBER.sub(r"\1\\", line))


CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Pattern of characters that a terminal obeys: control characters except tab and line end, and marks of direction."""


_CONTROL_CHARACTERS = re.compile(CONTROLS)


def for_terminal(text: str) -> str:
    """Return `text` with U+FFFD in place of each character that would control a terminal."""
    return _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text)


PROGRESS_INTERVAL = 10.0
"""Shortest time between two lines of progress, s."""


class Progress:
    """Report of a loop's progress: after the first step, at intervals, and after the last step.

    `work` has the relative cost of each step (bytes, operations, or 1), from which the remaining time is estimated. If
    `silent` is True, as on all ranks but one, nothing is reported. A call without a report costs a subtraction.
    """

    def __init__(
        self, what: str, work: Sequence[float], *, silent: bool = False, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._done = [0.0, *accumulate(work)]
        self._silent = silent
        self._now = now
        self._begun = now()
        self._last = -math.inf

    def tell(self, steps: int) -> None:
        """Report that the first `steps` steps are done, unless the last report is less than `PROGRESS_INTERVAL` old."""
        now = self._now()
        step_count = len(self._done) - 1
        if self._silent or (now - self._last < PROGRESS_INTERVAL and steps < step_count):
            return
        self._last = now
        seconds = now - self._begun
        remaining_seconds = seconds * (self._done[-1] / self._done[steps] - 1)
        estimate = f", about {in_words(remaining_seconds)} left" if steps < step_count else ""
        print(f"{self._what} {steps}/{step_count} after {in_words(seconds)}{estimate}", file=sys.stderr, flush=True)
