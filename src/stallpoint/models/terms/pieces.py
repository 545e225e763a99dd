"""Time against message size as one straight line, or as several that join where the data ask for it.

Libraries change their algorithm with the message size, and messages outgrow caches, so one α + β·m may be far off.
The curve is α + Σ βₖ·(bytes of m that fall into piece k): continuous, and with α, βₖ ≥ 0 never falling. Breaks are at
measured sizes, found one after the other; how many there are is decided on sizes left out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from stallpoint.models.base.statistics import Ensemble, Reals, non_negative_fit

MOST_PIECES = 6
"""Pieces at most, and never more than half as many as there are sizes."""
WORTH = 1.25
"""Pieces are added only where the error at left-out sizes is this many times larger without them."""


@dataclass(frozen=True)
class Samples:
    """Seconds at message sizes, and what the latency and the bandwidth term are multiplied with there."""

    sizes: Reals
    """Bytes, [points]."""
    latency: Reals
    bandwidth: Reals
    seconds: Ensemble
    """[1 + REPLICATES, points], above 0."""

    def where(self, chosen: npt.NDArray[np.bool_]) -> Samples:
        """The chosen points."""
        return Samples(self.sizes[chosen], self.latency[chosen], self.bandwidth[chosen], self.seconds[:, chosen])


@dataclass(frozen=True)
class PiecewiseLine:
    """Seconds = latency·α + bandwidth·Σ βₖ·(bytes in piece k)."""

    starts: Reals
    """Where each piece begins, bytes, rising from 0, [pieces]."""
    alpha: Ensemble
    """[1 + REPLICATES]; not a number where the samples do not tell it from β."""
    betas: Ensemble
    """Seconds for each byte, [1 + REPLICATES, pieces]."""
    floor: Ensemble | float = 0.0
    """Seconds that every message takes at least, [1 + REPLICATES]; what it adds is latency."""
    constant: Ensemble | float = 0.0
    """Seconds of latency, whatever it is multiplied with, [1 + REPLICATES]."""

    def __call__(self, sizes: npt.ArrayLike, latency: npt.ArrayLike, bandwidth: npt.ArrayLike) -> Ensemble:
        """Seconds for `sizes` bytes [...], [1 + REPLICATES, ...]; the factors are numbers or of the same shape."""
        of_latency, of_bandwidth = self.parts(sizes, latency, bandwidth)
        return of_latency + of_bandwidth

    def parts(
        self, sizes: npt.ArrayLike, latency: npt.ArrayLike, bandwidth: npt.ArrayLike
    ) -> tuple[Ensemble, Ensemble]:
        """The seconds that are latency, and those that are bandwidth."""
        inside = portions(self.starts, np.asarray(sizes, dtype=np.float64))
        alpha, floor, constant = (
            np.reshape(seconds, (-1, *([1] * (inside.ndim - 1)))) for seconds in (self.alpha, self.floor, self.constant)
        )
        carried = np.asarray(bandwidth) * np.tensordot(self.betas, inside, axes=(1, -1))
        of_latency = np.broadcast_to(constant + alpha * np.asarray(latency), carried.shape)
        return np.maximum(of_latency, floor - carried), carried


def portions(starts: Reals, sizes: Reals) -> Reals:
    """Bytes of each of `sizes` [...] that fall into each piece, [..., pieces]."""
    ends = np.array([*starts[1:], np.inf])
    return np.asarray(np.minimum(np.maximum(sizes[..., None], starts), ends) - starts)


def fit(samples: Samples) -> PiecewiseLine:
    """As many pieces as predict left-out sizes best; the simpler curve where the difference may be chance."""
    return curve(samples, breaks(samples))


def breaks(samples: Samples) -> Reals:
    """Where the pieces of `fit` begin, bytes."""
    starts = np.zeros(1)
    for more in range(2, _count(samples) + 1):
        starts = _more_breaks(typical(samples), starts, more)
    return starts


def residual(curve: PiecewiseLine, samples: Samples) -> float:
    """Median of \\|fit - measured\\| / measured."""
    fitted = curve(samples.sizes, samples.latency, samples.bandwidth)[0]
    return float(np.median(np.abs(fitted / samples.seconds[0] - 1)))


def _count(samples: Samples) -> int:
    """Number of pieces, by leaving out one size after the other.

    The fewest whose error is within one standard error (paired by size) of the best, or no more than `WORTH` times it.
    """
    sizes = np.unique(samples.sizes)
    most = _most(samples)
    if most < 2:
        return 1
    errors = np.array([_left_out_errors(samples, size, most) for size in sizes])
    best = int(errors.mean(0).argmin())
    worse = errors - errors[:, [best]]
    standard_error = worse.std(0, ddof=1) / np.sqrt(len(sizes))
    allowed = np.maximum(standard_error, (WORTH - 1) * errors[:, best].mean())
    return int(np.argmax(worse.mean(0) <= allowed)) + 1


def _most(samples: Samples) -> int:
    return min(MOST_PIECES, (len(np.unique(samples.sizes)) - 1) // 2)


def _left_out_errors(samples: Samples, size: float, most: int) -> list[float]:
    """Mean \\|log(predicted / measured)\\| at a size that was left out, for 1, 2, ... pieces."""
    out = samples.sizes == size
    known, asked = typical(samples.where(~out)), typical(samples.where(out))
    errors = []
    starts = np.zeros(1)
    for count in range(1, most + 1):
        starts = _more_breaks(known, starts, count)
        predicted = curve(known, starts)(asked.sizes, asked.latency, asked.bandwidth)[0]
        with np.errstate(divide="ignore"):
            errors.append(float(np.abs(np.log(predicted / asked.seconds[0])).clip(max=10).mean()))
    return errors


def _more_breaks(samples: Samples, starts: Reals, count: int) -> Reals:
    """`starts` with the break added that lowers the misfit most, then each break moved where it does better."""
    if len(starts) == count:
        return starts
    free = np.unique(samples.sizes)[1:-1]

    def best(kept: Reals) -> Reals:
        options = [np.sort(np.append(kept, size)) for size in free if size not in kept]
        return min(options, key=lambda option: _misfit(samples, option), default=starts)

    found = best(starts)
    for start in found[1:]:
        found = best(found[found != start])
    return found


def typical(samples: Samples) -> Samples:
    """The samples without their replicates."""
    return Samples(samples.sizes, samples.latency, samples.bandwidth, samples.seconds[:1])


def _misfit(samples: Samples, starts: Reals) -> float:
    """Root of the sum of squared relative errors."""
    return _non_negative(*_relative(_design(samples, starts), samples.seconds[0]))[1]


def _non_negative(design: Reals, observed: Reals) -> tuple[Reals, float]:
    """Non-negative least squares: coefficients, and the norm of what is left.

    In units of each column's largest entry: of columns many orders of magnitude apart the solver may take one in and
    out for ever where another fits as well.
    """
    largest = design.max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)  # a piece that none of the sizes reaches has no bytes
    found, left = nnls(design / scale, observed)
    return found / scale, float(left)


def _design(samples: Samples, starts: Reals) -> Reals:
    return np.column_stack([samples.latency, samples.bandwidth[:, None] * portions(starts, samples.sizes)])


def _relative(design: Reals, seconds: Reals) -> tuple[Reals, Reals]:
    """Design and right-hand side of the fit in relative errors, of one replicate's `seconds`."""
    return design / seconds[:, None], np.ones(len(seconds))


def curve(samples: Samples, starts: Reals, *, constant: bool = False) -> PiecewiseLine:
    """The fit with these pieces, in relative errors; by `non_negative_fit` where a line is all there can be.

    So few sizes cannot show that they need pieces, and relative errors might give up the largest for the rest. With a
    `constant` beside them, which several node counts tell from the latency.
    """
    design = _design(samples, starts)
    if constant:
        design = np.column_stack([design, np.ones(len(design))])
    if np.linalg.matrix_rank(design / np.abs(design).max(axis=0).clip(min=1e-300)) < design.shape[1]:
        unknown = np.full((len(samples.seconds), design.shape[1]), np.nan)
        return PiecewiseLine(starts, unknown[:, 0], unknown[:, 1 : 1 + len(starts)])
    if constant:
        relative = design / samples.seconds[..., None]
        found = np.array([_non_negative(each, np.ones(len(each)))[0] for each in relative])
        return PiecewiseLine(starts, found[:, 0], found[:, 1:-1], constant=found[:, -1])
    if len(starts) == 1 and _most(samples) < 2:
        found = non_negative_fit(design, samples.seconds)
    elif len(starts) == 1:
        found = non_negative_fit(design / samples.seconds[..., None], np.ones_like(samples.seconds))
    else:
        found = np.array([_non_negative(*_relative(design, seconds))[0] for seconds in samples.seconds])
    return PiecewiseLine(starts, found[:, 0], found[:, 1:])
