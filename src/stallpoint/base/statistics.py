"""Means over visits and iterations, with intervals; all models use them.

Every uncertain quantity is an *ensemble*: an array whose first entry along axis 0 is the estimate and whose other
`REPLICATES` entries are bootstrap replicates (`bootstrap`). Models compute with whole ensembles: the intervals of
results follow from the replicates of inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stallpoint.base.priors import VISIT
from stallpoint.text import number

if TYPE_CHECKING:
    import pandas as pd

INTERVAL = 0.90
"""Nominal coverage of intervals."""
NORMAL_INTERVAL = 2 * NormalDist().inv_cdf((1 + INTERVAL) / 2)
"""Length of the 90 % interval of a normal quantity, in standard deviations."""
REPLICATES = 300
"""Bootstrap replicates: enough for the 5 % and 95 % quantiles."""
MANY = 10_000
"""Maximum number of observations drawn from a visit."""
AT_ONCE = 100_000
"""Numbers drawn at a time, to bound memory."""

SAME_WITHIN = 0.05
"""Times or rates count as the same if the interval of their ratio lies within a factor of 1 + `SAME_WITHIN`: equal
studies run minutes apart differ by about as much (benchmark `repeatability`), and nobody acts on smaller changes."""

MIN_VALUES = 4
"""Independent values needed for an interval."""
MAX_DEVIATION = 3.0
"""Largest logarithmic deviation of a replicate."""
MAX_FACTOR = 20.0
"""Largest factor that is considered plausible."""


Reals: TypeAlias = npt.NDArray[np.float64]
Ensemble: TypeAlias = npt.NDArray[np.float64]
"""Shape [1 + REPLICATES, ...]."""

_TAILS = ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2)


class Estimate(NamedTuple):
    """A value and the ends of its 90 % interval; NaN if an end is unknown."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    def times(self, factor: float) -> Estimate:
        """Return the estimate multiplied by a factor."""
        return Estimate(*(factor * end for end in self))

    def inverse(self, amount: float) -> Estimate:
        """Return `amount` divided by the estimate."""
        return Estimate(amount / self.value, amount / self.high, amount / self.low)

    @override
    def __str__(self) -> str:
        """Return the text ``1.81 (1.74–1.96)``; only the value if the interval is unknown."""
        ends = "" if np.isnan([self.low, self.high]).any() else f" ({number(self.low)}–{number(self.high)})"
        return number(self.value) + ends


def groups(frame: pd.DataFrame, by: str | Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield each value of the column `by` and its rows; if `by` names several columns, each tuple of their values."""
    yield from frame.groupby(by if isinstance(by, str) else list(by))


def likely(probabilities: Sequence[float] | Reals) -> list[int]:
    """Return rising indices of the smallest set of outcomes with total probability `INTERVAL`; of equals, the first."""
    order = np.argsort(-np.asarray(probabilities), kind="stable")
    passed = np.cumsum(np.asarray(probabilities)[order]) >= INTERVAL - 1e-9
    return sorted(order[: int(passed.argmax()) + 1].tolist())


def unknown_ensemble() -> Ensemble:
    """Return an ensemble whose entries are all NaN."""
    return np.full(1 + REPLICATES, np.nan)


def generator(seed: int, *key: object) -> np.random.Generator:
    """Return a random generator with a state given by `seed` and `key`: other records do not change its numbers."""
    return np.random.default_rng([seed, zlib.crc32(repr(key).encode())])


@dataclass(frozen=True)
class Rounds:
    """Slowdown of each round of visits: machines drift, and visits within a few minutes share a slowdown."""

    effects: Mapping[object, float]
    """Logarithmic slowdown of each round, by the label of its visits, shrunk by its uncertainty."""
    deviation: float
    """Standard deviation of the effects."""
    taken: float
    """Fraction of the visits' variance that estimated effects absorb by chance even if rounds are equal."""

    @property
    def wider(self) -> float:
        """Factor by which deviations grow to correct for the variance that the effects absorbed."""
        return float(1 / np.sqrt(1 - self.taken))

    def factors(self, labels: Iterable[object]) -> Reals:
        """Return the slowdown of the rounds with these `labels`; 1 for unknown rounds."""
        return np.exp([self.effects.get(label, 0.0) for label in labels])

    def drawn(self, labels: Iterable[object]) -> Reals:
        """Return replicates of an error: how rounds affect the mean over visits with `labels`, as logs [REPLICATES].

        All cells share these replicates: they cancel in the ratio of two cells that were visited in the same rounds.
        """
        labels = list(labels)
        random = generator(0, "rounds", *self.effects.items())
        freedom = len(self.effects) - 1 + ROUND_FREEDOM
        tails = np.sqrt(freedom / random.chisquare(freedom, size=REPLICATES))
        draws = dict(zip(self.effects, random.standard_normal((len(self.effects), REPLICATES)), strict=True))
        found = [draws[label] for label in labels if label in draws]
        return np.asarray(tails * self.deviation * sum(found, np.zeros(REPLICATES)) / len(labels))


@dataclass(frozen=True)
class Scatter:
    """Usual scatter between the visits to one cell on a machine; the prior for a cell with few visits."""

    deviation: float
    """Standard deviation of the logarithm of a visit's time."""
    freedom: float
    """Certainty of the deviation, in degrees of freedom."""
    rounds: Rounds | None = None
    """Shared effects of rounds, which `deviation` excludes."""


@dataclass(frozen=True)
class Composed:
    """Usual scatter between visits of a total time and of each part of it."""

    total: Scatter
    parts: Sequence[Scatter]
    members: Sequence[Sequence[int]]
    """For each column besides the total and its parts: indices of the parts with which it deviates."""


UNKNOWN = Scatter(VISIT.deviation, VISIT.freedom)
"""Prior scatter if nothing was visited twice."""
UNKNOWN_PART = Scatter(np.sqrt(2) * UNKNOWN.deviation, UNKNOWN.freedom)
"""Prior scatter of a part of an iteration, which also varies independently of the other parts."""
VISIT_TO_ITERATION_SCATTER = 3.0
"""Assumed ratio of the scatter between visits to the scatter of iterations within a visit, if nothing was visited
twice. If the true ratio is 5, intervals of times contain the truth in 3 of 4 cases."""
MIN_UNKNOWN = 0.25
"""Lower bound of the prior scatter in units of `UNKNOWN.deviation`: equal iterations carry no information on placement
and neighbours."""
MIN_SCATTER = 0.001
"""Lower bound of the standard deviation between visits: clocks and caches alone cause as much."""
DEGREES_OF_FREEDOM = (1.0, 50.0)
"""Bounds of the degrees of freedom that other cells add to a cell's own visits."""
MIN_CELLS = 3
"""Cells visited more than once that are needed to estimate how variances differ between cells."""
VARIANCE_FREEDOM = 8.0
"""Assumed similarity of the cells' variances if it cannot be estimated, in degrees of freedom."""
PRIOR_OFF = 2.0
"""Variance of the logarithm of the prior's variance: its deviation may be wrong by a factor of 2, rarely of 4."""
ROUND_FREEDOM = 2.0
"""Weight of the prior that all rounds are equal, in degrees of freedom. With less weight, no slowdown would be found in
few visits; with more, slow rounds would often pass for a slow machine."""
NEGLIGIBLE = 1e-4
"""Share of a total below which a part carries no information on scatter."""
MIN_ROUNDS = 3
"""Rounds needed to estimate how rounds differ."""


def scatter(frame: pd.DataFrame, by: Sequence[str], column: str) -> Scatter:
    """Estimate the scatter between visits from all cells that were visited more than once.

    Rows of a cell are equal in the columns `by`. The variances of cells are modelled as inverse-gamma, with parameters
    from the mean and variance of their logarithms (Smyth 2004, "Linear models and empirical Bayes methods", 6.2).
    """
    logs = _Logs.of(frame, by)
    return _scatter(logs.medians(column), _prior_scatter(*logs.within(column), UNKNOWN))


def scatter_of_parts(
    frame: pd.DataFrame, by: Sequence[str], total: str, parts: Sequence[str], members: Sequence[Sequence[str]]
) -> Composed:
    """Estimate the scatter of the column `total` and of its `parts`, without the effects that visits of a round share.

    `members` has a list for each further column: the parts with which the column deviates.
    """
    logs = _Logs.of(frame, by)
    rounds = _rounds(logs.medians(total)) if frame["repeat"].nunique() == 1 else None
    found = []
    for column in (total, *parts):
        medians = logs.medians(column, total)
        if rounds:
            medians = medians - np.log(rounds.factors(medians.index.get_level_values(-1)))
        unknown = UNKNOWN if column == total else UNKNOWN_PART
        usual = _scatter(medians, _prior_scatter(*logs.within(column, total), unknown))
        wider = rounds.wider if rounds else 1.0
        found.append(replace(usual, deviation=usual.deviation * wider, rounds=rounds))
    return Composed(found[0], found[1:], [[list(parts).index(name) for name in of] for of in members])


@dataclass(frozen=True)
class _Logs:
    """Logarithms of the times in a frame, grouped by visit."""

    frame: pd.DataFrame
    visit_index: pd.Series[int]
    """Index of each row's visit."""
    visits: pd.Index[Any]
    """Identification of visits: values of the grouping columns, and the visit number."""

    @classmethod
    def of(cls, frame: pd.DataFrame, by: Sequence[str]) -> Self:
        """Group rows by the columns `by` and visit."""
        frame = frame.reset_index(drop=True)
        grouped = frame.groupby([*(frame[name] for name in by), visits_of(frame)], dropna=False)
        return cls(frame, grouped.ngroup(), grouped.size().index)

    def medians(self, column: str, total: str = "") -> pd.Series[float]:
        """Return the median of each visit, from times above 0 and above `NEGLIGIBLE` times the column `total`."""
        found: pd.Series[float] = self._positive_logs(column, total).median()
        return found.set_axis(self.visits[found.index])

    def within(self, column: str, total: str = "") -> tuple[Reals, Reals]:
        """Return the variance of iterations within each visit, and its degrees of freedom."""
        return _variances(self._positive_logs(column, total))

    def _positive_logs(self, column: str, total: str) -> Any:
        times = self.frame[column]
        negligible = times <= NEGLIGIBLE * self.frame[total] if total else times <= 0
        times = times[~negligible & (times > 0) & np.isfinite(times)]
        return np.log(times).groupby(self.visit_index[times.index])


def _variances(grouped: Any) -> tuple[Reals, Reals]:
    """Return the variance of each group that has several values, and the variance's degrees of freedom."""
    counts = grouped.count()
    several = counts > 1
    return grouped.var()[several].to_numpy(), counts[several].to_numpy(dtype=np.float64) - 1


def _prior_scatter(within: Reals, freedom: Reals, unknown: Scatter) -> Scatter:
    """Return the prior scatter of visits, used if no cell was visited twice: `unknown`, or less if iterations agree.

    `within` has the variance of iterations within each visit, `freedom` its degrees of freedom.
    """
    if freedom.sum() < MIN_VALUES:
        return unknown
    seen = VISIT_TO_ITERATION_SCATTER * np.sqrt(float(within @ freedom / freedom.sum())) / UNKNOWN.deviation
    return replace(unknown, deviation=unknown.deviation * float(np.clip(seen, MIN_UNKNOWN, 1.0)))


def _scatter(medians: pd.Series[float], unknown: Scatter) -> Scatter:
    """Return the scatter of visits from their `medians` (logarithms); `unknown` if no cell was visited twice.

    A few cells do not determine how much variances of cells differ: `VARIANCE_FREEDOM` is assumed. Their mean variance
    is then averaged with that of `unknown`, uncertain by `PRIOR_OFF`: as logarithms, weighted by precision.
    """
    cell = list(range(medians.index.nlevels - 1))
    variances, freedom = _variances(medians.groupby(level=cell))
    found = np.maximum(variances, MIN_SCATTER**2)
    if not len(found):
        return unknown
    # scipy.optimize is imported late: the import alone takes longer than the explanation of a profiler's trace.
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    def bias(freedom: Any) -> Any:
        """Return the bias of the logarithm of a variance that has `freedom` degrees of freedom."""
        return digamma(freedom / 2) - np.log(freedom / 2)

    logs = np.log(found) - bias(freedom)
    min_freedom, max_freedom = DEGREES_OF_FREEDOM
    max_freedom = min(max_freedom, max(min_freedom, float(freedom.sum())))
    if len(found) < MIN_CELLS:
        prior = 2 * np.log(unknown.deviation) - bias(unknown.freedom)
        spread = polygamma(1, VARIANCE_FREEDOM / 2)
        sure = np.append(1 / (spread + polygamma(1, freedom / 2)), 1 / PRIOR_OFF)
        mean, more = float(np.average(np.append(logs, prior), weights=sure)), float(spread + 1 / sure.sum())
    else:
        mean, more = float(logs.mean()), float(np.var(logs, ddof=1) - polygamma(1, freedom / 2).mean())
    if more <= polygamma(1, max_freedom / 2):
        return Scatter(float(np.exp(mean / 2)), max_freedom)
    known = float(brentq(lambda half: polygamma(1, half) - more, 1e-3, max_freedom / 2)) * 2
    known = max(known, min_freedom)
    return Scatter(float(np.exp((mean + bias(known)) / 2)), known)


def _rounds(medians: pd.Series[float]) -> Rounds | None:
    """Estimate the slowdown of each round of visits; None if there are few rounds, or if rounds do not differ.

    Only rounds with at least half of the repeatedly visited cells are used, and only cells visited in each of them.
    Cells with less scatter weigh more; an uncertain slowdown is shrunk towards none.
    """
    table = medians.unstack()
    table = table[table.count(axis=1) > 1]
    shared = table.columns[table.count() >= max(MIN_CELLS, len(table) / 2)]
    table = table[shared].dropna()
    if len(shared) < MIN_ROUNDS or len(table) < MIN_CELLS:
        return None
    apart = table.to_numpy() - table.mean(axis=1).to_numpy()[:, None]
    residuals = apart - apart.mean(axis=0)
    variances = (residuals**2).sum(axis=1) / (len(shared) - 1) * len(table) / (len(table) - 1)
    weights = 1 / (variances + np.median(variances) + MIN_SCATTER**2)
    effects = weights @ apart / weights.sum()
    doubt = float((weights**2) @ variances / weights.sum() ** 2)
    true_variance = float(effects.var(ddof=1)) - doubt
    if true_variance <= 0:
        return None
    part = true_variance / (true_variance + doubt)
    shrunk: dict[object, float] = dict(zip(shared, map(float, part * effects), strict=True))
    return Rounds(shrunk, float(np.sqrt(true_variance)), part * float((weights**2).sum() / weights.sum() ** 2))


def bootstrap(
    values: npt.ArrayLike,
    visits: npt.ArrayLike,
    random: np.random.Generator,
    statistic: Callable[..., Reals] = np.median,
    usual: Scatter | Composed = UNKNOWN,
) -> Ensemble:
    """Return the ensemble of a mean over visits; each visit counts by the `statistic` of its `values`.

    `values` is [observations, ...], `visits` has the visit of each observation (`visits_of`). Intervals come from the
    differences between visits (placement, neighbours, state of the machine), not from those between iterations. A few
    visits may agree by chance: a variance below the `usual` one is raised towards it, weighted by degrees of freedom
    (moderated t; Smyth 2004). All quantities of one call deviate together, as in the visits. A single visit contributes
    the scatter of its iterations. Positive values stay positive.

    If `usual` is `Composed`, the columns of `values` are the parts, their sum, and columns that deviate with parts. The
    variance of each part is raised by itself, so that its share in the sum is not too certain.
    """
    values = np.asarray(values, dtype=np.float64)
    of_total = usual.total if isinstance(usual, Composed) else usual
    labels, group = np.unique(np.asarray(visits), return_inverse=True)
    order = np.argsort(group, kind="stable")
    parts = np.split(values[order], np.cumsum(np.bincount(group))[:-1])
    each = np.stack([np.asarray(statistic(part, axis=0)) for part in parts])
    count, value = len(each), each.mean(axis=0)
    shape = (REPLICATES, *[1] * value.ndim)
    if of_total.rounds:
        each = each / of_total.rounds.factors(labels).reshape(-1, *shape[1:])
    composed = usual if isinstance(usual, Composed) and np.isfinite(value).all() else None
    freedom = count - 1 + of_total.freedom
    tails = np.sqrt(freedom / random.chisquare(freedom, size=shape) / count)
    common_factor = tails * random.standard_normal(shape)
    off = each - each.mean(axis=0)
    if of_total.rounds:
        off = off * of_total.rounds.wider
    own = (off**2).sum(axis=0) / max(1, count - 1)
    lacking = _missing_variance(own, value, of_total, count)
    if count == 1:
        apart = _bootstrapped(parts[0], statistic, random) - value
    else:
        apart = tails * np.tensordot(random.standard_normal((REPLICATES, count)), off, axes=1) / np.sqrt(count - 1)
    if composed:
        apart = _with_missing_variance(apart, own, value, count, common_factor, lacking, composed, random)
    else:
        apart = apart + common_factor * np.sqrt(lacking)
    if of_total.rounds:
        apart = apart + value * of_total.rounds.drawn(labels).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_ratio = value * np.exp(np.clip(apart / value, -MAX_DEVIATION, MAX_DEVIATION))
    found = np.concatenate([value[None], np.where(value > 0, by_ratio, value + apart)])
    if composed:
        found[:, len(composed.parts)] = found[:, : len(composed.parts)].sum(axis=1)
    return found


def _missing_variance(own: Reals, value: Reals, usual: Scatter, count: int) -> Reals:
    """Return the variance that raises the `own` variance of a cell's `count` visits towards the `usual` one."""
    more = np.maximum((usual.deviation * value) ** 2 - own, 0.0)
    return np.asarray(more * usual.freedom / (count - 1 + usual.freedom))


def _with_missing_variance(
    apart: Reals,
    own: Reals,
    value: Reals,
    count: int,
    common_factor: Reals,
    lacking: Reals,
    usual: Composed,
    random: np.random.Generator,
) -> Reals:
    """Add to the deviations `apart` [REPLICATES, columns] the variance by which the total and each part fall short.

    One component is common to all parts, and makes their sum deviate as the total does; the rest is independent.
    """
    number = len(usual.parts)
    of_parts, total = value[:number], value[number]
    share = np.abs(of_parts) / max(np.abs(of_parts).sum(), 1e-300)
    needed = [float(_missing_variance(*at, count)) for at in zip(own, value, usual.parts, strict=False)]
    relative = np.sqrt(np.divide(needed, of_parts**2, out=np.zeros(number), where=of_parts != 0))
    cross_terms = 1 - float((share**2).sum())
    of_total = float(lacking[number]) / total**2 if total else 0.0
    both = max(0.0, of_total - float((share**2) @ (relative**2))) / cross_terms if cross_terms > 0 else 0.0
    joint = np.minimum(np.sqrt(both), relative)
    freedom = np.array([count - 1 + part.freedom for part in usual.parts])
    tails = np.sqrt(freedom / random.chisquare(freedom, size=(REPLICATES, number)) / count)
    independent = tails * random.standard_normal((REPLICATES, number)) * np.sqrt(relative**2 - joint**2)
    added = common_factor * joint + independent
    wanted = apart[:, [number]] + common_factor * np.sqrt(lacking[number])
    apart[:, :number] += added * of_parts
    more = wanted - apart[:, :number].sum(axis=1, keepdims=True)
    apart[:, :number] += more * share
    apart[:, [number]] = wanted
    factor = more / total if total else np.zeros_like(more)
    for column, members in enumerate(usual.members, start=number + 1):
        of_members = of_parts[members]
        moved = added[:, members] @ of_members / of_members.sum() if of_members.sum() > 0 else 0.0
        apart[:, column] += value[column] * (moved + factor[:, 0])
    return apart


def resampled(values: npt.ArrayLike, random: np.random.Generator, statistic: Callable[..., Reals]) -> Ensemble:
    """Return the ensemble of a statistic of independent `values`; its replicates are NaN below `MIN_VALUES` values."""
    values = np.asarray(values, dtype=np.float64)
    few = len(values) < MIN_VALUES
    replicates = np.full(REPLICATES, np.nan) if few else _bootstrapped(values, statistic, random)
    return np.concatenate([[statistic(values, axis=0)], replicates])


def _bootstrapped(values: Reals, statistic: Callable[..., Reals], random: np.random.Generator) -> Reals:
    """Return the statistic of resampled observations of a visit, [REPLICATES, ...].

    At most `MANY` observations are drawn, to bound the cost. If a visit has more, the deviations of replicates are too
    large, and are divided by the root of (observations / `MANY`): m out of n bootstrap (Politis & Romano 1994).
    """
    drawn = min(len(values), MANY)
    shrinking = np.sqrt(drawn / len(values))
    value = np.asarray(statistic(values, axis=0))
    # Replicates are drawn in blocks: all of them at once would take too much memory.
    size = max(1, AT_ONCE // max(1, drawn * int(np.prod(values.shape[1:]))))
    found = []
    for begin in range(0, REPLICATES, size):
        indices = random.integers(len(values), size=(min(size, REPLICATES - begin), drawn))
        found.append(value + shrinking * (statistic(values[indices], axis=1) - value))
    return np.concatenate(found)


def visits_of(frame: pd.DataFrame) -> pd.Series[int]:
    """Return the visit of each row; with several repeats, the repeat: visits of one job are not independent."""
    if frame["repeat"].nunique() > 1:
        return frame["repeat"]
    return frame["visit"]


def is_duration(seconds: Ensemble) -> bool:
    """Return whether every entry of an ensemble is a duration: finite and positive."""
    return bool((np.isfinite(seconds) & (seconds > 0)).all())


def estimate(ensemble: Ensemble) -> Estimate:
    """Return value and 90 % interval of an ensemble [1 + REPLICATES]; the interval always contains the value."""
    value = float(ensemble[0])
    if np.isnan(ensemble).any():
        return Estimate(value)
    # Quantiles are not interpolated between replicates: some may be infinite, such as a limit without a serial part.
    replicates, ends = ensemble[1:], _tail_indices(len(ensemble) - 1)
    low, high = np.partition(replicates, ends)[ends]
    return Estimate(value, min(value, float(low)), max(value, float(high)))


@cache
def _tail_indices(count: int) -> npt.NDArray[np.intp]:
    """Return the indices of an interval's ends among `count` sorted replicates; faster than quantiles of each array."""
    return np.quantile(np.arange(count), _TAILS, method="inverted_cdf").astype(np.intp)


def columns(name: str, ensemble: Ensemble) -> dict[str, float]:
    """Return the columns of an ensemble in a model table, such as ``rate``, ``rate_low`` and ``rate_high``."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), estimate(ensemble), strict=True))


def columns_of(quantities: Mapping[str, Ensemble]) -> dict[str, float]:
    """Return the columns of several ensembles in a model table; see `columns`."""
    return {column: value for name, ensemble in quantities.items() for column, value in columns(name, ensemble).items()}
