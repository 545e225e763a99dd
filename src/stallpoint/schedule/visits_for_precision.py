"""How many visits a wanted precision is expected to take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from stallpoint.schedule.next_visit import FEWEST, MOST, series_of
from stallpoint.study.cells import Cell

NOISE = {"own nodes": (0.03, 0.08), "shared": (0.08, 0.2)}
"""How far visits to one cell differ where nothing is known of it, and how far they may: standard deviation of the
logarithm of their median iteration times. On nodes that a job has for itself, and where workers share one machine."""


def visits(noise: float | None, least: int, precision: float, *, shared: bool = False) -> tuple[int, int]:
    """Visits that each cell of a speedup is expected to get and may get, of `least` ones; `noise`: see `NOISE`."""
    typical, high = NOISE["shared" if shared else "own nodes"] if noise is None else (noise, 1.5 * noise)
    return wanted(typical, least, precision), wanted(high, least, precision)


def wanted(noise: float, least: int, precision: float) -> int:
    """Visits to each of two cells until the 90 % interval of their speedup is narrow enough; `MOST` times at most.

    It has to be so without the last visit to one of them, too (`Speedup.steady`).
    """
    most = MOST * least
    for count in range(max(FEWEST + 1, least), most):
        ends = (_student(visits - 1) * noise / math.sqrt(visits) for visits in (count, count - 1))
        if math.expm1(math.hypot(*ends)) <= precision:
            return count
    return most


def _student(freedom: int) -> float:
    """Quantile 0.95 of Student's t to within 0.3 % from 3 degrees of freedom on (Cornish and Fisher's expansion).

    Not scipy's, which takes longer to load than a plan takes to make.
    """
    z = NormalDist().inv_cdf(0.95)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def compared(cells: Iterable[Cell]) -> set[str]:
    """Paths of the cells that a speedup is made of."""
    curves: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        if key := series_of(cell):
            curves.setdefault(key, []).append(cell)
    return {cell.path for curve in curves.values() if len(curve) > 1 for cell in curve}
