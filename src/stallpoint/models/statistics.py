"""Medians with intervals over visits and iterations, and the small fits all models share.

Every uncertain quantity is an *ensemble*: an array whose first entry along axis 0 is the value from the
records as they are and whose other `REPLICATES` entries are the value from records drawn again with
replacement (bootstrap). Models compute with whole ensembles, so that intervals follow from the inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm
from scipy.stats import t as student_t

INTERVAL = 0.90
"""Probability that an interval is meant to cover."""
REPLICATES = 300
"""Bootstrap replicates: enough for the 5 % and 95 % quantiles."""
MANY = 10_000
"""Observations drawn from a visit at most."""
AT_ONCE = 100_000
"""Numbers that replicates are made of at a time."""

OTHERS_TELL = 4
"""Degrees of freedom that what is known of other cells adds to those of a cell's own visits: how much visits differ is
a matter of the machine more than of the cell."""
MOST_BELIEVED = 20.0
"""Largest factor that is believed."""

_REFITS = 8  # rounds of a fit whose weights are what it finds
_SHORTEST = 1e-9  # s; what is fitted may be 0, and is a weight

Reals: TypeAlias = npt.NDArray[np.float64]
Ensemble: TypeAlias = npt.NDArray[np.float64]
"""Shape [1 + REPLICATES, ...]."""

_TAILS = ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2)


def groups(frame: pd.DataFrame, by: str | Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """The rows of `frame` for each value of the column `by`, or for each tuple of values of several columns."""
    yield from frame.groupby(by if isinstance(by, str) else list(by))


def generator(seed: int, *key: object) -> np.random.Generator:
    """Random numbers that depend on `seed` and `key` alone: other records do not change these draws."""
    return np.random.default_rng([seed, zlib.crc32(repr(key).encode())])


def bootstrap(
    values: npt.ArrayLike,
    visits: npt.ArrayLike,
    random: np.random.Generator,
    statistic: Callable[..., Reals] = np.median,
) -> Ensemble:
    """Statistic of `values` [observations, ...] over a hierarchy: visits (`visits_of`), observations in each.

    Visits are drawn first, then observations within them, so that what differs between visits and jobs (placement,
    neighbours, the state of the machine) counts and not only what differs between iterations. Replicates of few visits
    lie too near each other and are drawn apart (`_apart`). Returns [1 + REPLICATES, ...].

    Of more than `MANY` observations in a visit as many are drawn, so that a million cost no more; a single visit's
    replicates then lie too far apart, by the root of the ratio, and are drawn together (m out of n; Politis & Romano
    1994).
    """
    values = np.asarray(values, dtype=np.float64)
    _, group = np.unique(np.asarray(visits), return_inverse=True)
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group)
    first = np.cumsum(counts) - counts
    drawn = random.integers(len(counts), size=(REPLICATES, len(counts)))[:, :, None]
    most = min(int(counts.max()), MANY)
    closer = np.sqrt(most / counts.max()) if len(counts) == 1 else 1.0
    value = statistic(values, axis=0)
    result = [np.asarray(value)[None]]
    # Some replicates at a time: all at once would take too much memory.
    size = max(1, AT_ONCE // max(1, len(counts) * most * int(np.prod(values.shape[1:]))))
    for begin in range(0, REPLICATES, size):
        groups_drawn = drawn[begin : begin + size]
        inside = random.random((len(groups_drawn), len(counts), most))
        picks = order[first[groups_drawn] + (inside * counts[groups_drawn]).astype(np.int64)]
        replicates = statistic(values[picks.reshape(len(picks), -1)], axis=1)
        result.append(replicates if closer == 1 else value + closer * (replicates - value))
    result[1:] = [_apart(value, replicates, len(counts)) for replicates in result[1:]]
    return np.concatenate(result)


def visits_of(frame: pd.DataFrame) -> pd.Series[int]:
    """For each row which visit it is from: a number for each repeat and visit."""
    return frame.groupby(["repeat", "visit"]).ngroup()


def _apart(value: Reals, replicates: Reals, visits: int) -> Reals:
    """`replicates` as far from `value` as few visits leave it open.

    Drawn from k visits, they have (k - 1)/k of the variance and the quantiles of a normal distribution, where Student's
    t has wider ones. What is above 0 stays so.
    """
    if visits == 1:
        return replicates
    factor = np.sqrt(visits / (visits - 1)) * student_t.ppf(_TAILS[1], visits - 1 + OTHERS_TELL) / norm.ppf(_TAILS[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        by_ratio = value * (replicates / value) ** factor
    by_difference = value + factor * (replicates - value)
    above = np.where((value > 0) & (replicates > 0), by_ratio, np.maximum(by_difference, 0.0))
    return np.asarray(np.where(value >= 0, above, by_difference))


def estimate(ensemble: Ensemble) -> tuple[float, float, float]:
    """Value and 90 % interval of an ensemble [1 + REPLICATES]; the interval holds the value."""
    value = float(ensemble[0])
    if np.isnan(ensemble).any():
        return value, float("nan"), float("nan")
    # A replicate may be infinite (no serial part: no limit), so the quantile is one of them, not between two.
    low, high = np.quantile(ensemble[1:], _TAILS, method="inverted_cdf")
    return value, min(value, float(low)), max(value, float(high))


def columns(name: str, ensemble: Ensemble) -> dict[str, float]:
    """The three columns of a quantity in a model table: `name`, `name`_low, `name`_high."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), estimate(ensemble), strict=True))


def believed(factor: Ensemble, usual: float) -> Ensemble:
    """The factor, nearer to 1 the less certain it is: a normal prior on its logarithm, `usual` wide."""
    known = np.log(np.clip(factor, 1 / MOST_BELIEVED, MOST_BELIEVED))
    return np.asarray(np.exp(known * usual**2 / (usual**2 + known[1:].var())))


def non_negative_fit(design: npt.ArrayLike, observed: Reals) -> Reals:
    """Two non-negative coefficients c that bring `design` [points, 2] · c near `observed` [..., points].

    Weighted least squares, sum of (design·c - observed)² / observed: small values count, and large ones too. (With
    relative errors, squared, too small a fit costs at most 1 at each point, and what is not quite a straight line,
    such as an all-reduce that outgrows the caches, is then fitted far below its largest values.)
    Returns [..., 2].
    """
    root = np.sqrt(observed)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(root[..., None] > 0, np.asarray(design) / root[..., None], 0.0)
    return non_negative_least_squares(scaled, root)


def quasi_poisson_fit(design: Reals, observed: Reals, count: npt.ArrayLike = 1.0) -> Reals:
    """Two non-negative coefficients c for times that vary the more the longer they are; each counts `count` times.

    With a variance in proportion to the mean, as a Poisson distribution has it: least squares with weights of one over
    what is fitted, found by fitting again (McCullagh & Nelder 1989, chapter 9). The sum of what is fitted is that of
    what was observed; weights of one over the observed would favour those that happened to be short.
    `design` [..., points, 2] is not negative, `observed` and `count` are [..., points]. Returns [..., 2].
    """
    fitted = design.sum(axis=-1)
    for _ in range(_REFITS):
        root = np.sqrt(np.asarray(count) / np.maximum(fitted, _SHORTEST))
        found = non_negative_least_squares(design * root[..., None], observed * root)
        fitted = (design * found[..., None, :]).sum(axis=-1)
    return found


def non_negative_least_squares(design: Reals, observed: Reals) -> Reals:
    """Two non-negative coefficients c with the least sum of (design·c - observed)², [..., points, 2] and [..., points].

    With two coefficients the constrained optimum is the free one or lies on an axis. Points in line with each other,
    as one point is with itself, cannot tell the two apart: then the second has all. Returns [..., 2].
    """
    a, b = design[..., 0], design[..., 1]
    aa, ab, bb = (a * a).sum(-1), (a * b).sum(-1), (b * b).sum(-1)
    ra, rb = (a * observed).sum(-1), (b * observed).sum(-1)
    determinant = aa * bb - ab * ab
    solvable = determinant > 1e-12 * aa * bb
    safe = np.where(solvable, determinant, 1.0)
    free = np.stack([(bb * ra - ab * rb) / safe, (aa * rb - ab * ra) / safe], axis=-1)
    only_a = np.maximum(np.divide(ra, aa, out=np.zeros_like(ra), where=aa > 0), 0.0)
    only_b = np.maximum(np.divide(rb, bb, out=np.zeros_like(rb), where=bb > 0), 0.0)
    # On an axis the sum of squares falls by (coefficient · r) against no fit at all; equal but for rounding is equal.
    on_axis = np.where(
        (only_a * ra > (1 + 1e-9) * only_b * rb)[..., None],
        np.stack([only_a, np.zeros_like(only_a)], axis=-1),
        np.stack([np.zeros_like(only_b), only_b], axis=-1),
    )
    return np.where((solvable & (free >= 0).all(-1))[..., None], free, on_axis)
