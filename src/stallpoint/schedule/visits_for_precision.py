"""Number of visits that a wanted precision is expected to need."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from stallpoint.schedule.next_visit import FEWEST, MAX_FACTOR, series_of
from stallpoint.study.cells import Cell

NOISE = {"own nodes": (0.03, 0.08), "shared": (0.08, 0.2)}
"""Typical and high standard deviation of the logarithm of visits' median iteration times, before any is measured: on
nodes that a job has for itself, and where workers share one machine."""


def visits(noise: float | None, least: int, precision: float, *, shared: bool = False) -> tuple[int, int]:
    """Return the typical and the high number of visits to each cell of a speedup, from `least` on; `noise`: `NOISE`."""
    typical, high = NOISE["shared" if shared else "own nodes"] if noise is None else (noise, 1.5 * noise)
    return wanted(typical, least, precision), wanted(high, least, precision)


def wanted(noise: float, least: int, precision: float) -> int:
    """Return the visits to each of two cells until their speedup's interval is narrow enough, up to a maximum.

    The 90 % interval has to be as narrow without the last visit to one of them (`Speedup.steady`). The maximum is
    `MAX_FACTOR` times `least`.
    """
    maximum = MAX_FACTOR * least
    for count in range(max(FEWEST + 1, least), maximum):
        ends = (_student(visits - 1) * noise / math.sqrt(visits) for visits in (count, count - 1))
        if math.expm1(math.hypot(*ends)) <= precision:
            return count
    return maximum


def _student(freedom: int) -> float:
    """Return the 0.95 quantile of Student's t, to within 0.3 % from 3 degrees of freedom on (Cornish-Fisher).

    Scipy has it too, but takes longer to load than a plan takes to make.
    """
    z = NormalDist().inv_cdf(0.95)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def compared(cells: Iterable[Cell]) -> set[str]:
    """Return the paths of the cells that belong to a speedup."""
    curves: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if key := series_of(cell):
            curves.setdefault(key, []).append(cell)
    return {cell.path for curve in curves.values() if len(curve) > 1 for cell in curve}
