"""Iteration time at n workers when all wait for the slowest: jitter and stragglers, from measured iterations.

A worker's own time (data, copy, forward, backward) is taken as mean of its rank + what slows all ranks of an
iteration + what is its own in this iteration. The variance common to all is the mean covariance between ranks over the
iterations (method of moments); with one rank nothing tells the two apart, and all counts as its own. An iteration takes
the largest own time of n workers and what follows for all of them (communication that is not hidden, update).

The maximum of k draws from m sorted values is drawn directly, as value number ceil(m · U^(1/k)) with U uniform, so that
10^6 workers cost as much as four. Nothing beyond the largest measured value is ever drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from stallpoint.errors import InputError
from stallpoint.models.measured import kept
from stallpoint.models.statistics import Reals, generator, groups

OWN = ("data_wait", "host_to_device", "forward", "backward")
"""Parts of an iteration that a worker spends without waiting for others."""
_SAME = ("network", "hardware", "worker_batch")


@dataclass(frozen=True)
class Distribution:
    """Iteration times, s, as drawn."""

    seconds: Reals
    workers: int

    @property
    def mean(self) -> float:
        """Mean, s."""
        return float(self.seconds.mean())

    def quantile(self, share: float | Reals) -> Reals:
        """The time that `share` of the iterations do not exceed, s."""
        return np.asarray(np.quantile(self.seconds, share))


def iteration_times(
    iterations: pd.DataFrame, workers: int, *, rest: float | None = None, samples: int = 10_000, seed: int = 0
) -> Distribution:
    """Distribution of the iteration time at `workers`, from rows of the iterations table of equal workers.

    `rest` (s) is what follows the slowest worker's own time at that number of workers, say exposed communication and
    update as predicted; unless given it is taken from the same iterations, as if it did not change. Each measured rank
    stands for as many workers as any other, up to one.
    """
    rows = kept(iterations)
    if workers < 1 or samples < 1:
        raise InputError(f"stragglers: {workers} workers, {samples} samples; at least one of each is needed")
    if rows.empty:
        raise InputError("stragglers: no measured iteration; rows that are not warm-up are needed")
    for name in _SAME:
        if rows[name].nunique() > 1:
            raise InputError(f"stragglers: rows of {rows[name].nunique()} values of {name}; those of one are needed")
    own = rows[list(OWN)].sum(axis=1, skipna=False)
    for name, values in (("iteration_time", rows["iteration_time"]), (" + ".join(OWN), own)):
        if not (values >= 0).all() or not np.isfinite(values).all():
            raise InputError(f"stragglers: {name}: a time that is negative or no number")
    if rest is not None and not 0 <= rest < np.inf:
        raise InputError(f"stragglers: rest of {rest} s; a number >= 0 is needed")
    blocks, followed = zip(*(_cell(cell) for _, cell in groups(rows.assign(own=own), "cell")), strict=True)
    after = np.concatenate(followed) if rest is None else None
    return Distribution(_drawn(blocks, after, rest or 0.0, workers, samples, seed), workers)


def expected_lead(values: Reals, workers: int) -> float:
    """Expected maximum of `workers` draws from `values`: value number j of m is it with (j^n - (j-1)^n) / m^n."""
    if not len(values):
        return 0.0
    places = np.arange(len(values) + 1) / len(values)
    return float(np.sort(values) @ np.diff(places**workers))


def _cell(rows: pd.DataFrame) -> tuple[Reals, Reals]:
    """Own times [iterations, ranks] of one cell, and what followed the slowest [iterations].

    Of a job that was cut short, iterations that some ranks did not record are left out.
    """
    own, whole = (
        rows.pivot_table(index="iteration", columns="rank", values=name, aggfunc="first").to_numpy()
        for name in ("own", "iteration_time")
    )
    complete = ~np.isnan(own).any(axis=1)
    if not complete.any():
        raise InputError(f"stragglers: cell {rows['cell'].iloc[0]}: no iteration that all ranks recorded")
    own, whole = own[complete], whole[complete]
    return own, np.maximum(whole.max(axis=1) - own.max(axis=1), 0.0)


def _drawn(blocks: Sequence[Reals], after: Reals | None, rest: float, workers: int, samples: int, seed: int) -> Reals:
    """`blocks` holds own times [iterations, ranks] of each cell, `after` what followed in all their iterations."""
    random = generator(seed, "stragglers", workers)
    common, own = zip(*map(_split, blocks), strict=True)
    ranks = [np.sort(values) for block in own for values in block.T]
    iteration = random.integers(sum(map(len, common)), size=samples)
    slowest = np.full(samples, -np.inf)
    shares = _shares(len(ranks), workers, samples, random)
    for values, share in zip(ranks, shares.T, strict=True):
        with np.errstate(divide="ignore"):
            place = np.ceil(len(values) * random.random(samples) ** (1 / share)).astype(np.int64) - 1
        drawn = values[np.clip(place, 0, len(values) - 1)]
        np.maximum(slowest, drawn, out=slowest, where=share > 0)
    seconds = np.maximum(slowest + np.concatenate(common)[iteration], 0.0)
    return np.asarray(seconds + (rest if after is None else after[iteration]))


def _shares(ranks: int, workers: int, samples: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """How many of the workers each measured rank stands for [samples, ranks]: equally many, the rest at random."""
    each, left = divmod(workers, ranks)
    chosen = np.argsort(random.random((samples, ranks)), axis=1).argsort(axis=1) < left
    return each + chosen.astype(np.int64)


def _split(block: Reals) -> tuple[Reals, Reals]:
    """What all ranks have in common [iterations], and each rank's mean and own deviations [iterations, ranks]."""
    count = block.shape[1]
    means = block.mean(axis=0)
    deviations = block - means
    together = deviations.mean(axis=1)
    if count < 2 or len(block) < 2 or not together.any():
        return np.zeros(len(block)), block
    variance = deviations.var(axis=0).mean()
    # Var(mean over ranks) = covariance + (variance - covariance) / ranks.
    covariance = max(0.0, (count * together.var() - variance) / (count - 1))
    common = together * np.sqrt(min(1.0, covariance / together.var()))
    own = deviations - common[:, None]
    spread = own.var(axis=0).mean()
    scale = np.sqrt((variance - covariance) / spread) if spread > 0 and variance > covariance else 1.0
    return common, means + own * scale
