"""Time by message size m as a straight line, or as several joined lines if the data require them.

Libraries change their algorithm with the message size, and messages outgrow caches, so one line α + β·m may be far off.
The curve is α + Σ βₖ·(bytes of m that fall into segment k). It is continuous, and with α, βₖ ≥ 0 it never falls. Breaks
are at measured sizes, found one after the other. Their number is decided on sizes held out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallpoint.base.non_negative_fits import non_negative_fit
from stallpoint.base.statistics import Ensemble, Reals

MAX_SEGMENTS = 6
"""Largest number of segments; never more than half the number of sizes."""
MIN_ERROR_RATIO = 1.25
"""Ratio of held-out errors above which segments are added."""


@dataclass(frozen=True)
class Samples:
    """Measured seconds by message size, with the factors on latency and bandwidth at each size."""

    sizes: Reals
    """Bytes, [points]."""
    latency: Reals
    bandwidth: Reals
    seconds: Ensemble
    """[1 + REPLICATES, points], above 0."""

    def where(self, chosen: npt.NDArray[np.bool_]) -> Samples:
        """Return the chosen points."""
        return Samples(self.sizes[chosen], self.latency[chosen], self.bandwidth[chosen], self.seconds[:, chosen])


@dataclass(frozen=True)
class PiecewiseLine:
    """Seconds = latency·α + bandwidth·Σ βₖ·(bytes in segment k)."""

    starts: Reals
    """Start of each segment, bytes, rising from 0, [segments]."""
    alpha: Ensemble
    """Latency, [1 + REPLICATES]; NaN if the samples do not separate it from β."""
    betas: Ensemble
    """Seconds per byte, [1 + REPLICATES, segments]."""
    floor: Ensemble | float = 0.0
    """Minimum seconds of every message, [1 + REPLICATES]; its addition counts as latency."""
    constant: Ensemble | float = 0.0
    """Constant part of the latency, s, [1 + REPLICATES]."""

    def __call__(self, sizes: npt.ArrayLike, latency: npt.ArrayLike, bandwidth: npt.ArrayLike) -> Ensemble:
        """Return the seconds of `sizes` bytes [...], [1 + REPLICATES, ...]; `latency` and `bandwidth` are factors."""
        of_latency, of_bandwidth = self.parts(sizes, latency, bandwidth)
        return of_latency + of_bandwidth

    def parts(
        self, sizes: npt.ArrayLike, latency: npt.ArrayLike, bandwidth: npt.ArrayLike
    ) -> tuple[Ensemble, Ensemble]:
        """Return the seconds due to latency, and those due to bandwidth."""
        inside = segment_bytes(self.starts, np.asarray(sizes, dtype=np.float64))
        alpha, floor, constant = (
            np.reshape(seconds, (-1, *([1] * (inside.ndim - 1)))) for seconds in (self.alpha, self.floor, self.constant)
        )
        carried = np.asarray(bandwidth) * np.tensordot(self.betas, inside, axes=(1, -1))
        of_latency = np.broadcast_to(constant + alpha * np.asarray(latency), carried.shape)
        return np.maximum(of_latency, floor - carried), carried


def segment_bytes(starts: Reals, sizes: Reals) -> Reals:
    """Return the bytes of each of `sizes` [...] that fall into each segment, [..., segments]."""
    ends = np.array([*starts[1:], np.inf])
    return np.asarray(np.minimum(np.maximum(sizes[..., None], starts), ends) - starts)


def fit(samples: Samples) -> PiecewiseLine:
    """Return the fit with as many segments as predict held-out sizes best, or fewer if their gain may be chance."""
    return curve(samples, breaks(samples))


def breaks(samples: Samples) -> Reals:
    """Return the starts of the segments of `fit`, bytes."""
    starts = np.zeros(1)
    for more in range(2, _segment_count(samples) + 1):
        starts = _with_added_break(typical(samples), starts, more)
    return starts


def residual(curve: PiecewiseLine, samples: Samples) -> float:
    """Return the median of \\|fit - measured\\| / measured."""
    fitted = curve(samples.sizes, samples.latency, samples.bandwidth)[0]
    return float(np.median(np.abs(fitted / samples.seconds[0] - 1)))


def _segment_count(samples: Samples) -> int:
    """Return the number of segments, by leave-one-out over sizes.

    It is the smallest number whose error is at most one standard error (paired by size) above the best, or at most
    `MIN_ERROR_RATIO` times the best.
    """
    sizes = np.unique(samples.sizes)
    max_segments = _max_segments(samples)
    if max_segments < 2:
        return 1
    errors = np.array([_held_out_errors(samples, size, max_segments) for size in sizes])
    best = int(errors.mean(0).argmin())
    excess_errors = errors - errors[:, [best]]
    standard_error = excess_errors.std(0, ddof=1) / np.sqrt(len(sizes))
    allowed = np.maximum(standard_error, (MIN_ERROR_RATIO - 1) * errors[:, best].mean())
    return int(np.argmax(excess_errors.mean(0) <= allowed)) + 1


def _max_segments(samples: Samples) -> int:
    return min(MAX_SEGMENTS, (len(np.unique(samples.sizes)) - 1) // 2)


def _held_out_errors(samples: Samples, size: float, max_segments: int) -> list[float]:
    """Return the mean \\|log(predicted / measured)\\| at a held-out size, for 1, 2, ... segments."""
    out = samples.sizes == size
    known, asked = typical(samples.where(~out)), typical(samples.where(out))
    errors = []
    starts = np.zeros(1)
    for count in range(1, max_segments + 1):
        starts = _with_added_break(known, starts, count)
        predicted = curve(known, starts)(asked.sizes, asked.latency, asked.bandwidth)[0]
        with np.errstate(divide="ignore"):
            errors.append(float(np.abs(np.log(predicted / asked.seconds[0])).clip(max=10).mean()))
    return errors


def _with_added_break(samples: Samples, starts: Reals, count: int) -> Reals:
    """Return `starts` with a break added that lowers the misfit most; then each break moves to its best position."""
    if len(starts) == count:
        return starts
    free = np.unique(samples.sizes)[1:-1]

    def best(kept: Reals) -> Reals:
        options = [np.sort(np.append(kept, size)) for size in free if size not in kept]
        return min(options, key=lambda option: _line_misfit(samples, option), default=starts)

    found = best(starts)
    for start in found[1:]:
        found = best(found[found != start])
    return found


def typical(samples: Samples) -> Samples:
    """Return the samples without their replicates."""
    return Samples(samples.sizes, samples.latency, samples.bandwidth, samples.seconds[:1])


def _line_misfit(samples: Samples, starts: Reals) -> float:
    return _nnls(*_relative_problem(_line_design(samples, starts), samples.seconds[0]))[1]


def _nnls(design: Reals, observed: Reals) -> tuple[Reals, float]:
    """Return the coefficients of non-negative least squares and the norm of the residual.

    Columns are scaled by their largest entry: the solver may cycle if they differ by many orders of magnitude.
    """
    from scipy.optimize import nnls

    largest = design.max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)  # a column is 0 if no size reaches its segment
    found, left = nnls(design / scale, observed)
    return found / scale, float(left)


def _line_design(samples: Samples, starts: Reals) -> Reals:
    return np.column_stack([samples.latency, samples.bandwidth[:, None] * segment_bytes(starts, samples.sizes)])


def _relative_problem(design: Reals, seconds: Reals) -> tuple[Reals, Reals]:
    """Return design and right-hand side of the fit in relative errors, of one replicate's `seconds`."""
    return design / seconds[:, None], np.ones(len(seconds))


def curve(samples: Samples, starts: Reals, *, constant: bool = False) -> PiecewiseLine:
    """Return the line with segments from `starts`, fitted by relative errors; few sizes are fitted by absolute errors.

    Relative errors might fit the largest of few sizes badly. With `constant`, a constant part of the latency is fitted
    too; several node counts separate it from the rest.
    """
    design = _line_design(samples, starts)
    if constant:
        design = np.column_stack([design, np.ones(len(design))])
    if np.linalg.matrix_rank(design / np.abs(design).max(axis=0).clip(min=1e-300)) < design.shape[1]:
        unknown = np.full((len(samples.seconds), design.shape[1]), np.nan)
        return PiecewiseLine(starts, unknown[:, 0], unknown[:, 1 : 1 + len(starts)])
    if constant:
        relative_design = design / samples.seconds[..., None]
        found = np.array([_nnls(each, np.ones(len(each)))[0] for each in relative_design])
        return PiecewiseLine(starts, found[:, 0], found[:, 1:-1], constant=found[:, -1])
    if len(starts) == 1 and _max_segments(samples) < 2:
        found = non_negative_fit(design, samples.seconds)
    elif len(starts) == 1:
        found = non_negative_fit(design / samples.seconds[..., None], np.ones_like(samples.seconds))
    else:
        found = np.array([_nnls(*_relative_problem(design, seconds))[0] for seconds in samples.seconds])
    return PiecewiseLine(starts, found[:, 0], found[:, 1:])
