"""t(b): growth of a time with the mini-batch b, and curves that follow this law through measured points.

    t(b) = (floor^s + (each · B)^s)^(1/s),    B = b rounded up to whole blocks of rows

The floor does not depend on b: it is the time to start the kernel, and to read the weights from memory. `each` is the
arithmetic of one sample. With the sharpness s = 1, arithmetic follows the floor. With a large s both overlap, and the
longer one decides; the roofline (Williams, Waterman & Patterson 2009) is s = ∞. Kernels for matrix products compute
blocks of rows (Goto & van de Geijn 2008), so b = 5 may cost as much as b = 8. Some libraries multiply a few rows one by
one, each as a product of matrix and vector. Where a library changes from one kernel to another, t(b) can jump or fall.
Factors of a `Bend` add these jumps and falls to the law. They come from one matrix product that is timed at many b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stallpoint.base.non_negative_fits import non_negative_fit
from stallpoint.base.statistics import Ensemble, Reals


@dataclass(frozen=True)
class Bend:
    """Factors on the law at some b: interpolated between them in log b, and constant beyond them."""

    batches: tuple[float, ...] = (1.0,)
    """Rising."""
    factors: tuple[float, ...] = (1.0,)

    def __call__(self, batches: Reals) -> Reals:
        """Return the factors at `batches`, of any shape."""
        return np.asarray(np.exp(np.interp(np.log(batches), np.log(self.batches), np.log(self.factors))))


@dataclass(frozen=True)
class Kernel:
    """Properties common to all matrix products on one machine."""

    block: int = 1
    """Rows computed together."""
    sharpness: float = 1.0
    min_rows: int = 0
    """Row count below which rows are multiplied one by one."""
    bend: Bend = Bend()
    """Factors on the law, from a product measured at many b."""


MIN_BATCHES_TO_CHOOSE = 4
ERROR_CAP = 10.0
"""Largest error in \\|log\\|, at which a prediction is useless."""
RESOLUTION = 1e-9
"""Seconds below which a time is taken as 0: clocks do not resolve less."""
LINEAR_KERNEL = Kernel()
"""floor + each · b: for layers that are no matrix product with b rows."""


@dataclass(frozen=True)
class BatchLaw:
    """Times of some quantities by b; never negative, and rising with b except for single rows and bends."""

    kernel: Kernel
    floor: Ensemble
    """Seconds, [1 + REPLICATES, quantities]."""
    each: Ensemble
    """Seconds per sample."""
    row: Ensemble
    """Seconds per row multiplied singly, where the kernel has such rows."""

    def __call__(self, batches: npt.ArrayLike) -> Ensemble:
        """Return the seconds at `batches` [points], [1 + REPLICATES, points, quantities]."""
        b = np.asarray(batches, dtype=np.float64)[:, None]
        s = self.kernel.sharpness
        floor, each = self.floor[:, None], self.each[:, None] * _blocks(b, self.kernel)
        block_times = floor + each if s == 1 else _p_norm(floor, each, s)
        return np.asarray(np.where(b < self.kernel.min_rows, self.row[:, None] * b, block_times) * self.kernel.bend(b))


def fit(batches: npt.ArrayLike, seconds: Ensemble, kernel: Kernel = LINEAR_KERNEL) -> BatchLaw:
    """Return the law with the smallest relative errors from `seconds` [1 + REPLICATES, points, quantities].

    A quantity that was always 0 stays 0. If only one mini-batch was measured, `floor` and `each` are NaN.
    """
    b = np.asarray(batches, dtype=np.float64)
    single = b < kernel.min_rows
    observed = np.moveaxis(seconds, 1, -1) / kernel.bend(b)
    row = _best_factor(_ratios(b[single], observed[..., single]))
    blocks, blocked = _blocks(b[~single], kernel), observed[..., ~single]
    if len(np.unique(blocks)) < 2:
        unknown = np.full(observed.shape[:-1], np.nan)
        return BatchLaw(kernel, unknown, unknown, row)
    floor, each = _fit_sum(blocks, blocked) if kernel.sharpness == 1 else _fit_norm(blocks, blocked, kernel.sharpness)
    if not single.any():
        # A single row that was not measured is taken to cost as much as one block.
        row = floor + each
    return BatchLaw(kernel, floor, each, row)


@dataclass(frozen=True)
class BatchTimes:
    """Times by b: at a measured b the measured time, at any other b the law's time multiplied by a correction.

    Corrections are interpolated between the measured b in log b, and constant beyond them. Each is shrunk by the share
    of noise in its variance (Efron & Morris 1973).
    """

    batches: Sequence[int]
    """Measured b, rising."""
    seconds: Ensemble
    """[1 + REPLICATES, len(batches), quantities]."""
    kernel: Kernel = LINEAR_KERNEL

    @cached_property
    def law(self) -> BatchLaw:
        """Return the law of these times."""
        return fit(self.batches, self.seconds, self.kernel)

    def __call__(self, batch: float) -> Ensemble:
        """Return the times at b, [1 + REPLICATES, quantities]; NaN if only another b was measured."""
        if batch in self.batches:
            return self.seconds[:, list(self.batches).index(int(batch))]
        if len(self.batches) < 2:
            return np.full_like(self.seconds[:, 0], np.nan)
        correction_factors = self._correction_factors
        places = np.log(np.asarray(self.batches, dtype=np.float64))
        second = int(np.clip(np.searchsorted(places, np.log(batch)), 1, len(places) - 1))
        part = np.clip((np.log(batch) - places[second - 1]) / (places[second] - places[second - 1]), 0.0, 1.0)
        here = (1 - part) * correction_factors[:, second - 1] + part * correction_factors[:, second]
        return np.asarray(here * self.law([batch])[:, 0])

    @cached_property
    def _correction_factors(self) -> Ensemble:
        """Return the factor on the law at each measured b, [1 + REPLICATES, len(batches), quantities]."""
        fitted = self.law(self.batches)
        off = np.divide(self.seconds, fitted, out=np.ones_like(fitted), where=fitted > 0) - 1
        if len(self.seconds) < 3:
            return 1 + off
        noise = np.divide(self.seconds, self.seconds[:1], out=np.ones_like(fitted), where=self.seconds[:1] > 0).var(0)
        # Residuals have two degrees of freedom less than there are points, as two parameters were fitted.
        freedom = max(1, len(self.batches) - 2)
        misfit = np.maximum((off[0] ** 2).sum(0) / freedom - noise.mean(0), 0.0)
        kept = np.divide(misfit, misfit + noise, out=np.ones_like(noise), where=misfit + noise > 0)
        return np.asarray(1 + kept * off)

    def source(self, batch: float) -> str:
        """Return the source of the times at b: ``measured``, ``interpolated`` or ``extrapolated``."""
        if batch in self.batches:
            return "measured"
        return "interpolated" if self.batches[0] < batch < self.batches[-1] else "extrapolated"


def held_out_errors(batches: Sequence[int], seconds: Ensemble, kernel: Kernel) -> list[float]:
    """Return the mean \\|log(predicted / measured)\\| at each b, predicted from the other b; at most `ERROR_CAP`."""
    errors = []
    for index, b in enumerate(batches):
        others = [other for other in range(len(batches)) if other != index]
        curve = BatchTimes([batches[other] for other in others], seconds[:1, others], kernel)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.abs(np.log(curve(b)[0] / seconds[0, index]))
        errors.append(float(np.nan_to_num(error, nan=ERROR_CAP, posinf=ERROR_CAP).clip(max=ERROR_CAP).mean()))
    return errors


def choose_kernel(measured: Sequence[tuple[Sequence[int], Ensemble]], candidates: Sequence[Kernel]) -> Kernel:
    """Return the candidate that predicts held-out b of all `measured` shapes (their batches and seconds) best.

    The first candidate is the simplest: another one must be better by more than one standard error, paired by b. Shapes
    measured at fewer than `MIN_BATCHES_TO_CHOOSE` b are not used. Without other shapes the first candidate is returned.
    """
    usable = [(batches, seconds) for batches, seconds in measured if len(batches) >= MIN_BATCHES_TO_CHOOSE]
    if not usable:
        return candidates[0]
    errors = np.array([
        [error for batches, seconds in usable for error in held_out_errors(batches, seconds, kernel)]
        for kernel in candidates
    ])  # fmt: skip
    best = int(errors.mean(1).argmin())
    excess_errors = errors[0] - errors[best]
    return candidates[best if excess_errors.mean() > excess_errors.std() / np.sqrt(len(excess_errors)) else 0]


def _blocks(b: Reals, kernel: Kernel) -> Reals:
    return np.asarray(kernel.block * np.ceil(b / kernel.block))


def _p_norm(first: Reals, second: Reals, sharpness: float) -> Reals:
    """Return (first^s + second^s)^(1/s), with s the sharpness, without overflow."""
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    ratio = np.divide(smaller, larger, out=np.zeros_like(larger), where=larger > 0)
    return np.asarray(larger * (1 + ratio**sharpness) ** (1 / sharpness))


def _ratios(design: Reals, observed: Reals) -> Reals:
    """Return `design` [points] divided by `observed` [..., points]; 0 for observed times below `RESOLUTION`."""
    ratios = np.divide(design, observed, out=np.zeros(observed.shape), where=np.asarray(observed >= RESOLUTION))
    return np.asarray(ratios)


def _best_factor(relative: Reals) -> Reals:
    """Return the factor that brings `relative` [..., points], fit / measurement, nearest to 1; 0 if all are 0."""
    squares = np.asarray((relative**2).sum(-1))
    return np.asarray(np.divide(relative.sum(-1), squares, out=np.zeros_like(squares), where=squares > 0))


def _fit_sum(blocks: Reals, observed: Reals) -> tuple[Reals, Reals]:
    """Return `floor` and `each`, fitted to times that are the sum of both, by linear least squares."""
    design = np.stack([_ratios(np.ones_like(blocks), observed), _ratios(blocks, observed)], axis=-1)
    found = non_negative_fit(design, np.asarray(observed >= RESOLUTION, dtype=np.float64))
    found = np.where(np.isnan(observed).any(-1, keepdims=True), np.nan, found)
    return found[..., 0], found[..., 1]


_GRID_SIZE = 33
_REFINEMENTS = 4


def _fit_norm(blocks: Reals, observed: Reals, sharpness: float) -> tuple[Reals, Reals]:
    """Return `floor` and `each` of times in which both overlap, by a search for the b at which both are equal."""
    low = np.full(observed.shape[:-1], np.log(blocks.min() / 1e4))
    high = np.full(observed.shape[:-1], np.log(blocks.max() * 1e4))
    log_knee = low
    for _ in range(_REFINEMENTS):
        options = low[..., None] + (high - low)[..., None] * np.linspace(0, 1, _GRID_SIZE)
        shape = _p_norm(np.exp(options)[..., None], np.broadcast_to(blocks, (*options.shape, len(blocks))), sharpness)
        relative = _ratios(shape, np.broadcast_to(observed[..., None, :], shape.shape))
        error = ((1 - _best_factor(relative)[..., None] * relative) ** 2).sum(-1)
        best = error.argmin(-1)
        log_knee = np.take_along_axis(options, best[..., None], -1)[..., 0]
        step = (high - low) / (_GRID_SIZE - 1)
        low, high = log_knee - step, log_knee + step
    shape = _p_norm(np.exp(log_knee)[..., None], np.broadcast_to(blocks, (*log_knee.shape, len(blocks))), sharpness)
    each = np.where(np.isnan(observed).any(-1), np.nan, _best_factor(_ratios(shape, observed)))
    return each * np.exp(log_knee), each
