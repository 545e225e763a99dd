"""Scatter between placements and jobs, which visits to a cell within one job do not show.

If all visits to a cell ran on the nodes of one job, the cell is known only on these nodes. Its interval then includes
the scatter between placements. The scatter is estimated from cells that do the same in several placements (A/A
controls, repeats). Without such cells it is a prior.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import pandas as pd

from stallpoint.base.measured import Measured, Parts, Point
from stallpoint.base.priors import PLACEMENT
from stallpoint.base.statistics import MAX_DEVIATION, REPLICATES, Reals, generator, groups, is_duration

JobPlacement: TypeAlias = tuple[str, frozenset[str]]
"""Job and nodes of a cell."""


@dataclass(frozen=True)
class PlacementScatter:
    """Placements of cells, and the scatter between placements."""

    of_cells: Mapping[str, JobPlacement]
    """Cells that ran in jobs of a scheduler, which chose among several nodes."""
    deviation: float
    """Standard deviation of the logarithm of a time."""
    freedom: float

    @classmethod
    def of(cls, environments: pd.DataFrame, points: Sequence[Measured]) -> PlacementScatter:
        """Estimate the scatter from `points` that do the same in several placements."""
        found: dict[str, JobPlacement] = {}
        of_cells = {cell: one.point.hardware for one in points for cell in one.cells}
        rows = environments[environments["cell"].isin(of_cells)]
        node_counts = rows.groupby(rows["cell"].map(of_cells))["node"].nunique()
        for cell, cell_rows in groups(rows, "cell"):
            if node_counts[of_cells[cell]] > 1 and (job := str(cell_rows["slurm_job_id"].iloc[0])):
                found[cell] = (job, frozenset(cell_rows["node"]))
        squares, freedom = PLACEMENT.freedom * PLACEMENT.deviation**2, PLACEMENT.freedom
        for equal_group in _equal_points(points):
            logs: dict[JobPlacement, list[float]] = {}
            noise = []
            for one in equal_group:
                noise.append(_log_variance(one) * max(1, len(one.cells)))
                for cell, seconds in zip(one.cells, one.of_cells, strict=False):
                    if cell in found and seconds > 0:
                        logs.setdefault(found[cell], []).append(float(np.log(seconds)))
            means = np.array([np.mean(values) for values in logs.values()])
            if len(means) > 1:
                visit_variance = float(np.mean(noise)) if len(equal_group) > 1 else 0.0
                squares += max(float(((means - means.mean()) ** 2).sum()) - (len(means) - 1) * visit_variance, 0.0)
                freedom += len(means) - 1
        return cls(found, float(np.sqrt(squares / freedom)), freedom)

    @property
    def is_estimated(self) -> bool:
        """Whether the scatter was estimated from equal cells in several placements; else it is the prior's."""
        return self.freedom > PLACEMENT.freedom

    def widened_point(self, one: Measured) -> Measured:
        """Return a point with a wider interval: it includes scatter between placements that visits do not show."""
        jobs = {self.of_cells[cell] for cell in one.cells if cell in self.of_cells}
        if not jobs or not is_duration(one.parts.iteration_time):
            return one
        missing_variance = self.deviation**2 / len(jobs)
        if len(jobs) > 1:
            missing_variance = max(missing_variance - _log_variance(one), 0.0)
        draws = np.mean([self._draws(at) for at in jobs], axis=0) * len(jobs) ** 0.5
        logs = np.sqrt(missing_variance) * np.clip(draws, -9, 9)
        factor = np.exp(np.clip(np.append(0.0, logs), -MAX_DEVIATION, MAX_DEVIATION))
        parts = Parts(**{of.name: getattr(one.parts, of.name) * factor for of in fields(Parts)})
        return replace(one, parts=parts, placements=len(jobs))

    def _draws(self, at: JobPlacement) -> Reals:
        """Return draws of a placement's deviation; half of its variance is the job's, the other half the nodes'."""
        job, nodes = (generator(0, "placement", key).standard_normal(REPLICATES) for key in (at[0], sorted(at[1])))
        tails = generator(0, "placement", *map(str, at)).chisquare(self.freedom, REPLICATES)
        return np.asarray((job + nodes) * np.sqrt(0.5 * self.freedom / tails))


def _log_variance(one: Measured) -> float:
    """Return the variance of a point's logarithmic time, from its 90 % interval, as replicates have heavy tails."""
    low, high = np.log(np.quantile(one.parts.iteration_time[1:], (0.05, 0.95)))
    return float((high - low) / (2 * NormalDist().inv_cdf(0.95))) ** 2


def _equal_points(points: Iterable[Measured]) -> Iterable[list[Measured]]:
    """Return groups of points that do the same. On one worker all presets do so; each other point is its own group."""
    found: dict[object, list[Measured]] = {}
    for one in points:
        at: Point = one.point
        one_worker_key = (at.network, at.hardware, at.storage, at.prefetch, at.worker_batch)
        found.setdefault(one_worker_key if at.ranks == 1 else at, []).append(one)
    return found.values()
