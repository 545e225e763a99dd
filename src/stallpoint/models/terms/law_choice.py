"""The law of all-reduces at each message size, and its uncertainty.

A library chooses its algorithm itself, by the message size, or by a rank's part of it. Possible is each law for all
sizes, and each pair of which the second, for larger messages, moves fewer bytes or takes more steps, as libraries
switch (Thakur, Rabenseifner & Gropp 2005, section 4.5). Whatever the law, a part of the latency may not grow with the
ranks (starting a kernel, entering the library), and no message may take less than a floor. How likely each is comes of
all node counts (`law_departures`); with one all stay possible. Replicates draw from them, so that intervals hold what
is not known of the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallpoint.base.statistics import REPLICATES, Ensemble, Reals
from stallpoint.models.terms import law_departures, piecewise_line
from stallpoint.models.terms.law_departures import Departures, OptionFit
from stallpoint.models.terms.piecewise_line import PiecewiseLine, Samples
from stallpoint.models.terms.reductions import BySize, Laws, law_of

PRIOR = {"single": 0.4, "switched": 0.25, "switched per rank": 0.1, "constant": 0.15, "floor": 0.1}
"""Prior probability of each kind of law."""
FORCED = 0.75
"""Prior probability of a forced scheme's law."""
LIBRARY = {"recursive-doubling": 0.5, "binary-tree": 0.5, "rabenseifner": 1.0, "ring": 1.0}
"""Laws of libraries, in the order of growing messages, and the prior weight of each: laws that grow alike count as
one."""
_NAMES = tuple(LIBRARY)
PAIRS = tuple(
    (small, large)
    for index, small in enumerate(_NAMES)
    for large in _NAMES[index + 1 :]
    if (small, large) != ("recursive-doubling", "binary-tree")  # laws of equal growth
)
STILL = (0.25, 0.5, 0.75)
"""Constant parts of the latency on two ranks that are tried where one count alone was measured."""
NEAR_FLOOR = 1.25
"""Factor over the shortest message's time up to which messages take the floor."""
FURTHER = 8
"""Factor over the largest node count at which the value is to be near the candidates' average."""
UNLIKELY = 1e-3
"""Probability below which an option is dropped."""


@dataclass(frozen=True)
class Timed:
    """Measured messages, one entry for each node count and size."""

    parties: Reals
    """Ranks, or nodes where each counts as one."""
    sizes: Reals
    """Bytes."""
    seconds: Ensemble
    """[1 + REPLICATES, entries], above 0."""

    def under(self, option: BySize) -> Samples:
        """Return the entries with the factors of `option` on latency and bandwidth."""
        return Samples(self.sizes, *option.factors(self.parties, self.sizes), self.seconds)


def options(law: str, timed: Timed) -> tuple[tuple[BySize, ...], Reals]:
    """Return the candidates for a scheme's `law`, or for a library where it is None, with prior probabilities."""
    names = (law,) if law_of(law) else _NAMES
    grow = [name for name in names if (growing := law_of(name)) and np.ptp(growing.latency(np.array([2.0, 64.0])))]
    found: dict[str, list[BySize]] = {
        "single": [BySize((name,)) for name in names],
        "constant": [BySize((name,), constant=True) for name in grow],
        "floor": [BySize((name,), floor=True) for name in names],
    }
    if len(np.unique(timed.parties)) == 1:
        found["constant"] = [BySize((name,), still=still) for name in grow for still in STILL]
    if names is _NAMES:
        for kind, sizes in (("switched", timed.sizes), ("switched per rank", timed.sizes / timed.parties)):
            measured = np.unique(sizes)
            # The switch may be anywhere between two measured sizes.
            between = np.sqrt(measured[:-1] * measured[1:])
            per_rank = kind != "switched"
            found[kind] = [BySize(pair, (float(size),), per_rank) for pair in PAIRS for size in between]
    possible = {kind: of_kind for kind, of_kind in found.items() if of_kind}
    weights = {kind: PRIOR[kind] if kind != "single" or names is _NAMES else FORCED for kind in possible}
    prior = [weights[kind] * _counts(of_kind) / _counts(of_kind).sum() for kind, of_kind in possible.items()]
    combined = np.concatenate(prior)
    return tuple(option for of_kind in possible.values() for option in of_kind), combined / combined.sum()


def _counts(possible: Sequence[BySize]) -> Reals:
    return np.array([np.prod([LIBRARY.get(law, 1.0) for law in option.laws]) for option in possible])


def choose_laws(law: str, timed: Timed, random: np.random.Generator) -> tuple[Laws, Departures | None]:
    """Return the laws that fit `timed`, drawn by probability, and the departures of the times.

    Candidates are of the scheme's `law`, or of a library. Where sizes do not separate latency and bandwidth, no
    departures are known.
    """
    possible, prior = options(law, timed)
    starts = piecewise_line.breaks(_largest(timed).under(BySize(("place",))))
    typical = Timed(timed.parties, timed.sizes, timed.seconds[:1])
    fitted = [_fitted(typical, option, starts) for option in possible]
    known = np.flatnonzero([of is not None for of in fitted])
    reference = float(timed.parties.max())
    if not len(known):
        value = int(prior.argmax())
        return Laws(possible, np.append(value, random.choice(len(possible), REPLICATES, p=prior)), reference), None
    possible_fits = [of for of in fitted if of is not None]
    parts = (timed.parties, timed.sizes, timed.seconds, _bandwidth(timed, starts))
    posterior = law_departures.departures(*parts, possible_fits, prior[known])
    probability = posterior.of_options
    kept = np.flatnonzero(probability > UNLIKELY * probability.max())
    possible = tuple(possible[index] for index in known[kept])
    value = _nearest_to_all(timed, possible, probability[kept], starts)
    drawn = random.choice(len(kept), size=REPLICATES, p=probability[kept] / probability[kept].sum())
    drawn = np.append(value, drawn)
    return Laws(possible, drawn, reference), posterior.departures(kept[drawn], random)


def line(timed: Timed, laws: Laws) -> PiecewiseLine:
    """Return the curve of each replicate under its law; all have the pieces of the most probable law."""
    starts = piecewise_line.breaks(timed.under(laws.value))
    alpha, betas = np.empty(len(laws.drawn)), np.empty((len(laws.drawn), len(starts)))
    floor, constant = np.zeros((2, len(laws.drawn)))
    at_floor = _at_floor(timed)
    for index in np.unique(laws.drawn):
        chosen = laws.drawn == index
        here = Timed(timed.parties, timed.sizes, timed.seconds[chosen])
        found = _curve(here, laws.options[index], starts, at_floor)
        alpha[chosen], betas[chosen] = found.alpha, found.betas
        floor[chosen], constant[chosen] = found.floor, found.constant
    return PiecewiseLine(starts, alpha, betas, floor, constant)


def _curve(timed: Timed, option: BySize, starts: Reals, at_floor: np.ndarray) -> PiecewiseLine:
    """Return the fit under `option`; with a floor, to the messages above it."""
    samples = timed.under(option)
    if not option.floor or at_floor.all():
        return piecewise_line.curve(samples, starts, constant=option.constant)
    above = piecewise_line.curve(samples.where(~at_floor), starts)
    if not np.isfinite(above.alpha).all():  # all sizes above the floor are beyond a break
        straight = piecewise_line.curve(samples.where(~at_floor), np.zeros(1))
        above = PiecewiseLine(starts, straight.alpha, np.repeat(straight.betas, len(starts), axis=-1))
    return PiecewiseLine(starts, above.alpha, above.betas, np.exp(np.log(timed.seconds[:, at_floor]).mean(-1)))


def _at_floor(timed: Timed) -> np.ndarray:
    return np.asarray(timed.seconds[0] <= NEAR_FLOOR * timed.seconds[0].min())


def _fitted(timed: Timed, option: BySize, starts: Reals) -> OptionFit | None:
    """Return the value under `option`, and its derivative by each parameter; None where unidentifiable."""
    at_floor = _at_floor(timed)
    found = _curve(timed, option, starts, at_floor)
    if not np.isfinite(found.alpha).all():
        return None
    under = timed.under(option)
    total = found(under.sizes, under.latency, under.bandwidth)[0]
    of_segments = under.bandwidth[:, None] * found.betas[0] * piecewise_line.portions(starts, under.sizes)
    constant = np.broadcast_to(found.constant, total.shape)
    of_each = np.column_stack([found.alpha[0] * under.latency, of_segments, constant]) / total[:, None]
    raised = np.reshape(found.floor > of_each.sum(-1) * total, (-1, 1))
    return OptionFit(np.log(total), np.column_stack([np.where(raised, 0.0, of_each), raised]))


def _bandwidth(timed: Timed, starts: Reals) -> Reals:
    """Return the bandwidth part of each size's time at the largest count, [sizes]."""
    sizes = np.unique(timed.sizes)
    index = piecewise_line.curve(piecewise_line.typical(_largest(timed).under(BySize(("place",)))), starts)
    latency, bandwidth = index.parts(sizes, np.ones(len(sizes)), np.ones(len(sizes)))
    return np.asarray(bandwidth[0] / np.maximum(latency[0] + bandwidth[0], np.finfo(float).tiny))


def _largest(timed: Timed) -> Timed:
    chosen = timed.parties == timed.parties.max()
    return Timed(timed.parties[chosen], timed.sizes[chosen], timed.seconds[:, chosen])


def _nearest_to_all(timed: Timed, possible: Sequence[BySize], probability: Reals, starts: Reals) -> int:
    """Return the option whose times on more nodes are nearest to all candidates, on average."""
    sizes = np.unique(timed.sizes)
    further = Timed(np.full(len(sizes), FURTHER * timed.parties.max()), sizes, np.ones((1, len(sizes))))
    typical, at_floor = Timed(timed.parties, timed.sizes, timed.seconds[:1]), _at_floor(timed)
    carried = []
    for option in possible:
        there = further.under(option)
        found = _curve(typical, option, starts, at_floor)(there.sizes, there.latency, there.bandwidth)[0]
        carried.append(np.log(np.maximum(found, np.finfo(float).tiny)))
    apart = np.abs(np.array(carried)[:, None] - np.array(carried)).mean(-1)
    return int(np.argmin(apart @ probability))
