"""Measured points beside others that differ in one choice alone: preset, storage or prefetch.

The two were measured by different jobs, so their replicates are drawn apart; the ratio is taken in each, which is
narrower than dividing one interval by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

import numpy as np

from stallpoint.models.answers.fitted import Question
from stallpoint.models.base.measured import Measured
from stallpoint.models.base.statistics import columns
from stallpoint.records.tables import COMPARISONS

AXES = ("storage", "sync", "prefetch")


def table(points: Sequence[Measured]) -> list[dict[str, object]]:
    """Rows of the comparisons table: for every two points that differ in one of `AXES` alone, one each way."""
    return [row for axis in AXES for alike in _alike(points, axis) for row in _rows(axis, alike)]


def _alike(points: Iterable[Measured], axis: str) -> Iterable[list[Measured]]:
    """Points that agree in everything but `axis`."""
    found: dict[tuple[str | int, ...], list[Measured]] = {}
    for measured in points:
        others = tuple(value for name, value in vars(measured.point).items() if name != axis)
        found.setdefault(others, []).append(measured)
    return found.values()


def _rows(axis: str, alike: Iterable[Measured]) -> Iterator[dict[str, object]]:
    for measured, other in permutations(alike, 2):
        with np.errstate(divide="ignore", invalid="ignore"):
            throughput = other.parts.iteration_time / measured.parts.iteration_time
            exposed = measured.parts.exposed_communication / other.parts.exposed_communication
        alone = measured.point.ranks == 1
        yield {
            **measured.point.labels(),
            "axis": axis,
            "against": str(getattr(other.point, axis)),
            **columns("throughput", throughput),
            **columns("exposed", np.full_like(exposed, np.nan) if alone else exposed),
        }


QUESTIONS = (Question(COMPARISONS, lambda fitted: table(fitted.communicating)),)
