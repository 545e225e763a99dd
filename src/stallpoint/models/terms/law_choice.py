"""The law that a library's all-reduce follows at each message size, and how sure that is.

A library chooses its algorithm itself, by the message size. Possible is each law for all sizes, and each pair of which
the second, for larger messages, moves fewer bytes or takes more steps, as libraries switch (Thakur, Rabenseifner &
Gropp 2005, section 4.5). How likely each is comes of the largest node count, predicted from the others; with one node
count all stay possible. Replicates draw from them, so that intervals hold what is not known of the law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallpoint.models.base.statistics import REPLICATES, Ensemble, Reals
from stallpoint.models.terms import pieces
from stallpoint.models.terms.pieces import PiecewiseLine, Samples
from stallpoint.models.terms.reductions import BySize, Laws

SWITCHED = 0.5
"""Probability that a library has two laws, before anything was measured: most do."""
LIBRARY = {"recursive-doubling": 0.5, "binary-tree": 0.5, "rabenseifner": 1.0, "ring": 1.0}
"""Laws of libraries, in the order in which they are taken for larger messages, and how much each counts before
anything was measured: those that grow alike count as one."""
_NAMES = tuple(LIBRARY)
PAIRS = tuple(
    (small, large)
    for place, small in enumerate(_NAMES)
    for large in _NAMES[place + 1 :]
    if (small, large) != ("recursive-doubling", "binary-tree")  # which grow alike
)
LAW_ERROR = 0.05
"""Standard deviation, relative, of what an α-β law leaves of a message size: caches, protocols, segments."""
FURTHER = 8
"""Times the largest node count for which the value is to be near what is possible."""
NEGLIGIBLE = 1e-3
"""Probability below which an option plays no part."""


@dataclass(frozen=True)
class Timed:
    """Messages as measured, one entry for each node count and size."""

    parties: Reals
    """Ranks, or nodes where each counts as one."""
    sizes: Reals
    """Bytes."""
    seconds: Ensemble
    """[1 + REPLICATES, entries], above 0."""

    def under(self, option: BySize) -> Samples:
        """The same with what `option` says of latency and bandwidth."""
        return Samples(self.sizes, *option.factors(self.parties, self.sizes), self.seconds)


def options(sizes: Reals) -> tuple[tuple[BySize, ...], Reals]:
    """What is possible of a library timed at `sizes`, and how likely each is before its times are looked at."""
    measured = np.unique(sizes)
    # Between two measured sizes nobody knows where the switch is.
    between = np.sqrt(measured[:-1] * measured[1:])
    single = [BySize((law,)) for law in LIBRARY]
    switched = [BySize(pair, (float(size),)) for pair in PAIRS for size in between]
    parts = ((single, 1 - SWITCHED), (switched, SWITCHED)) if switched else ((single, 1.0),)
    probability = [whole * _counts(part) / _counts(part).sum() for part, whole in parts]
    return (*single, *switched), np.concatenate(probability)


def _counts(possible: Sequence[BySize]) -> Reals:
    return np.array([np.prod([LIBRARY[law] for law in option.laws]) for option in possible])


def choose_laws(timed: Timed, random: np.random.Generator) -> Laws:
    """The laws that fit `timed`, drawn by their probability."""
    possible, prior = options(timed.sizes)
    probability = _probability(timed, possible, prior)
    kept = np.flatnonzero(probability > NEGLIGIBLE * probability.max())
    possible = tuple(possible[place] for place in kept)
    probability = probability[kept] / probability[kept].sum()
    value = _nearest_to_all(timed, possible, probability)
    return Laws(possible, np.append(value, random.choice(len(possible), size=REPLICATES, p=probability)))


def line(timed: Timed, laws: Laws) -> PiecewiseLine:
    """The curve of each replicate under its law; all have the pieces that the law taken to hold asks for."""
    starts = pieces.breaks(timed.under(laws.value))
    alpha, betas = np.empty(len(laws.drawn)), np.empty((len(laws.drawn), len(starts)))
    for place in np.unique(laws.drawn):
        chosen = laws.drawn == place
        under = Timed(timed.parties, timed.sizes, timed.seconds[chosen]).under(laws.options[place])
        found = pieces.curve(under, starts)
        alpha[chosen], betas[chosen] = found.alpha, found.betas
    return PiecewiseLine(starts, alpha, betas)


def _probability(timed: Timed, possible: Sequence[BySize], prior: Reals) -> Reals:
    """Probability of each option by how well it predicts the largest count from the others, [options]."""
    largest = timed.parties == timed.parties.max()
    if largest.all():
        return prior
    known, left_out = _part(timed, ~largest), _part(timed, largest)
    nearest = known.parties == known.parties.max()
    starts = pieces.breaks(_part(known, nearest).under(BySize(("place",))))
    off = np.array([_errors(known, left_out, option, starts) for option in possible])
    if not np.isfinite(off).all():
        return prior
    # What they are predicted from is about as noisy as what is predicted.
    noise = 2 * np.atleast_2d(np.cov(np.log(left_out.seconds[1:]).T)) + LAW_ERROR**2 * np.eye(len(left_out.sizes))
    squares = np.einsum("os,os->o", off, np.linalg.solve(noise, off.T).T)
    density = prior * np.exp(-(squares - squares.min()) / 2)
    return np.asarray(density / density.sum())


def _part(timed: Timed, chosen: np.ndarray) -> Timed:
    return Timed(timed.parties[chosen], timed.sizes[chosen], timed.seconds[:, chosen])


def _errors(known: Timed, left_out: Timed, option: BySize, starts: Reals) -> Reals:
    """log(predicted / measured) of each message that was left out."""
    fitted = pieces.curve(pieces.typical(known.under(option)), starts)
    there = left_out.under(option)
    return np.asarray(np.log(fitted(there.sizes, there.latency, there.bandwidth)[0] / there.seconds[0]))


def _nearest_to_all(timed: Timed, possible: Sequence[BySize], probability: Reals) -> int:
    """The option whose times on more nodes are the least off from what is possible, on average."""
    sizes = np.unique(timed.sizes)
    further = Timed(np.full(len(sizes), FURTHER * timed.parties.max()), sizes, np.ones((1, len(sizes))))
    starts = pieces.breaks(_part(timed, timed.parties == timed.parties.max()).under(BySize(("place",))))
    carried = np.array([_errors(timed, further, option, starts) for option in possible])
    apart = np.abs(carried[:, None] - carried).mean(-1)
    return int(np.argmin(apart @ probability))
