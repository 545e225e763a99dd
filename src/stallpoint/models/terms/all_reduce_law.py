"""Laws of all-reduces by message size, departures of times from the laws, and the uncertainty of both.

A library chooses its algorithm by the message size, or by a rank's part of the message. Candidates are each law for all
sizes, and pairs of laws that switch at a size. In a pair, the law for larger messages moves fewer bytes or takes more
steps, as in libraries (Thakur, Rabenseifner & Gropp 2005, section 4.5). With any law, a part of the latency may not
grow with the ranks (starting a kernel, entering the library), or all messages may have a minimum time, the floor.

A time's logarithm is that of the law's time plus normal departures. Their standard deviations are four scales:

    job          s_j at each node count, the same for all sizes: counts are measured by jobs of their own
    size         s_r at each size; half of its variance is the same at all counts: caches, protocols, segments
    drift        s_l of the latency and s_b of the bandwidth, for each doubling of the ranks: a slope and a random walk
                 about it, for links that contend and algorithms that change with the ranks

(Kennedy & O'Hagan 2001, "Bayesian calibration of computer models": a model, and a Gaussian process for its errors.)
The scales are estimated jointly with the law. The density of all times is the product over node counts, each given the
smaller counts. So a law that misses the largest count becomes less likely, or gets drift. If no count departs from the
law, s_l and s_b are 0 and widen no interval. A single node count identifies neither drift nor the law; predictions are
then bounded by all laws. Replicates draw laws and departures, so that intervals include the uncertainty of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import REPLICATES, Ensemble, Reals
from stallpoint.models.terms import piecewise_line
from stallpoint.models.terms.piecewise_line import PiecewiseLine, Samples
from stallpoint.models.terms.reductions import LawBySize, Laws, law_of

PRIOR = {"single": 0.4, "switched": 0.25, "switched per rank": 0.1, "constant": 0.15, "floor": 0.1}
"""Prior probability of each kind of law."""
FORCED_PRIOR = 0.75
"""Prior probability of a forced scheme's law."""
LIBRARY_LAW_WEIGHTS = {"recursive-doubling": 0.5, "binary-tree": 0.5, "rabenseifner": 1.0, "ring": 1.0}
"""Prior weight of each law of libraries, in the order of growing messages: laws of equal growth share a weight."""
_LAW_NAMES = tuple(LIBRARY_LAW_WEIGHTS)
LAW_PAIRS = tuple(
    (small, large)
    for index, small in enumerate(_LAW_NAMES)
    for large in _LAW_NAMES[index + 1 :]
    if (small, large) != ("recursive-doubling", "binary-tree")  # these two laws grow equally with the ranks
)
CONSTANT_PARTS = (0.25, 0.5, 0.75)
"""Candidate constant parts of the latency on two ranks, if only one count was measured."""
MAX_FLOOR_RATIO = 1.25
"""Ratio to the shortest message's time up to which messages are at the floor."""
FAR_FACTOR = 8
"""Multiple of the largest node count at which the estimate should be near the candidates' average."""
MIN_PROBABILITY = 1e-3
"""Probability below which an option, or scales of departures, are dropped."""
JOB = {0.0: 0.7, 0.05: 0.22, 0.15: 0.08}
"""Standard deviations s_j and their prior probability: equal jobs were up to 5 % apart."""
SIZE = {0.003: 0.8, 0.05: 0.15, 0.15: 0.05}
"""Standard deviations s_r and their prior probability."""
DRIFT = {0.0: 0.92, 0.08: 0.03, 0.25: 0.03, 0.6: 0.02}
"""Standard deviations s_l and s_b per doubling, and their prior probability."""
PRIOR_DEVIATION = 2.0
"""Prior standard deviation of the logarithm of α, of each β and of a floor."""
MAX_DOUBLINGS = 12
"""Doublings of the largest count beyond which drift stops."""

DepartureScales: TypeAlias = tuple[float, float, float, float]
"""s_j, s_r, s_l and s_b."""


@dataclass(frozen=True)
class OptionFit:
    """A law fitted to the estimates of all times."""

    log_seconds: Reals
    """[entries]."""
    shares: Reals
    """Derivative of each log time by the log of each parameter, [entries, parameters]."""


@dataclass(frozen=True)
class Departures:
    """Factors by which times depart from the law, in each replicate."""

    doublings: Reals
    """Log₂ of ranks, rising, [counts]."""
    sizes: Reals
    """Bytes, rising."""
    log_ratio: Ensemble
    """Log of times over the law's, [1 + REPLICATES, counts, sizes]."""

    def __call__(self, participants: npt.ArrayLike, sizes: npt.ArrayLike) -> Ensemble:
        """Return the factor on times of `sizes` bytes [...] among `participants` [...], interpolated in logarithms."""
        count = np.interp(
            np.log2(np.asarray(participants, dtype=np.float64)), self.doublings, np.arange(len(self.doublings))
        )
        size = np.interp(np.log(np.maximum(sizes, 1.0)), np.log(self.sizes), np.arange(len(self.sizes)))
        found = np.zeros((len(self.log_ratio), *np.broadcast_shapes(count.shape, size.shape)))
        for (row, of_row), (column, of_column) in product(_neighbour_weights(count), _neighbour_weights(size)):
            at = self.log_ratio[:, np.minimum(row, len(self.doublings) - 1), np.minimum(column, len(self.sizes) - 1)]
            found += of_row * of_column * at
        return np.asarray(np.exp(found))


def _neighbour_weights(position: Reals) -> list[tuple[npt.NDArray[np.int64], Reals]]:
    """Return the whole numbers below and above each grid position, and their weights in linear interpolation."""
    below = np.floor(position).astype(np.int64)
    return [(below, below + 1 - position), (below + 1, position - below)]


@dataclass(frozen=True)
class DeparturePosterior:
    """Posterior probability of each candidate law, and of the departures from it, given measured times."""

    grid: _DepartureGrid
    entries: npt.NDArray[np.int64]
    """Grid position of each time."""
    fitted: Sequence[OptionFit]
    log_seconds: Ensemble
    noise: Reals
    scales: Sequence[DepartureScales]
    probability: Reals
    """[options, scales]."""

    @property
    def option_probabilities(self) -> Reals:
        """Return the probability of each option, summed over scales."""
        return np.asarray(self.probability.sum(-1))

    def departures(self, option: npt.NDArray[np.int64], random: np.random.Generator) -> Departures:
        """Return departures under each `option` [1 + REPLICATES]: their mean for the estimate, draws for replicates.

        A draw from the prior is corrected by its distance from the same replicate's measured times (Matheron's rule).
        """
        found = np.zeros((1 + REPLICATES, self.grid.points))
        scale_probabilities = self.probability / self.option_probabilities[:, None]
        scale = [random.choice(len(self.scales), p=scale_probabilities[at]) for at in option[1:]]
        for index, at in sorted(set(zip(scale, option[1:].tolist(), strict=True))):
            chosen = 1 + np.flatnonzero((np.array(scale) == index) & (option[1:] == at))
            before = self.grid.draw(self.scales[index], len(chosen), random)
            parameter_draws = PRIOR_DEVIATION * random.standard_normal((len(chosen), self.fitted[at].shares.shape[1]))
            off = self.log_seconds[chosen] - self.fitted[at].log_seconds
            off = off - before[:, self.entries] - parameter_draws @ self.fitted[at].shares.T
            found[chosen] = before + off @ self._gain_matrix(at, index)
        first = int(option[0])
        off = self.log_seconds[0] - self.fitted[first].log_seconds
        for likely in np.flatnonzero(scale_probabilities[first] > MIN_PROBABILITY):
            found[0] += scale_probabilities[first, likely] * (off @ self._gain_matrix(first, int(likely)))
        return self.grid.departures(found)

    def _gain_matrix(self, option: int, scale: int) -> Reals:
        """Return the matrix [entries, grid points] that turns residuals of the times into expected departures."""
        from scipy.linalg import cho_solve, cholesky

        covariance = self.grid.covariance(self.scales[scale])
        shares = PRIOR_DEVIATION * self.fitted[option].shares
        total = covariance[np.ix_(self.entries, self.entries)] + self.noise + shares @ shares.T
        return np.asarray(cho_solve((cholesky(total, lower=True), True), covariance[self.entries]))


class _DepartureGrid:
    """Grid of sizes and counts on which departures are drawn: measured ones, and doublings of the largest count."""

    def __init__(self, participants: Reals, sizes: Reals, bandwidth: Reals) -> None:
        """Build the grid. `bandwidth` [sizes] is the share of a size's time that bytes take; the rest is latency."""
        measured = np.log2(np.unique(participants))
        self.doublings = np.concatenate([measured, measured[-1] + np.arange(1.0, 1 + MAX_DOUBLINGS)])
        self.sizes = np.unique(sizes)
        self.points = len(self.doublings) * len(self.sizes)
        self._count, self._size = (of.ravel() for of in np.indices((len(self.doublings), len(self.sizes))))
        self._since = self.doublings - self.doublings[0]
        self._parts = np.stack([1 - bandwidth, bandwidth])
        self._same_count = self._count[:, None] == self._count
        self._same_size = self._size[:, None] == self._size
        drift = np.minimum(self._since[:, None], self._since) + self._since[:, None] * self._since
        part_products = self._parts[:, :, None] * self._parts[:, None]
        self._drifts = drift[np.ix_(self._count, self._count)] * part_products[:, self._size][:, :, self._size]

    def places(self, participants: Reals, sizes: Reals) -> npt.NDArray[np.int64]:
        """Return the grid points of times of `sizes` among `participants`."""
        count = np.searchsorted(self.doublings, np.log2(participants) - 1e-9)
        return np.asarray(count * len(self.sizes) + np.searchsorted(self.sizes, sizes))

    def covariance(self, scales: DepartureScales) -> Reals:
        """Return the covariance of departures, [points, points]."""
        job, size, *drifts = np.square(scales)
        own = size * self._same_size * (1 + self._same_count) / 2
        return np.asarray(job * self._same_count + own + np.tensordot(drifts, self._drifts, axes=1))

    def draw(self, scales: DepartureScales, count: int, random: np.random.Generator) -> Reals:
        """Return draws of departures from the prior, [count, points]."""
        job, size, *drifts = scales
        shape = len(self.doublings), len(self.sizes)
        job_draws = job * random.standard_normal((count, shape[0], 1))
        size_draws = size * np.sqrt(0.5) * random.standard_normal((count, 1, shape[1]))
        own = size * np.sqrt(0.5) * random.standard_normal((count, *shape))
        steps = random.standard_normal((count, shape[0], 2)) * np.sqrt(np.diff(self._since, prepend=0.0))[:, None]
        drift_walks = np.cumsum(steps, axis=1) + random.standard_normal((count, 1, 2)) * self._since[:, None]
        return np.asarray((job_draws + size_draws + own + drift_walks * drifts @ self._parts).reshape(count, -1))

    def departures(self, log_ratio: Ensemble) -> Departures:
        """Return the departures whose logarithms at the grid's points are `log_ratio`, [1 + REPLICATES, points]."""
        log_ratio_grid = log_ratio.reshape(len(log_ratio), len(self.doublings), len(self.sizes))
        return Departures(self.doublings, self.sizes, log_ratio_grid)


def _covariance_of_visits(participants: Reals, log_seconds: Ensemble) -> Reals:
    """Return the covariance of log times due to the scatter between visits, [entries, entries].

    At each count, one component is common to all sizes, and each size has its own: few visits identify no more.
    """
    found = np.zeros((len(participants), len(participants)))
    for count in np.unique(participants):
        here = np.flatnonzero(participants == count)
        visit_covariance = np.atleast_2d(np.cov(log_seconds[1:, here].T))
        own = np.diag(visit_covariance)
        common = (visit_covariance.sum() - own.sum()) / max(1, len(here) * (len(here) - 1))
        common = float(np.clip(common, 0.0, own.min()))
        found[np.ix_(here, here)] = common + np.diag(own - common)
    return found


def posterior_of_laws(
    participants: Reals, sizes: Reals, seconds: Ensemble, bandwidth: Reals, fitted: Sequence[OptionFit], prior: Reals
) -> DeparturePosterior:
    """Return the posterior of the `fitted` laws, given `prior` probabilities and `seconds` [1 + REPLICATES, entries].

    `bandwidth` [sizes] is the share of a size's time that its bytes take; the rest is latency.
    """
    # This import is late, as scipy.linalg loads slowly, and pages and charts need no fit.
    from scipy.linalg import cholesky, solve_triangular

    grid = _DepartureGrid(participants, sizes, bandwidth)
    entries = grid.places(participants, sizes)
    logs = np.log(seconds)
    noise = _covariance_of_visits(participants, logs)
    drift_prior = DRIFT if len(np.unique(participants)) > 1 else {0.0: 1.0}
    scale_priors = (JOB, SIZE, drift_prior, drift_prior)
    scales = list(product(*scale_priors))
    before = [np.prod([of[level] for of, level in zip(scale_priors, scale, strict=True)]) for scale in scales]
    parameters = max(of.shares.shape[1] for of in fitted)
    shares = np.zeros((len(fitted), len(entries), parameters))
    for index, of in enumerate(fitted):
        shares[index, :, : of.shares.shape[1]] = PRIOR_DEVIATION * of.shares
    off = np.stack([logs[0] - of.log_seconds for of in fitted], axis=-1)
    log_density = np.empty((len(fitted), len(scales)))
    columns = np.concatenate([off, shares.transpose(1, 0, 2).reshape(len(entries), -1)], axis=-1)
    for index, scale in enumerate(scales):
        covariance = grid.covariance(scale)[np.ix_(entries, entries)] + noise
        root = cholesky(covariance, lower=True)
        whitened_columns = solve_triangular(root, columns, lower=True)
        whitened, of_shares = (
            whitened_columns[:, : len(fitted)],
            whitened_columns[:, len(fitted) :].reshape(len(entries), len(fitted), parameters),
        )
        inner = np.einsum("eok,eol->okl", of_shares, of_shares) + np.eye(parameters)
        cross = np.einsum("eok,eo->ok", of_shares, whitened)
        squares = (whitened**2).sum(0) - np.einsum("ok,ok->o", cross, np.linalg.solve(inner, cross[..., None])[..., 0])
        half_log_determinant = np.log(np.diag(root)).sum() + np.linalg.slogdet(inner)[1] / 2
        log_density[:, index] = np.log(prior) + np.log(before[index]) - squares / 2 - half_log_determinant
    probability = np.exp(log_density - log_density.max())
    return DeparturePosterior(grid, entries, fitted, logs, noise, scales, probability / probability.sum())


@dataclass(frozen=True)
class TimedCalls:
    """Measured messages, one entry for each node count and size."""

    participants: Reals
    """Ranks, or nodes if each counts as one rank."""
    sizes: Reals
    """Bytes."""
    seconds: Ensemble
    """[1 + REPLICATES, entries], above 0."""

    def with_factors(self, option: LawBySize) -> Samples:
        """Return the messages with the factors of `option` on their latency and bandwidth."""
        return Samples(self.sizes, *option.factors(self.participants, self.sizes), self.seconds)


def options(law: str, timed: TimedCalls) -> tuple[tuple[LawBySize, ...], Reals]:
    """Return candidate laws and their prior probabilities: forms of `law`, or of all laws if a library chooses."""
    names = (law,) if law_of(law) else _LAW_NAMES
    growing_laws = [name for name in names if (of := law_of(name)) and np.ptp(of.latency(np.array([2.0, 64.0])))]
    found: dict[str, list[LawBySize]] = {
        "single": [LawBySize((name,)) for name in names],
        "constant": [LawBySize((name,), constant=True) for name in growing_laws],
        "floor": [LawBySize((name,), floor=True) for name in names],
    }
    if len(np.unique(timed.participants)) == 1:
        found["constant"] = [LawBySize((name,), constant_part=part) for name in growing_laws for part in CONSTANT_PARTS]
    if names is _LAW_NAMES:
        for kind, sizes in (("switched", timed.sizes), ("switched per rank", timed.sizes / timed.participants)):
            measured = np.unique(sizes)
            # A switch may be anywhere between two measured sizes; their geometric mean is taken.
            between = np.sqrt(measured[:-1] * measured[1:])
            per_rank = kind != "switched"
            found[kind] = [LawBySize(pair, (float(size),), per_rank) for pair in LAW_PAIRS for size in between]
    possible = {kind: of_kind for kind, of_kind in found.items() if of_kind}
    weights = {kind: PRIOR[kind] if kind != "single" or names is _LAW_NAMES else FORCED_PRIOR for kind in possible}
    prior = [weights[kind] * _weights(of_kind) / _weights(of_kind).sum() for kind, of_kind in possible.items()]
    probabilities = np.concatenate(prior)
    return tuple(option for of_kind in possible.values() for option in of_kind), probabilities / probabilities.sum()


def _weights(possible: Sequence[LawBySize]) -> Reals:
    return np.array([np.prod([LIBRARY_LAW_WEIGHTS.get(law, 1.0) for law in option.laws]) for option in possible])


def choose_laws(law: str, timed: TimedCalls, random: np.random.Generator) -> tuple[Laws, Departures | None]:
    """Return laws drawn by their probability given `timed`, and the departures of the times from these laws.

    The candidate laws are those of `options`. If sizes do not separate latency and bandwidth, departures are None.
    """
    possible, prior = options(law, timed)
    starts = piecewise_line.breaks(_largest(timed).with_factors(LawBySize(("place",))))
    typical = TimedCalls(timed.participants, timed.sizes, timed.seconds[:1])
    fitted = [_option_fit(typical, option, starts) for option in possible]
    known = np.flatnonzero([of is not None for of in fitted])
    reference = float(timed.participants.max())
    if not len(known):
        value = int(prior.argmax())
        return Laws(possible, np.append(value, random.choice(len(possible), REPLICATES, p=prior)), reference), None
    identifiable_fits = [of for of in fitted if of is not None]
    parts = (timed.participants, timed.sizes, timed.seconds, _bandwidth_shares(timed, starts))
    posterior = posterior_of_laws(*parts, identifiable_fits, prior[known])
    probability = posterior.option_probabilities
    kept = np.flatnonzero(probability > MIN_PROBABILITY * probability.max())
    possible = tuple(possible[index] for index in known[kept])
    value = _most_central_option(timed, possible, probability[kept], starts)
    drawn = random.choice(len(kept), size=REPLICATES, p=probability[kept] / probability[kept].sum())
    drawn = np.append(value, drawn)
    return Laws(possible, drawn, reference), posterior.departures(kept[drawn], random)


def line(timed: TimedCalls, laws: Laws) -> PiecewiseLine:
    """Return the line of each replicate under its own law. All lines have the breaks of the estimate's law."""
    starts = piecewise_line.breaks(timed.with_factors(laws.value))
    alpha, betas = np.empty(len(laws.drawn)), np.empty((len(laws.drawn), len(starts)))
    floor, constant = np.zeros((2, len(laws.drawn)))
    at_floor = _is_at_floor(timed)
    for index in np.unique(laws.drawn):
        chosen = laws.drawn == index
        here = TimedCalls(timed.participants, timed.sizes, timed.seconds[chosen])
        found = _fitted_line(here, laws.options[index], starts, at_floor)
        alpha[chosen], betas[chosen] = found.alpha, found.betas
        floor[chosen], constant[chosen] = found.floor, found.constant
    return PiecewiseLine(starts, alpha, betas, floor, constant)


def _fitted_line(timed: TimedCalls, option: LawBySize, starts: Reals, at_floor: np.ndarray) -> PiecewiseLine:
    """Return the line fitted under `option`; an option with a floor is fitted only to messages above the floor."""
    samples = timed.with_factors(option)
    if not option.floor or at_floor.all():
        return piecewise_line.curve(samples, starts, constant=option.constant)
    top_line = piecewise_line.curve(samples.where(~at_floor), starts)
    if not np.isfinite(top_line.alpha).all():  # too few sizes are above the floor for all segments
        one_segment = piecewise_line.curve(samples.where(~at_floor), np.zeros(1))
        top_line = PiecewiseLine(starts, one_segment.alpha, np.repeat(one_segment.betas, len(starts), axis=-1))
    return PiecewiseLine(starts, top_line.alpha, top_line.betas, np.exp(np.log(timed.seconds[:, at_floor]).mean(-1)))


def _is_at_floor(timed: TimedCalls) -> np.ndarray:
    return np.asarray(timed.seconds[0] <= MAX_FLOOR_RATIO * timed.seconds[0].min())


def _option_fit(timed: TimedCalls, option: LawBySize, starts: Reals) -> OptionFit | None:
    """Return log times fitted under `option`, and their derivatives by the parameters; None if unidentifiable."""
    at_floor = _is_at_floor(timed)
    found = _fitted_line(timed, option, starts, at_floor)
    if not np.isfinite(found.alpha).all():
        return None
    samples = timed.with_factors(option)
    total = found(samples.sizes, samples.latency, samples.bandwidth)[0]
    byte_seconds = samples.bandwidth[:, None] * found.betas[0] * piecewise_line.segment_bytes(starts, samples.sizes)
    constant = np.broadcast_to(found.constant, total.shape)
    time_shares = np.column_stack([found.alpha[0] * samples.latency, byte_seconds, constant]) / total[:, None]
    is_floored = np.reshape(found.floor > time_shares.sum(-1) * total, (-1, 1))
    return OptionFit(np.log(total), np.column_stack([np.where(is_floored, 0.0, time_shares), is_floored]))


def _bandwidth_shares(timed: TimedCalls, starts: Reals) -> Reals:
    """Return the share of each size's time that its bytes take (the rest is latency), at the largest count, [sizes]."""
    sizes = np.unique(timed.sizes)
    index = piecewise_line.curve(piecewise_line.typical(_largest(timed).with_factors(LawBySize(("place",)))), starts)
    latency, bandwidth = index.parts(sizes, np.ones(len(sizes)), np.ones(len(sizes)))
    return np.asarray(bandwidth[0] / np.maximum(latency[0] + bandwidth[0], np.finfo(float).tiny))


def _largest(timed: TimedCalls) -> TimedCalls:
    chosen = timed.participants == timed.participants.max()
    return TimedCalls(timed.participants[chosen], timed.sizes[chosen], timed.seconds[:, chosen])


def _most_central_option(timed: TimedCalls, possible: Sequence[LawBySize], probability: Reals, starts: Reals) -> int:
    """Return the option whose times on more nodes are nearest to those of all candidates, weighted by probability."""
    sizes = np.unique(timed.sizes)
    messages = TimedCalls(np.full(len(sizes), FAR_FACTOR * timed.participants.max()), sizes, np.ones((1, len(sizes))))
    typical, at_floor = TimedCalls(timed.participants, timed.sizes, timed.seconds[:1]), _is_at_floor(timed)
    carried = []
    for option in possible:
        there = messages.with_factors(option)
        found = _fitted_line(typical, option, starts, at_floor)(there.sizes, there.latency, there.bandwidth)[0]
        carried.append(np.log(np.maximum(found, np.finfo(float).tiny)))
    mean_distances = np.abs(np.array(carried)[:, None] - np.array(carried)).mean(-1)
    return int(np.argmin(mean_distances @ probability))
