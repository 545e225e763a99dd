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
MAX_DRAWN = 10_000
"""Maximum number of observations drawn from a visit."""
DRAWN_AT_ONCE = 100_000
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

_TAIL_PROBABILITIES = ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2)


class Estimate(NamedTuple):
    """A value and the ends of its 90 % interval; NaN if an end is unknown."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    def times(self, factor: float) -> Estimate:
        """Return the estimate multiplied by a factor."""
        return Estimate(*(factor * end for end in self))

    def inverse(self, numerator: float) -> Estimate:
        """Return `numerator` divided by the estimate."""
        return Estimate(numerator / self.value, numerator / self.high, numerator / self.low)

    @override
    def __str__(self) -> str:
        """Return the text ``1.81 (1.74–1.96)``; only the value if the interval is unknown."""
        ends = "" if np.isnan([self.low, self.high]).any() else f" ({number(self.low)}–{number(self.high)})"
        return number(self.value) + ends


def groups(frame: pd.DataFrame, columns: str | Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield each value of a column and the rows with this value; for several columns, each tuple of values."""
    yield from frame.groupby(columns if isinstance(columns, str) else list(columns))


def likely(probabilities: Sequence[float] | Reals) -> list[int]:
    """Return rising indices of the smallest set of outcomes of total probability `INTERVAL`; the first if some tie."""
    probability_order = np.argsort(-np.asarray(probabilities), kind="stable")
    reaches_interval = np.cumsum(np.asarray(probabilities)[probability_order]) >= INTERVAL - 1e-9
    return sorted(probability_order[: int(reaches_interval.argmax()) + 1].tolist())


def unknown_ensemble() -> Ensemble:
    """Return an ensemble whose entries are all NaN."""
    return np.full(1 + REPLICATES, np.nan)


def generator(seed: int, *key: object) -> np.random.Generator:
    """Return a random generator whose numbers depend only on `seed` and `key`, not on what other records there are."""
    return np.random.default_rng([seed, zlib.crc32(repr(key).encode())])


@dataclass(frozen=True)
class Rounds:
    """Slowdown of each round of visits: machines drift, and visits within a few minutes share a slowdown."""

    effects: Mapping[object, float]
    """Logarithmic slowdown of each round, by the label of its visits, shrunk by its uncertainty."""
    deviation: float
    """Standard deviation of the effects."""
    taken_share: float
    """Fraction of the visits' variance that estimated effects absorb by chance even if rounds are equal."""

    @property
    def widening_factor(self) -> float:
        """Factor by which deviations grow to correct for the variance that the effects absorbed."""
        return float(1 / np.sqrt(1 - self.taken_share))

    def factors(self, labels: Iterable[object]) -> Reals:
        """Return the slowdown of the rounds with these `labels`; 1 for unknown rounds."""
        return np.exp([self.effects.get(label, 0.0) for label in labels])

    def drawn(self, labels: Iterable[object]) -> Reals:
        """Return replicates of an error: how rounds affect the mean over visits with `labels`, as logs [REPLICATES].

        All cells share these replicates: they cancel in the ratio of two cells that were visited in the same rounds.
        """
        labels = list(labels)
        rng = generator(0, "rounds", *self.effects.items())
        freedom = len(self.effects) - 1 + ROUND_FREEDOM
        tail_factors = np.sqrt(freedom / rng.chisquare(freedom, size=REPLICATES))
        draws = dict(zip(self.effects, rng.standard_normal((len(self.effects), REPLICATES)), strict=True))
        round_draws = [draws[label] for label in labels if label in draws]
        return np.asarray(tail_factors * self.deviation * sum(round_draws, np.zeros(REPLICATES)) / len(labels))


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
class PartScatter:
    """Usual scatter between visits of a total time and of each part of it."""

    total: Scatter
    parts: Sequence[Scatter]
    members: Sequence[Sequence[int]]
    """For each column besides the total and its parts: indices of the parts with which it deviates."""


VISIT_PRIOR = Scatter(VISIT.deviation, VISIT.freedom)
"""Prior scatter if nothing was visited twice."""
PART_PRIOR = Scatter(np.sqrt(2) * VISIT_PRIOR.deviation, VISIT_PRIOR.freedom)
"""Prior scatter of a part of an iteration, which also varies independently of the other parts."""
VISIT_TO_ITERATION_SCATTER = 3.0
"""Assumed ratio of the scatter between visits to the scatter of iterations within a visit, if nothing was visited
twice. If the true ratio is 5, intervals of times contain the truth in 3 of 4 cases."""
MIN_PRIOR = 0.25
"""Lower bound of the prior scatter in units of `VISIT_PRIOR.deviation`: equal iterations carry no information on
placement and neighbours."""
MIN_SCATTER = 0.001
"""Lower bound of the standard deviation between visits: clocks and caches alone cause as much."""
FREEDOM_BOUNDS = (1.0, 50.0)
"""Bounds of the degrees of freedom that other cells add to a cell's own visits."""
MIN_CELLS = 3
"""Cells visited more than once that are needed to estimate how variances differ between cells."""
VARIANCE_FREEDOM = 8.0
"""Assumed similarity of the cells' variances if it cannot be estimated, in degrees of freedom."""
PRIOR_VARIANCE = 2.0
"""Variance of the logarithm of the prior's variance: its deviation may be wrong by a factor of 2, rarely of 4."""
ROUND_FREEDOM = 2.0
"""Weight of the prior that all rounds are equal, in degrees of freedom. With less weight, no slowdown would be found in
few visits; with more, slow rounds would often pass for a slow machine."""
NEGLIGIBLE_SHARE = 1e-4
"""Share of a total below which a part carries no information on scatter."""
MIN_ROUNDS = 3
"""Rounds needed to estimate how rounds differ."""


def scatter(frame: pd.DataFrame, key_columns: Sequence[str], column: str) -> Scatter:
    """Estimate the scatter between visits from all cells that were visited more than once.

    Rows of a cell are equal in `key_columns`. The variances of cells are modelled as inverse-gamma, with parameters
    from the mean and variance of their logarithms (Smyth 2004, "Linear models and empirical Bayes methods", 6.2).
    """
    logs = _VisitLogs.of(frame, key_columns)
    return _scatter_of_visits(logs.medians(column), _prior_scatter(*logs.within_visits(column), VISIT_PRIOR))


def scatter_of_parts(
    frame: pd.DataFrame, key_columns: Sequence[str], total: str, parts: Sequence[str], members: Sequence[Sequence[str]]
) -> PartScatter:
    """Estimate the scatter of the column `total` and of its `parts`, without the effects that visits of a round share.

    `members` is for columns that come after the parts: for each, the names of the parts with which it deviates.
    """
    logs = _VisitLogs.of(frame, key_columns)
    rounds = _rounds_of_visits(logs.medians(total)) if frame["repeat"].nunique() == 1 else None
    scatters = []
    for column in (total, *parts):
        medians = logs.medians(column, total)
        if rounds:
            medians = medians - np.log(rounds.factors(medians.index.get_level_values(-1)))
        unknown = VISIT_PRIOR if column == total else PART_PRIOR
        scatter_of_column = _scatter_of_visits(medians, _prior_scatter(*logs.within_visits(column, total), unknown))
        widening = rounds.widening_factor if rounds else 1.0
        scatters.append(replace(scatter_of_column, deviation=scatter_of_column.deviation * widening, rounds=rounds))
    return PartScatter(scatters[0], scatters[1:], [[list(parts).index(name) for name in names] for names in members])


@dataclass(frozen=True)
class _VisitLogs:
    """Logarithms of the times in a frame, grouped by visit."""

    frame: pd.DataFrame
    visit_index: pd.Series[int]
    """Index of each row's visit."""
    visits: pd.Index[Any]
    """Identification of visits: values of the grouping columns, and the visit number."""

    @classmethod
    def of(cls, frame: pd.DataFrame, key_columns: Sequence[str]) -> Self:
        """Group rows by the key columns and visit."""
        frame = frame.reset_index(drop=True)
        rows_by_visit = frame.groupby([*(frame[name] for name in key_columns), visits_of(frame)], dropna=False)
        return cls(frame, rows_by_visit.ngroup(), rows_by_visit.size().index)

    def medians(self, column: str, total: str = "") -> pd.Series[float]:
        """Return the median of each visit, from times above 0 and above `NEGLIGIBLE_SHARE` times the column `total`."""
        found: pd.Series[float] = self._positive_logs(column, total).median()
        return found.set_axis(self.visits[found.index])

    def within_visits(self, column: str, total: str = "") -> tuple[Reals, Reals]:
        """Return the variance of iterations within each visit, and its degrees of freedom."""
        return _variances(self._positive_logs(column, total))

    def _positive_logs(self, column: str, total: str) -> Any:
        times = self.frame[column]
        is_negligible = times <= NEGLIGIBLE_SHARE * self.frame[total] if total else times <= 0
        times = times[~is_negligible & (times > 0) & np.isfinite(times)]
        return np.log(times).groupby(self.visit_index[times.index])


def _variances(value_groups: Any) -> tuple[Reals, Reals]:
    """Return the variance of each group that has several values, and the variance's degrees of freedom."""
    counts = value_groups.count()
    is_repeated = counts > 1
    return value_groups.var()[is_repeated].to_numpy(), counts[is_repeated].to_numpy(dtype=np.float64) - 1


def _prior_scatter(variances: Reals, freedom: Reals, unknown: Scatter) -> Scatter:
    """Return the prior scatter of visits, used if no cell was visited twice: `unknown`, or less if iterations agree.

    `variances` are those of iterations within each visit, `freedom` their degrees of freedom.
    """
    if freedom.sum() < MIN_VALUES:
        return unknown
    ratio = VISIT_TO_ITERATION_SCATTER * np.sqrt(float(variances @ freedom / freedom.sum())) / VISIT_PRIOR.deviation
    return replace(unknown, deviation=unknown.deviation * float(np.clip(ratio, MIN_PRIOR, 1.0)))


def _scatter_of_visits(medians: pd.Series[float], unknown: Scatter) -> Scatter:
    """Return the scatter of visits from their `medians` (logarithms); `unknown` if no cell was visited twice.

    A few cells do not determine how much variances of cells differ: `VARIANCE_FREEDOM` is assumed. Their mean variance
    is then averaged with that of `unknown`, uncertain by `PRIOR_VARIANCE`: as logarithms, weighted by precision.
    """
    cell = list(range(medians.index.nlevels - 1))
    variances, freedom = _variances(medians.groupby(level=cell))
    positive_variances = np.maximum(variances, MIN_SCATTER**2)
    if not len(positive_variances):
        return unknown
    # scipy.optimize is imported late: the import alone takes longer than the explanation of a profiler's trace.
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    def bias(freedom: Any) -> Any:
        """Return the bias of the logarithm of a variance that has `freedom` degrees of freedom."""
        return digamma(freedom / 2) - np.log(freedom / 2)

    logs = np.log(positive_variances) - bias(freedom)
    min_freedom, max_freedom = FREEDOM_BOUNDS
    max_freedom = min(max_freedom, max(min_freedom, float(freedom.sum())))
    if len(positive_variances) < MIN_CELLS:
        prior = 2 * np.log(unknown.deviation) - bias(unknown.freedom)
        spread = polygamma(1, VARIANCE_FREEDOM / 2)
        precisions = np.append(1 / (spread + polygamma(1, freedom / 2)), 1 / PRIOR_VARIANCE)
        mean, rest = float(np.average(np.append(logs, prior), weights=precisions)), float(spread + 1 / precisions.sum())
    else:
        mean, rest = float(logs.mean()), float(np.var(logs, ddof=1) - polygamma(1, freedom / 2).mean())
    if rest <= polygamma(1, max_freedom / 2):
        return Scatter(float(np.exp(mean / 2)), max_freedom)
    freedom_of_cells = float(brentq(lambda half: polygamma(1, half) - rest, 1e-3, max_freedom / 2)) * 2
    freedom_of_cells = max(freedom_of_cells, min_freedom)
    return Scatter(float(np.exp((mean + bias(freedom_of_cells)) / 2)), freedom_of_cells)


def _rounds_of_visits(medians: pd.Series[float]) -> Rounds | None:
    """Estimate the slowdown of each round of visits; None if there are few rounds, or if rounds do not differ.

    Only rounds with at least half of the repeatedly visited cells are used, and only cells visited in each of them.
    Cells with less scatter weigh more; an uncertain slowdown is shrunk towards none.
    """
    table = medians.unstack()
    table = table[table.count(axis=1) > 1]
    shared_rounds = table.columns[table.count() >= max(MIN_CELLS, len(table) / 2)]
    table = table[shared_rounds].dropna()
    if len(shared_rounds) < MIN_ROUNDS or len(table) < MIN_CELLS:
        return None
    deviations = table.to_numpy() - table.mean(axis=1).to_numpy()[:, None]
    residuals = deviations - deviations.mean(axis=0)
    variances = (residuals**2).sum(axis=1) / (len(shared_rounds) - 1) * len(table) / (len(table) - 1)
    weights = 1 / (variances + np.median(variances) + MIN_SCATTER**2)
    effects = weights @ deviations / weights.sum()
    uncertainty = float((weights**2) @ variances / weights.sum() ** 2)
    true_variance = float(effects.var(ddof=1)) - uncertainty
    if true_variance <= 0:
        return None
    share = true_variance / (true_variance + uncertainty)
    shrunk_effects: dict[object, float] = dict(zip(shared_rounds, map(float, share * effects), strict=True))
    return Rounds(shrunk_effects, float(np.sqrt(true_variance)), share * float((weights**2).sum() / weights.sum() ** 2))


def bootstrap(
    values: npt.ArrayLike,
    visits: npt.ArrayLike,
    rng: np.random.Generator,
    statistic: Callable[..., Reals] = np.median,
    prior: Scatter | PartScatter = VISIT_PRIOR,
) -> Ensemble:
    """Return the ensemble of a mean over visits; each visit counts by the `statistic` of its `values`.

    `values` is [observations, ...], `visits` has the visit of each observation (`visits_of`). Intervals come from the
    differences between visits (placement, neighbours, state of the machine), not from those between iterations. A few
    visits may agree by chance: a variance below that of `prior` is raised towards it, weighted by degrees of freedom
    (moderated t; Smyth 2004). All quantities of one call deviate together, as in the visits. A single visit contributes
    the scatter of its iterations. Positive values stay positive.

    If `prior` is `PartScatter`, the columns of `values` are parts, their sum, and columns that deviate with parts. The
    variance of each part is raised by itself, so that its share in the sum is not too certain.
    """
    values = np.asarray(values, dtype=np.float64)
    total_scatter = prior.total if isinstance(prior, PartScatter) else prior
    labels, group = np.unique(np.asarray(visits), return_inverse=True)
    visit_order = np.argsort(group, kind="stable")
    parts = np.split(values[visit_order], np.cumsum(np.bincount(group))[:-1])
    visit_values = np.stack([np.asarray(statistic(part, axis=0)) for part in parts])
    count, value = len(visit_values), visit_values.mean(axis=0)
    shape = (REPLICATES, *[1] * value.ndim)
    if total_scatter.rounds:
        visit_values = visit_values / total_scatter.rounds.factors(labels).reshape(-1, *shape[1:])
    composed = prior if isinstance(prior, PartScatter) and np.isfinite(value).all() else None
    freedom = count - 1 + total_scatter.freedom
    tails = np.sqrt(freedom / rng.chisquare(freedom, size=shape) / count)
    common_factor = tails * rng.standard_normal(shape)
    residuals = visit_values - visit_values.mean(axis=0)
    if total_scatter.rounds:
        residuals = residuals * total_scatter.rounds.widening_factor
    own_variance = (residuals**2).sum(axis=0) / max(1, count - 1)
    missing = _missing_variance(own_variance, value, total_scatter, count)
    if count == 1:
        offsets = _bootstrapped_statistic(parts[0], statistic, rng) - value
    else:
        offsets = tails * np.tensordot(rng.standard_normal((REPLICATES, count)), residuals, axes=1) / np.sqrt(count - 1)
    if composed:
        offsets = _with_missing_variance(offsets, own_variance, value, count, common_factor, missing, composed, rng)
    else:
        offsets = offsets + common_factor * np.sqrt(missing)
    if total_scatter.rounds:
        offsets = offsets + value * total_scatter.rounds.drawn(labels).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled_values = value * np.exp(np.clip(offsets / value, -MAX_DEVIATION, MAX_DEVIATION))
    found = np.concatenate([value[None], np.where(value > 0, scaled_values, value + offsets)])
    if composed:
        found[:, len(composed.parts)] = found[:, : len(composed.parts)].sum(axis=1)
    return found


def _missing_variance(own_variance: Reals, value: Reals, prior: Scatter, count: int) -> Reals:
    """Return the variance by which the variance of a cell's `count` visits is raised towards that of the `prior`."""
    excess = np.maximum((prior.deviation * value) ** 2 - own_variance, 0.0)
    return np.asarray(excess * prior.freedom / (count - 1 + prior.freedom))


def _with_missing_variance(
    deviations: Reals,
    own_variance: Reals,
    value: Reals,
    count: int,
    common_factor: Reals,
    missing_variance: Reals,
    prior: PartScatter,
    rng: np.random.Generator,
) -> Reals:
    """Add to `deviations` [REPLICATES, columns] the variance that the total and each part lack.

    One component is common to all parts: with it, their sum deviates as the total does. The rest is independent.
    """
    parts_count = len(prior.parts)
    part_values, total = value[:parts_count], value[parts_count]
    share = np.abs(part_values) / max(np.abs(part_values).sum(), 1e-300)
    variance_gaps = [float(_missing_variance(*at, count)) for at in zip(own_variance, value, prior.parts, strict=False)]
    spread = np.sqrt(np.divide(variance_gaps, part_values**2, out=np.zeros(parts_count), where=part_values != 0))
    cross_terms = 1 - float((share**2).sum())
    total_variance = float(missing_variance[parts_count]) / total**2 if total else 0.0
    shared = max(0.0, total_variance - float((share**2) @ (spread**2))) / cross_terms if cross_terms > 0 else 0.0
    common_spread = np.minimum(np.sqrt(shared), spread)
    freedom = np.array([count - 1 + part.freedom for part in prior.parts])
    tail_factors = np.sqrt(freedom / rng.chisquare(freedom, size=(REPLICATES, parts_count)) / count)
    own_draws = tail_factors * rng.standard_normal((REPLICATES, parts_count)) * np.sqrt(spread**2 - common_spread**2)
    added_draws = common_factor * common_spread + own_draws
    total_deviations = deviations[:, [parts_count]] + common_factor * np.sqrt(missing_variance[parts_count])
    deviations[:, :parts_count] += added_draws * part_values
    remaining_deviations = total_deviations - deviations[:, :parts_count].sum(axis=1, keepdims=True)
    deviations[:, :parts_count] += remaining_deviations * share
    deviations[:, [parts_count]] = total_deviations
    factor = remaining_deviations / total if total else np.zeros_like(remaining_deviations)
    for column, members in enumerate(prior.members, start=parts_count + 1):
        member_values = part_values[members]
        member_draws = added_draws[:, members] @ member_values / member_values.sum() if member_values.sum() > 0 else 0.0
        deviations[:, column] += value[column] * (member_draws + factor[:, 0])
    return deviations


def resampled(values: npt.ArrayLike, rng: np.random.Generator, statistic: Callable[..., Reals]) -> Ensemble:
    """Return the ensemble of a statistic of independent `values`; its replicates are NaN below `MIN_VALUES` values."""
    values = np.asarray(values, dtype=np.float64)
    has_too_few_values = len(values) < MIN_VALUES
    replicates = np.full(REPLICATES, np.nan) if has_too_few_values else _bootstrapped_statistic(values, statistic, rng)
    return np.concatenate([[statistic(values, axis=0)], replicates])


def _bootstrapped_statistic(values: Reals, statistic: Callable[..., Reals], rng: np.random.Generator) -> Reals:
    """Return the statistic of resampled observations of a visit, [REPLICATES, ...].

    At most `MAX_DRAWN` observations are drawn, to bound the cost. If a visit has more, deviations of replicates are too
    large, and are divided by the root of (observations / `MAX_DRAWN`): m out of n bootstrap (Politis & Romano 1994).
    """
    draw_count = min(len(values), MAX_DRAWN)
    shrinking_factor = np.sqrt(draw_count / len(values))
    value = np.asarray(statistic(values, axis=0))
    # Replicates are drawn in blocks: all of them at once would take too much memory.
    block_size = max(1, DRAWN_AT_ONCE // max(1, draw_count * int(np.prod(values.shape[1:]))))
    found = []
    for begin in range(0, REPLICATES, block_size):
        indices = rng.integers(len(values), size=(min(block_size, REPLICATES - begin), draw_count))
        found.append(value + shrinking_factor * (statistic(values[indices], axis=1) - value))
    return np.concatenate(found)


def visits_of(frame: pd.DataFrame) -> pd.Series[int]:
    """Return the visit of each row, or the repeat if there are several: visits of one job are not independent."""
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
    return np.quantile(np.arange(count), _TAIL_PROBABILITIES, method="inverted_cdf").astype(np.intp)


def columns(name: str, ensemble: Ensemble) -> dict[str, float]:
    """Return the columns of an ensemble in a model table, such as ``rate``, ``rate_low`` and ``rate_high``."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), estimate(ensemble), strict=True))


def columns_of(quantities: Mapping[str, Ensemble]) -> dict[str, float]:
    """Return the columns of several ensembles in a model table; see `columns`."""
    return {column: value for name, ensemble in quantities.items() for column, value in columns(name, ensemble).items()}
