"""Medians with intervals over visits and iterations, and the small fits all models share.

Every uncertain quantity is an *ensemble*: an array whose first entry along axis 0 is the value from the records and
whose other `REPLICATES` entries are what it may as well be (`bootstrap`). Models compute with whole ensembles, so that
intervals follow from the inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

INTERVAL = 0.90
"""Probability that an interval is meant to cover."""
NORMAL_INTERVAL = 2 * NormalDist().inv_cdf((1 + INTERVAL) / 2)
"""Length of that interval of a normal quantity, in standard deviations."""
REPLICATES = 300
"""Bootstrap replicates: enough for the 5 % and 95 % quantiles."""
MANY = 10_000
"""Observations drawn from a visit at most."""
AT_ONCE = 100_000
"""Numbers that replicates are made of at a time."""

FEWEST_VALUES = 4
"""Independent values without which they do not tell an interval."""
MOST_APART = 3.0
"""Largest deviation of a replicate, as a logarithm: what is farther off tells nothing more."""
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


def unknown_ensemble() -> Ensemble:
    """An ensemble of what is not known: not a number throughout."""
    return np.full(1 + REPLICATES, np.nan)


def generator(seed: int, *key: object) -> np.random.Generator:
    """Random numbers that depend on `seed` and `key` alone: other records do not change these draws."""
    return np.random.default_rng([seed, zlib.crc32(repr(key).encode())])


@dataclass(frozen=True)
class Scatter:
    """How far visits to one cell lie apart on a machine: a prior for what a cell's own few visits say of it."""

    deviation: float
    """Standard deviation of the logarithm of a visit's time."""
    freedom: float
    """How sure that is: as an estimate with so many degrees of freedom."""


UNKNOWN = Scatter(0.08, 4.0)
"""Where nothing was visited twice. Visits on shared machines were 1 to 10 % apart: at 10 % nine of ten intervals from
one visit hold the truth (benchmark `truth`); at 5 % they would be 7 of 10."""
LEAST_SCATTER = 0.001
"""Standard deviation below which visits are not taken to lie: clocks and caches alone make as much."""
DEGREES_OF_FREEDOM = (1.0, 50.0)
"""Fewest and most degrees of freedom that other cells add to those of a cell's own visits."""
ENOUGH_CELLS = 3
"""Cells visited more than once without which the scatter's own scatter cannot be told."""


def scatter(frame: pd.DataFrame, by: Sequence[str], column: str) -> Scatter:
    """How far visits lie apart, from all cells (rows alike in the columns `by`) that were visited more than once.

    Variances of cells are taken to be inverse-gamma distributed; its parameters follow from the mean and the variance
    of their logarithms (Smyth 2004, "Linear models and empirical Bayes methods", section 6.2).
    """
    times = frame[(frame[column] > 0) & np.isfinite(frame[column])]
    medians = np.log(times[column].groupby([*(times[name] for name in by), visits_of(times)]).median())
    variances = medians.groupby(level=list(range(len(by)))).agg(["var", "count"]).query("count > 1")
    freedom = variances["count"].to_numpy(dtype=np.float64) - 1
    found = np.maximum(variances["var"].to_numpy(), LEAST_SCATTER**2)
    if len(found) < ENOUGH_CELLS:
        squares = UNKNOWN.freedom * UNKNOWN.deviation**2 + (freedom * found).sum()
        return Scatter(float(np.sqrt(squares / (UNKNOWN.freedom + freedom.sum()))), UNKNOWN.freedom)
    # Here, as importing it takes longer than a trace of a profiler is explained in.
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    logs = np.log(found) - digamma(freedom / 2) + np.log(freedom / 2)
    more = float(np.var(logs, ddof=1) - polygamma(1, freedom / 2).mean())
    least, most = DEGREES_OF_FREEDOM
    if more <= polygamma(1, most / 2):
        return Scatter(float(np.exp(logs.mean() / 2)), most)
    known = float(brentq(lambda half: polygamma(1, half) - more, 1e-3, most / 2)) * 2
    known = max(known, least)
    return Scatter(float(np.exp((logs.mean() + digamma(known / 2) - np.log(known / 2)) / 2)), known)


def bootstrap(
    values: npt.ArrayLike,
    visits: npt.ArrayLike,
    random: np.random.Generator,
    statistic: Callable[..., Reals] = np.median,
    usual: Scatter = UNKNOWN,
) -> Ensemble:
    """Mean over visits (`visits_of`) of the statistic of `values` [observations, ...] in each: [1 + REPLICATES, ...].

    What differs between visits (placement, neighbours, the state of the machine) makes the interval, not what differs
    between iterations. Few visits may lie close together by chance: a variance below that of `usual` visits is brought
    nearer to it, each for its degrees of freedom, and deviations are those of Student's t with the degrees of both
    (moderated t; Smyth 2004). All quantities of one call deviate together: as the cell's own visits do, and what is
    added is a factor on all of them. A single visit adds what its iterations differ by. What is above 0 stays so.
    """
    values = np.asarray(values, dtype=np.float64)
    _, group = np.unique(np.asarray(visits), return_inverse=True)
    order = np.argsort(group, kind="stable")
    parts = np.split(values[order], np.cumsum(np.bincount(group))[:-1])
    each = np.stack([np.asarray(statistic(part, axis=0)) for part in parts])
    count, value = len(each), each.mean(axis=0)
    shape = (REPLICATES, *[1] * value.ndim)
    freedom = count - 1 + usual.freedom
    tails = np.sqrt(freedom / random.chisquare(freedom, size=shape) / count)
    common = tails * random.standard_normal(shape)
    prior = (usual.deviation * value) ** 2
    if count == 1:
        apart = _redrawn(parts[0], statistic, random) - value + common * np.sqrt(prior)
    else:
        own = ((each - value) ** 2).sum(axis=0) / (count - 1)
        between = tails * np.tensordot(random.standard_normal((REPLICATES, count)), each - value, axes=1)
        lacking = np.maximum(prior - own, 0.0) * usual.freedom / freedom
        apart = between / np.sqrt(count - 1) + common * np.sqrt(lacking)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_ratio = value * np.exp(np.clip(apart / value, -MOST_APART, MOST_APART))
    return np.concatenate([value[None], np.where(value > 0, by_ratio, value + apart)])


def resampled(values: npt.ArrayLike, random: np.random.Generator, statistic: Callable[..., Reals]) -> Ensemble:
    """The statistic of independent `values`, and of them drawn again; not a number where they are too few to tell."""
    values = np.asarray(values, dtype=np.float64)
    few = len(values) < FEWEST_VALUES
    replicates = np.full(REPLICATES, np.nan) if few else _redrawn(values, statistic, random)
    return np.concatenate([[statistic(values, axis=0)], replicates])


def _redrawn(values: Reals, statistic: Callable[..., Reals], random: np.random.Generator) -> Reals:
    """The statistic of the observations of a visit drawn again, [REPLICATES, ...].

    Of more than `MANY` observations as many are drawn, so that a million cost no more; replicates then lie too far
    apart, by the root of the ratio, and are drawn together (m out of n; Politis & Romano 1994).
    """
    most = min(len(values), MANY)
    closer = np.sqrt(most / len(values))
    value = np.asarray(statistic(values, axis=0))
    # Some replicates at a time: all at once would take too much memory.
    size = max(1, AT_ONCE // max(1, most * int(np.prod(values.shape[1:]))))
    found = []
    for begin in range(0, REPLICATES, size):
        picks = random.integers(len(values), size=(min(size, REPLICATES - begin), most))
        found.append(value + closer * (statistic(values[picks], axis=1) - value))
    return np.concatenate(found)


def visits_of(frame: pd.DataFrame) -> pd.Series[int]:
    """For each row which visit it is from; with several repeats, which repeat: its visits share what is a job's own."""
    if frame["repeat"].nunique() > 1:
        return frame["repeat"]
    return frame["visit"]


def is_duration(seconds: Ensemble) -> bool:
    """Whether every time of an ensemble can be one: finite, and above 0."""
    return bool((np.isfinite(seconds) & (seconds > 0)).all())


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


def shrink_to_one(factor: Ensemble, usual: float, doubt: Ensemble | float = 0.0) -> Ensemble:
    """The factor, nearer to 1 the less certain it is: a normal prior on its logarithm, `usual` wide.

    `doubt` is how far off its logarithm may be beside what its replicates say.
    """
    known = np.log(np.clip(factor, 1 / MOST_BELIEVED, MOST_BELIEVED))
    return np.asarray(np.exp(known * usual**2 / (usual**2 + known[1:].var() + np.square(doubt))))


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
    for refit in range(_REFITS):
        root = np.sqrt(np.asarray(count) / np.maximum(fitted, _SHORTEST))
        found = non_negative_least_squares(design * root[..., None], observed * root)
        now = (design * found[..., None, :]).sum(axis=-1)
        # Where a coefficient is 0 by one fit and above 0 by the next, they would take turns for ever.
        fitted = now if refit < _REFITS // 2 else (fitted + now) / 2
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
