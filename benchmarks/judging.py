"""What planted answers are judged by: how often an interval holds the truth, and how often a verdict is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import get_context

import numpy as np
from paired import Figure

from stallpoint.base.statistics import estimate

COVERAGE = "0.85-0.95"
Study = Callable[[], Iterator[Figure]]
"""Planted answers of one case, judged: a program runs those of several cases at once."""
_SURE = 1.645
"""Standard errors on each side of a 90 % interval."""


def at_once(studies: Sequence[Study]) -> Iterator[list[Figure]]:
    """Yield the figures of each study in their order; as many are under way as there are cores."""
    _studies[:] = studies
    with get_context("fork").Pool() as pool:
        yield from pool.imap(_figures, range(len(studies)))


_studies: list[Study] = []
"""What forked processes find by its place."""


def _figures(place: int) -> list[Figure]:
    return list(_studies[place]())


def holds(ensemble: np.ndarray, truth: float) -> bool:
    """Whether the 90 % interval of `ensemble` [1 + REPLICATES] holds `truth`."""
    _, low, high = estimate(ensemble)
    return low <= truth <= high


def shares(case: str, found: Mapping[str, Sequence[bool]], wanted: Mapping[str, str], studies: int) -> Iterator[Figure]:
    """The share of each quantity's answers that are true, in so many independent `studies`."""
    for quantity, answers in found.items():
        share = float(np.mean(answers))
        error = _SURE * np.sqrt(share * (1 - share) / studies)
        ends = max(0.0, share - error), min(1.0, share + error)
        yield Figure("truth", case, quantity, share, *ends, wanted.get(quantity, ""))
