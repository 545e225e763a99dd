"""Where a scaling series was run, and how fast each worker was there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.models.base.statistics import Reals

PLACE = ["workers", "workers_per_node", "batch_per_worker"]
MOST_PLACES = 96
"""Places that a fit looks at: a long series is thinned to so many, evenly by the logarithm of the workers."""

SIGMA = {0.003: 0.2, 0.008: 0.25, 0.02: 0.25, 0.05: 0.2, 0.12: 0.1}
"""Noise of one measurement (relative): probability. On machines of one's own means over many iterations repeat within a
per cent; visits to shared ones lie 1 to 10 % apart. Repeats of a place say which it is."""
TAU = {0.003: 0.4, 0.01: 0.3, 0.03: 0.2, 0.1: 0.08, 0.3: 0.02}
"""Drift for each doubling: probability. Usually small, at times a wall (another switch, a full bus)."""
SHARED = 0.5
"""Part of the noise's variance that repeats of a place share: they ran on the same machines in the same state."""


@dataclass(frozen=True)
class Places:
    """Where training was run or is to be predicted, one entry for each; what is not known is not a number."""

    workers: Reals
    nodes: Reals
    batch: Reals
    """Samples in one worker's mini-batch."""

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Places:
        """The places of rows with the columns `PLACE`.

        Nodes that are not full count as nodes: 12 workers at 8 per node are on 2. Workers per node may be a mean
        over unequal nodes (7 workers on 6 nodes: 1.17), so that the ratio is rounded before it is rounded up.
        """
        workers = frame["workers"].to_numpy(np.float64)
        nodes = np.ceil(np.round(workers / frame["workers_per_node"].to_numpy(np.float64), 1))
        return cls(workers, np.clip(nodes, 1, workers), frame["batch_per_worker"].to_numpy(np.float64))

    def __len__(self) -> int:
        return len(self.workers)

    @property
    def across_nodes(self) -> bool:
        """Whether some places have several nodes, and others several workers on a node."""
        known = bool(np.isfinite(self.nodes).all())
        return known and len(set(self.nodes)) > 1 and bool((self.nodes != self.workers).any())

    def at(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Places:
        """Some of the places."""
        return Places(self.workers[rows], self.nodes[rows], self.batch[rows])

    def then(self, other: Places) -> Places:
        """These places, followed by those of `other`."""
        return Places(
            np.concatenate([self.workers, other.workers]),
            np.concatenate([self.nodes, other.nodes]),
            np.concatenate([self.batch, other.batch]),
        )


@dataclass(frozen=True)
class Series:
    """One scaling series as measured, sorted by workers; repeats of a place are one entry."""

    places: Places
    log_rate: Reals
    """Logarithm of the samples per second of one worker, over that at the first place; the median over repeats.

    Rounded, so that rates in another unit are the same series to the last bit.
    """
    noise: Reals
    """Variance of the noise at each place, in units of the square of its level."""
    repeats: Reals
    squares: Reals
    """Sum of squared deviations of the repeats' logarithms from their mean."""
    level: float
    """Logarithm of the samples per second of one worker at the first place."""
    noise_levels: Mapping[float, float] = field(default_factory=lambda: SIGMA)
    """What the level of the noise may be: probability."""
    drifts: Mapping[float, float] = field(default_factory=lambda: TAU)
    """What the drift for each doubling may be: probability."""

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Series:
        """The series of rows with the columns `PLACE` and ``samples_per_second``, in whatever order."""
        rates = frame[PLACE].assign(rate=np.log(frame["samples_per_second"] / frame["workers"]))
        found = (
            rates.groupby(PLACE, dropna=False)["rate"].agg(median="median", size="size", squares=_squares).reset_index()
        )
        if len(found) > MOST_PLACES:
            found = _thinned(found)
        rate = found["median"].to_numpy(np.float64)
        relative = np.round(rate - rate[0], 9)
        repeats, squares = (found[name].to_numpy(np.float64) for name in ("size", "squares"))
        noise = SHARED + (1 - SHARED) / repeats
        return cls(Places.of(found), relative, noise, repeats, squares, float(rate[0]))

    def __len__(self) -> int:
        return len(self.log_rate)

    @property
    def counts(self) -> list[int]:
        """The different numbers of workers, rising."""
        return [int(count) for count in np.unique(self.places.workers)]

    def up_to(self, workers: float) -> Series:
        """The part with at most so many workers."""
        rows = self.places.workers <= workers
        of_rows = {name: getattr(self, name)[rows] for name in ("log_rate", "noise", "repeats", "squares")}
        return replace(self, places=self.places.at(rows), **of_rows)


def _squares(rates: pd.Series[float]) -> float:
    # Rounded, as rates are.
    return round(float(((rates - rates.mean()) ** 2).sum()), 12)


def _thinned(found: pd.DataFrame) -> pd.DataFrame:
    """At most `MOST_PLACES` of the rows: of neighbours on a logarithmic axis, the one with the median rate."""
    steps = np.log(found["workers"].to_numpy(np.float64))
    share = (steps - steps[0]) / max(steps[-1] - steps[0], 1e-9)
    neighbours = pd.Series(np.floor(share * (MOST_PLACES - 1)), index=found.index)
    ranks = found["median"].groupby(neighbours).rank(method="first")
    middle = (ranks.groupby(neighbours).transform("size") + 1) // 2
    repeats = found["size"].groupby(neighbours).transform("sum")
    squares = found["squares"].groupby(neighbours).transform("sum")
    return found.assign(size=repeats, squares=squares)[ranks == middle]
