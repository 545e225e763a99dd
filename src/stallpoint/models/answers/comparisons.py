"""Comparisons of measured points that differ in one choice only: preset, storage or prefetch.

The two points were measured by different jobs, so their replicates are independent. The ratio is taken within each
replicate, which is narrower than dividing one interval by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

import numpy as np

from stallpoint.base.measured import Measured
from stallpoint.base.statistics import columns
from stallpoint.models.answers.fitted import Question
from stallpoint.records.tables import COMPARISONS

AXES = ("storage", "sync", "prefetch")


def table(points: Sequence[Measured]) -> list[dict[str, object]]:
    """Rows of the comparisons table: every ordered pair of points that differ in exactly one of `AXES`."""
    return [row for axis in AXES for group in _equal_but_for(points, axis) for row in _rows(axis, group)]


def _equal_but_for(points: Iterable[Measured], axis: str) -> Iterable[list[Measured]]:
    """Group points that agree in everything except `axis`."""
    found: dict[tuple[str | int, ...], list[Measured]] = {}
    for measured in points:
        others = tuple(value for name, value in vars(measured.point).items() if name != axis)
        found.setdefault(others, []).append(measured)
    return found.values()


def _rows(axis: str, group: Iterable[Measured]) -> Iterator[dict[str, object]]:
    for measured, other in permutations(group, 2):
        with np.errstate(divide="ignore", invalid="ignore"):
            throughput = other.parts.iteration_time / measured.parts.iteration_time
            exposed = measured.parts.exposed_communication / other.parts.exposed_communication
        single = measured.point.ranks == 1
        yield {
            **measured.point.labels(),
            "axis": axis,
            "against": str(getattr(other.point, axis)),
            **columns("throughput", throughput),
            **columns("exposed", np.full_like(exposed, np.nan) if single else exposed),
        }


QUESTIONS = (Question(COMPARISONS, lambda fitted: table(fitted.communicating)),)
