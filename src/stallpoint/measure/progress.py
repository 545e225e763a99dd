"""Lines in a job's log that say how far it is and how long it will still take."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate

from stallpoint.durations import in_words

INTERVAL = 10.0
"""Least time between two lines, s."""


class Progress:
    """Tells of a loop of steps: after the first one, now and then, and after the last.

    `work` is what each step is expected to take beside the others (bytes, operations, or ones): the time left follows
    from that of the steps done. `silent` ranks say nothing. Telling costs a subtraction while there is nothing to say.
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
        """So many steps are done."""
        now = self._now()
        everything = len(self._done) - 1
        if self._silent or (now - self._last < INTERVAL and steps < everything):
            return
        self._last = now
        passed = now - self._begun
        left = passed * (self._done[-1] / self._done[steps] - 1)
        rest = f", about {in_words(left)} left" if steps < everything else ""
        print(f"{self._what} {steps}/{everything} after {in_words(passed)}{rest}", file=sys.stderr, flush=True)
