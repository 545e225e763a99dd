"""Least squares fits of two coefficients that cannot be negative, for many replicates at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals
from stallpoint.loops import compiled, refit

_REFITS = 8  # number of rounds of an iteratively reweighted fit
_SHORTEST_TIME = 1e-9  # s; weights are divided by fitted times, but by no shorter one
_MIN_COMPILED_VALUES = 5_000
"""Number of values (301 replicates of 17 points) above which a fit is compiled, and twelve times as fast."""


def non_negative_fit(design: npt.ArrayLike, observed: Reals) -> Reals:
    """Fit two non-negative coefficients c such that `design` [points, 2] · c approximates `observed` [..., points].

    The sum of (design·c - observed)² / observed is minimised, so that small and large values both count. Squared
    relative errors would cost at most 1 for each underestimated point: a curve that is not quite straight, such as that
    of an all-reduce that outgrows the caches, would be fitted far below its largest values. Returns [..., 2].
    """
    weights = np.divide(1.0, observed, out=np.zeros(np.shape(observed)), where=np.asarray(observed) > 0)
    return non_negative_least_squares(np.asarray(design), observed, weights)


def quasi_poisson_fit(first: Reals, second: Reals, observed: Reals, count: npt.ArrayLike = 1.0) -> Reals:
    """Fit two non-negative coefficients c to times with a variance proportional to their mean, like Poisson counts.

    `first` and `second` are the columns of the design, not negative; `count` is the weight of each time. These and
    `observed` are [..., points]. Returns [..., 2]. The method is iteratively reweighted least squares (McCullagh &
    Nelder 1989, chapter 9). Fitted and observed times have the same sum; with weights of 1 / observed, times that
    happened to be short would weigh more.
    """
    if observed.ndim == 2 and observed.size > _MIN_COMPILED_VALUES and (compiled_fit := compiled(refit)) is not refit:
        arrays = [np.asarray(one, dtype=np.float64) for one in (first, second, observed, count)]
        if all(np.isfinite(one).all() for one in arrays):  # the compiled function assumes that all numbers are finite
            found = np.empty((len(observed), 2))
            broadcast = (one if one.shape == observed.shape else np.broadcast_to(one, observed.shape) for one in arrays)
            compiled_fit(*map(np.ascontiguousarray, broadcast), found, _REFITS, _SHORTEST_TIME)
            return found
    design = np.stack(np.broadcast_arrays(first, second), axis=-1)
    fitted = first + second
    for round_ in range(_REFITS):
        found = non_negative_least_squares(design, observed, np.asarray(count) / np.maximum(fitted, _SHORTEST_TIME))
        new_fit = first * found[..., None, 0] + second * found[..., None, 1]
        # Averaging the fits of two rounds keeps a coefficient from alternating between 0 and a positive value.
        fitted = new_fit if round_ < _REFITS // 2 else (fitted + new_fit) / 2
    return found


def non_negative_least_squares(design: Reals, observed: Reals, weights: Reals | float = 1.0) -> Reals:
    """Return two non-negative coefficients c [..., 2] that minimise the sum of `weights` · (`design`·c - `observed`)².

    `design` is [..., points, 2], `observed` [..., points]. If a coefficient would be negative without this bound, one
    of the two is 0. Collinear points, such as a single point, cannot determine two coefficients: then the first is 0.
    """
    a, b = design[..., 0], design[..., 1]
    weighted_a, weighted_b = weights * a, weights * b
    aa, ab, bb = _dot(weighted_a, a), _dot(weighted_a, b), _dot(weighted_b, b)
    ra, rb = _dot(weighted_a, observed), _dot(weighted_b, observed)
    determinant = aa * bb - ab * ab
    is_solvable = determinant > 1e-12 * aa * bb
    divisor = np.where(is_solvable, determinant, 1.0)
    free_fit = np.stack([(bb * ra - ab * rb) / divisor, (aa * rb - ab * ra) / divisor], axis=-1)
    a_alone = np.maximum(np.divide(ra, aa, out=np.zeros_like(ra), where=aa > 0), 0.0)
    b_alone = np.maximum(np.divide(rb, bb, out=np.zeros_like(rb), where=bb > 0), 0.0)
    # Alone, a lowers the sum of squares by a_alone · ra, and b by b_alone · rb. If both are about equal, b is chosen.
    axis_fit = np.where(
        (a_alone * ra > (1 + 1e-9) * b_alone * rb)[..., None],
        np.stack([a_alone, np.zeros_like(a_alone)], axis=-1),
        np.stack([np.zeros_like(b_alone), b_alone], axis=-1),
    )
    return np.where((is_solvable & (free_fit >= 0).all(-1))[..., None], free_fit, axis_fit)


def _dot(a: Reals, b: Reals) -> Reals:
    return np.asarray(np.einsum("...i,...i->...", a, b))
