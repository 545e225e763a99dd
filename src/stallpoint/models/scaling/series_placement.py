"""Placements of a scaling series, and the rate of each worker there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.base.curve import SHARED
from stallpoint.base.statistics import Reals

PLACEMENT = ["workers", "workers_per_node", "batch_per_worker"]
MAX_PLACEMENTS = 96
"""Placements of a fit: a longer series is thinned, evenly by the logarithm of the workers."""

SIGMA_PRIOR = {0.003: 0.2, 0.008: 0.25, 0.02: 0.25, 0.05: 0.2, 0.12: 0.1}
"""Prior probability of each relative noise of one measurement.

On dedicated machines, means over many iterations repeat within a per cent; on shared ones, visits are 1 to 10 % apart.
Repeats of a placement show the kind of machine.
"""
TAU_PRIOR = {0.003: 0.4, 0.01: 0.3, 0.03: 0.2, 0.1: 0.08, 0.3: 0.02}
"""Prior probability of each drift per doubling: usually small, at times a wall (another switch, a full bus)."""


def noise_grid() -> dict[tuple[float, float], float]:
    """Return the probability of each pair of a noise level, sigma, and a drift, tau."""
    return {(sigma, tau): p * q for (sigma, p), (tau, q) in product(SIGMA_PRIOR.items(), TAU_PRIOR.items())}


@dataclass(frozen=True)
class Placements:
    """Measured or wanted placements, one entry for each; NaN where unknown."""

    workers: Reals
    nodes: Reals
    batch: Reals
    """Samples in one worker's mini-batch."""

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Placements:
        """Return the placements of rows with the columns `PLACEMENT`.

        A node that is not full counts as a node: 12 workers at 8 per node are on 2 nodes. Workers per node may be a
        mean over unequal nodes (7 workers on 6 nodes: 1.17), so nodes are rounded to a decimal, then up.
        """
        workers = frame["workers"].to_numpy(np.float64)
        nodes = np.ceil(np.round(workers / frame["workers_per_node"].to_numpy(np.float64), 1))
        return cls(workers, np.clip(nodes, 1, workers), frame["batch_per_worker"].to_numpy(np.float64))

    def __len__(self) -> int:
        return len(self.workers)

    @property
    def across_nodes(self) -> bool:
        """Return whether some placements have several nodes, and others several workers on a node."""
        known = bool(np.isfinite(self.nodes).all())
        return known and len(set(self.nodes)) > 1 and bool((self.nodes != self.workers).any())

    def at(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Placements:
        """Return the placements of the chosen rows."""
        return Placements(self.workers[rows], self.nodes[rows], self.batch[rows])

    def followed_by(self, other: Placements) -> Placements:
        """Return these placements, followed by those of `other`."""
        return Placements(
            np.concatenate([self.workers, other.workers]),
            np.concatenate([self.nodes, other.nodes]),
            np.concatenate([self.batch, other.batch]),
        )


@dataclass(frozen=True)
class Series:
    """A measured scaling series, sorted by workers; repeats of a placement are one entry."""

    places: Placements
    log_rate: Reals
    """Log samples per second of one worker, over that at the first placement; the median over repeats.

    Rounded, so that rates in another unit are the same series to the last bit.
    """
    noise: Reals
    """Variance of the noise at each placement, in units of the square of its level."""
    repeats: Reals
    squares: Reals
    """Sum of squared deviations of the repeats' logarithms from their mean."""
    level: float
    """Log samples per second of one worker at the first placement."""

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Series:
        """Return the series of rows with the columns `PLACEMENT` and ``samples_per_second``, in any order."""
        rates = frame[PLACEMENT].assign(rate=np.log(frame["samples_per_second"] / frame["workers"]))
        found = (
            rates.groupby(PLACEMENT, dropna=False)["rate"]
            .agg(median="median", size="size", squares=_sum_of_squares)
            .reset_index()
        )
        if len(found) > MAX_PLACEMENTS:
            found = _thinned_placements(found)
        rate = found["median"].to_numpy(np.float64)
        relative_log_rates = np.round(rate - rate[0], 9)
        repeats, squares = (found[name].to_numpy(np.float64) for name in ("size", "squares"))
        noise = SHARED + (1 - SHARED) / repeats
        return cls(Placements.of(found), relative_log_rates, noise, repeats, squares, float(rate[0]))

    def __len__(self) -> int:
        return len(self.log_rate)

    @property
    def counts(self) -> list[int]:
        """Return the distinct worker counts, rising."""
        return [int(count) for count in np.unique(self.places.workers)]

    def up_to_workers(self, workers: float) -> Series:
        """Return the part of the series with at most this number of `workers`."""
        rows = self.places.workers <= workers
        columns_of_rows = {name: getattr(self, name)[rows] for name in ("log_rate", "noise", "repeats", "squares")}
        return replace(self, places=self.places.at(rows), **columns_of_rows)


def _sum_of_squares(rates: pd.Series[float]) -> float:
    # The sum is rounded like `Series.log_rate`, so that rates in another unit give the same bits.
    return round(float(((rates - rates.mean()) ** 2).sum()), 12)


def _thinned_placements(found: pd.DataFrame) -> pd.DataFrame:
    """Return at most `MAX_PLACEMENTS` rows: of neighbours on a logarithmic axis of workers, the row of median rate."""
    steps = np.log(found["workers"].to_numpy(np.float64))
    share = (steps - steps[0]) / max(steps[-1] - steps[0], 1e-9)
    neighbour_groups = pd.Series(np.floor(share * (MAX_PLACEMENTS - 1)), index=found.index)
    ranks = found["median"].groupby(neighbour_groups).rank(method="first")
    middle_rank = (ranks.groupby(neighbour_groups).transform("size") + 1) // 2
    repeats = found["size"].groupby(neighbour_groups).transform("sum")
    squares = found["squares"].groupby(neighbour_groups).transform("sum")
    return found.assign(size=repeats, squares=squares)[ranks == middle_rank]
