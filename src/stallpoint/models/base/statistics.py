"""Medians with intervals over visits and iterations, and the small fits all models share.

Every uncertain quantity is an *ensemble*: an array whose first entry along axis 0 is the value from the records and
whose other `REPLICATES` entries are what it may as well be (`bootstrap`). Models compute with whole ensembles, so that
intervals follow from the inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Self, TypeAlias

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

SAME_WITHIN = 0.05
"""Times, or rates, are the same where the whole interval of their ratio is within a factor of 1 + this: equal studies
minutes apart differ by about as much (benchmark `repeatability`), and nobody acts on less."""

FEWEST_VALUES = 4
"""Independent values without which they do not tell an interval."""
MOST_APART = 3.0
"""Largest deviation of a replicate, as a logarithm: what is farther off tells nothing more."""
MOST_BELIEVED = 20.0
"""Largest factor that is believed."""

_SMALLEST_SCATTER = 1e-4
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
class Rounds:
    """What visits of one round, which took turns within minutes, share: a machine that drifts slows all of them."""

    effects: Mapping[object, float]
    """Of each round, by the label of its visits: the logarithm by which they are longer, as far as that is known."""
    deviation: float
    """Standard deviation of the effects."""
    taken: float
    """Part of the variance of visits that went into the effects where there are none."""

    @property
    def wider(self) -> float:
        """Factor on deviations that effects were taken off from, for what the effects took of them."""
        return float(1 / np.sqrt(1 - self.taken))

    def factors(self, labels: Iterable[object]) -> Reals:
        """By how much visits of these rounds are longer; 1 of others."""
        return np.exp([self.effects.get(label, 0.0) for label in labels])

    def drawn(self, labels: Iterable[object]) -> Reals:
        """Replicates of the logarithm of what is left of them in a mean over visits, [REPLICATES].

        They are the same for all cells, so that ratios of cells visited in the same rounds do not have it.
        """
        labels = list(labels)
        random = generator(0, "rounds", *self.effects.items())
        freedom = len(self.effects) - 1 + ROUNDS_ALIKE
        tails = np.sqrt(freedom / random.chisquare(freedom, size=REPLICATES))
        draws = dict(zip(self.effects, random.standard_normal((len(self.effects), REPLICATES)), strict=True))
        found = [draws[label] for label in labels if label in draws]
        return np.asarray(tails * self.deviation * sum(found, np.zeros(REPLICATES)) / len(labels))


@dataclass(frozen=True)
class Scatter:
    """How far visits to one cell lie apart on a machine: a prior for what a cell's own few visits say of it."""

    deviation: float
    """Standard deviation of the logarithm of a visit's time."""
    freedom: float
    """How sure that is: as an estimate with so many degrees of freedom."""
    rounds: Rounds | None = None
    """What `deviation` does not hold, as all cells of a round share it."""


@dataclass(frozen=True)
class Composed:
    """Scatter between visits of a sum and of each of its parts."""

    whole: Scatter
    parts: Sequence[Scatter]
    members: Sequence[Sequence[int]]
    """For each further column the parts, by their place, that it moves with."""


UNKNOWN = Scatter(0.08, 4.0)
"""Where nothing was visited twice. Visits on shared machines were 1 to 10 % apart: at 10 % nine of ten intervals from
one visit hold the truth (benchmark `truth`); at 5 % they would be 7 of 10."""
UNKNOWN_PART = Scatter(np.sqrt(2) * UNKNOWN.deviation, UNKNOWN.freedom)
"""The same of a part of an iteration: beside what all parts share as much again by itself."""
BETWEEN_OVER_WITHIN = 3.0
"""Times as far as the iterations of a visit, visits are taken to lie apart where nothing was visited twice: assumed, as
no study with a single visit tells it. Where it is 5 times, intervals of times hold the truth in 3 of 4 cases."""
LEAST_UNKNOWN = 0.25
"""Part of `UNKNOWN.deviation` that is taken at least then: iterations alike do not tell of placement and neighbours."""
LEAST_SCATTER = 0.001
"""Standard deviation below which visits are not taken to lie: clocks and caches alone make as much."""
DEGREES_OF_FREEDOM = (1.0, 50.0)
"""Fewest and most degrees of freedom that other cells add to those of a cell's own visits; no more than they have."""
ENOUGH_CELLS = 3
"""Cells visited more than once without which the scatter's own scatter cannot be told."""
CELLS_ALIKE = 8.0
"""How alike the variances of cells are where it cannot be told: as estimates with so many degrees of freedom."""
PRIOR_OFF = 2.0
"""Variance of the logarithm of the prior's variance: its deviation may be off by a factor of 2, and seldom of 4."""
ROUNDS_ALIKE = 2.0
"""How sure it is before measuring that rounds of visits do not differ as a whole, in degrees of freedom. With less, a
few visits would find no slowdown; with more, slow rounds would often be taken for a slow machine."""
NEGLIGIBLE = 1e-4
"""Share of a whole below which a part does not tell how far such parts lie apart."""
FEWEST_ROUNDS = 3
"""Rounds without which they do not tell how far they differ."""


def scatter(frame: pd.DataFrame, by: Sequence[str], column: str) -> Scatter:
    """How far visits lie apart, from all cells (rows alike in the columns `by`) that were visited more than once.

    Variances of cells are taken to be inverse-gamma distributed; its parameters follow from the mean and the variance
    of their logarithms (Smyth 2004, "Linear models and empirical Bayes methods", section 6.2).
    """
    logs = _Logs.of(frame, by)
    return _scatter(logs.medians(column), _unvisited(*logs.within(column), UNKNOWN))


def scatter_of_parts(
    frame: pd.DataFrame, by: Sequence[str], whole: str, parts: Sequence[str], members: Sequence[Sequence[str]]
) -> Composed:
    """The scatter of the column `whole` and of the `parts` it is the sum of, less what rounds of visits share.

    Further columns move with their `members` among the parts.
    """
    logs = _Logs.of(frame, by)
    rounds = _rounds(logs.medians(whole)) if frame["repeat"].nunique() == 1 else None
    found = []
    for column in (whole, *parts):
        medians = logs.medians(column, whole)
        if rounds:
            medians = medians - np.log(rounds.factors(medians.index.get_level_values(-1)))
        unknown = UNKNOWN if column == whole else UNKNOWN_PART
        usual = _scatter(medians, _unvisited(*logs.within(column, whole), unknown))
        wider = rounds.wider if rounds else 1.0
        found.append(replace(usual, deviation=usual.deviation * wider, rounds=rounds))
    return Composed(found[0], found[1:], [[list(parts).index(name) for name in of] for of in members])


@dataclass(frozen=True)
class _Logs:
    """Logarithms of times by visit."""

    frame: pd.DataFrame
    place: pd.Series[int]
    """Of each row the place of its visit."""
    visits: pd.Index[Any]
    """What tells visits apart: values of some columns, and the visit's own."""

    @classmethod
    def of(cls, frame: pd.DataFrame, by: Sequence[str]) -> Self:
        """Visits to rows alike in the columns `by`."""
        frame = frame.reset_index(drop=True)
        grouped = frame.groupby([*(frame[name] for name in by), visits_of(frame)], dropna=False)
        return cls(frame, grouped.ngroup(), grouped.size().index)

    def medians(self, column: str, whole: str = "") -> pd.Series[float]:
        """Of each visit that has times above 0, and above `NEGLIGIBLE` of the `whole`."""
        found: pd.Series[float] = self._of(column, whole).median()
        return found.set_axis(self.visits[found.index])

    def within(self, column: str, whole: str = "") -> tuple[Reals, Reals]:
        """Variance of the times of each visit that has several, and its degrees of freedom."""
        found = self._of(column, whole).agg(["var", "count"]).query("count > 1")
        return found["var"].to_numpy(), found["count"].to_numpy(dtype=np.float64) - 1

    def _of(self, column: str, whole: str) -> Any:
        times = self.frame[column]
        negligible = times <= NEGLIGIBLE * self.frame[whole] if whole else times <= 0
        times = times[~negligible & (times > 0) & np.isfinite(times)]
        return np.log(times).groupby(self.place[times.index])


def _unvisited(within: Reals, freedom: Reals, unknown: Scatter) -> Scatter:
    """Return the prior scatter of visits before any cell was visited twice: `unknown`, or less if iterations agree.

    `within` are variances of the iterations of visits.
    """
    if freedom.sum() < FEWEST_VALUES:
        return unknown
    seen = BETWEEN_OVER_WITHIN * np.sqrt(float(within @ freedom / freedom.sum())) / UNKNOWN.deviation
    return replace(unknown, deviation=unknown.deviation * float(np.clip(seen, LEAST_UNKNOWN, 1.0)))


def _scatter(medians: pd.Series[float], unknown: Scatter) -> Scatter:
    """The scatter of visits with these `medians` of logarithms; `unknown` before anything was visited twice.

    The variances of few cells do not tell how much variances differ (`CELLS_ALIKE`), nor alone how large they are: the
    logarithm of `unknown`'s, off by `PRIOR_OFF`, counts beside theirs, each for how sure it is.
    """
    cell = list(range(medians.index.nlevels - 1))
    variances = medians.groupby(level=cell).agg(["var", "count"]).query("count > 1")
    freedom = variances["count"].to_numpy(dtype=np.float64) - 1
    found = np.maximum(variances["var"].to_numpy(), LEAST_SCATTER**2)
    if not len(found):
        return unknown
    # Here, as importing it takes longer than a trace of a profiler is explained in.
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    def bias(freedom: Any) -> Any:
        """Of the logarithm of a variance with so many degrees of freedom."""
        return digamma(freedom / 2) - np.log(freedom / 2)

    logs = np.log(found) - bias(freedom)
    least, most = DEGREES_OF_FREEDOM
    most = min(most, max(least, float(freedom.sum())))
    if len(found) < ENOUGH_CELLS:
        prior = 2 * np.log(unknown.deviation) - bias(unknown.freedom)
        alike = polygamma(1, CELLS_ALIKE / 2)
        sure = np.append(1 / (alike + polygamma(1, freedom / 2)), 1 / PRIOR_OFF)
        mean, more = float(np.average(np.append(logs, prior), weights=sure)), float(alike + 1 / sure.sum())
    else:
        mean, more = float(logs.mean()), float(np.var(logs, ddof=1) - polygamma(1, freedom / 2).mean())
    if more <= polygamma(1, most / 2):
        return Scatter(float(np.exp(mean / 2)), most)
    known = float(brentq(lambda half: polygamma(1, half) - more, 1e-3, most / 2)) * 2
    known = max(known, least)
    return Scatter(float(np.exp((mean + bias(known)) / 2)), known)


def _rounds(medians: pd.Series[float]) -> Rounds | None:
    """What rounds of visits differ by as a whole; None where they do not, or are too few to tell.

    From cells visited in all rounds that at least half of the cells visited twice were visited in; a quiet cell counts
    for more. Effects are nearer to 0 the less sure they are.
    """
    table = medians.unstack()
    table = table[table.count(axis=1) > 1]
    shared = table.columns[table.count() >= max(ENOUGH_CELLS, len(table) / 2)]
    table = table[shared].dropna()
    if len(shared) < FEWEST_ROUNDS or len(table) < ENOUGH_CELLS:
        return None
    apart = table.to_numpy() - table.mean(axis=1).to_numpy()[:, None]
    left = apart - apart.mean(axis=0)
    variances = (left**2).sum(axis=1) / (len(shared) - 1) * len(table) / (len(table) - 1)
    weights = 1 / (variances + np.median(variances) + LEAST_SCATTER**2)
    effects = weights @ apart / weights.sum()
    doubt = float((weights**2) @ variances / weights.sum() ** 2)
    real = float(effects.var(ddof=1)) - doubt
    if real <= 0:
        return None
    part = real / (real + doubt)
    nearer: dict[object, float] = dict(zip(shared, map(float, part * effects), strict=True))
    return Rounds(nearer, float(np.sqrt(real)), part * float((weights**2).sum() / weights.sum() ** 2))


def bootstrap(
    values: npt.ArrayLike,
    visits: npt.ArrayLike,
    random: np.random.Generator,
    statistic: Callable[..., Reals] = np.median,
    usual: Scatter | Composed = UNKNOWN,
) -> Ensemble:
    """Mean over visits (`visits_of`) of the statistic of `values` [observations, ...] in each: [1 + REPLICATES, ...].

    What differs between visits (placement, neighbours, the state of the machine) makes the interval, not what differs
    between iterations. Few visits may lie close together by chance: a variance below that of `usual` visits is brought
    nearer to it, each for its degrees of freedom, and deviations are those of Student's t with the degrees of both
    (moderated t; Smyth 2004). All quantities of one call deviate together: as the cell's own visits do, and what is
    added is a factor on all of them. A single visit adds what its iterations differ by. What is above 0 stays so.

    Where `usual` is `Composed`, the columns of `values` are the parts, their sum, and those that move with parts. To
    each part is added what it lacks by itself, so that its share in the sum is as uncertain as it is.
    """
    values = np.asarray(values, dtype=np.float64)
    whole = usual.whole if isinstance(usual, Composed) else usual
    labels, group = np.unique(np.asarray(visits), return_inverse=True)
    order = np.argsort(group, kind="stable")
    parts = np.split(values[order], np.cumsum(np.bincount(group))[:-1])
    each = np.stack([np.asarray(statistic(part, axis=0)) for part in parts])
    count, value = len(each), each.mean(axis=0)
    shape = (REPLICATES, *[1] * value.ndim)
    if whole.rounds:
        each = each / whole.rounds.factors(labels).reshape(-1, *shape[1:])
    composed = usual if isinstance(usual, Composed) and np.isfinite(value).all() else None
    freedom = count - 1 + whole.freedom
    tails = np.sqrt(freedom / random.chisquare(freedom, size=shape) / count)
    common = tails * random.standard_normal(shape)
    off = each - each.mean(axis=0)
    if whole.rounds:
        off = off * whole.rounds.wider
    own = (off**2).sum(axis=0) / max(1, count - 1)
    lacking = _lacking(own, value, whole, count)
    if count == 1:
        apart = _redrawn(parts[0], statistic, random) - value
    else:
        apart = tails * np.tensordot(random.standard_normal((REPLICATES, count)), off, axes=1) / np.sqrt(count - 1)
    if composed:
        apart = _by_parts(apart, own, value, count, common, lacking, composed, random)
    else:
        apart = apart + common * np.sqrt(lacking)
    if whole.rounds:
        apart = apart + value * whole.rounds.drawn(labels).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_ratio = value * np.exp(np.clip(apart / value, -MOST_APART, MOST_APART))
    found = np.concatenate([value[None], np.where(value > 0, by_ratio, value + apart)])
    if composed:
        found[:, len(composed.parts)] = found[:, : len(composed.parts)].sum(axis=1)
    return found


def _lacking(own: Reals, value: Reals, usual: Scatter, count: int) -> Reals:
    """What the variance of `count` visits lacks to be nearer to the usual one."""
    more = np.maximum((usual.deviation * value) ** 2 - own, 0.0)
    return np.asarray(more * usual.freedom / (count - 1 + usual.freedom))


def _by_parts(
    apart: Reals,
    own: Reals,
    value: Reals,
    count: int,
    common: Reals,
    lacking: Reals,
    usual: Composed,
    random: np.random.Generator,
) -> Reals:
    """Deviations [REPLICATES, columns] with what parts lack by themselves; the whole has what it lacks in `common`.

    Parts have in common what makes their sum deviate as the whole does, the rest each by itself.
    """
    number = len(usual.parts)
    of_parts, total = value[:number], value[number]
    share = np.abs(of_parts) / max(np.abs(of_parts).sum(), 1e-300)
    needed = [float(_lacking(*at, count)) for at in zip(own, value, usual.parts, strict=False)]
    relative = np.sqrt(np.divide(needed, of_parts**2, out=np.zeros(number), where=of_parts != 0))
    alone = 1 - float((share**2).sum())
    of_whole = float(lacking[number]) / total**2 if total else 0.0
    both = max(0.0, of_whole - float((share**2) @ (relative**2))) / alone if alone > 0 else 0.0
    together = np.minimum(np.sqrt(both), relative)
    freedom = np.array([count - 1 + part.freedom for part in usual.parts])
    tails = np.sqrt(freedom / random.chisquare(freedom, size=(REPLICATES, number)) / count)
    itself = tails * random.standard_normal((REPLICATES, number)) * np.sqrt(relative**2 - together**2)
    added = common * together + itself
    wanted = apart[:, [number]] + common * np.sqrt(lacking[number])
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


def as_of_one_kind(values: Reals, deviations: Reals) -> Reals:
    """What values of one kind are expected to be, each known to a standard deviation: nearer to each other.

    They are taken to be normal about a mean that is not known, with a scatter that is not known either and counts for
    less beyond `SAME_WITHIN` (half-Cauchy; Gelman 2006). So the largest of many that only chance tells apart is as
    large as the others, however it was chosen (Efron & Morris 1975), and one that is surely larger stays so.
    """
    scatters = np.concatenate([[0.0], np.geomspace(_SMALLEST_SCATTER, 1.0, 100)])
    total = deviations**2 + scatters[:, None] ** 2
    known = (1 / total).sum(axis=1)
    means = (values / total).sum(axis=1) / known
    logs = -(np.log(total).sum(axis=1) + np.log(known) + ((values - means[:, None]) ** 2 / total).sum(axis=1)) / 2
    weights = np.exp(logs - logs.max()) * np.gradient(scatters) / (1 + (scatters / SAME_WITHIN) ** 2)
    each = means[:, None] + (scatters[:, None] ** 2 / total) * (values - means[:, None])
    return np.asarray(weights @ each / weights.sum())


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
