"""The law for a series: chosen by how well each law predicts the largest counts from the smaller ones.

The weight of a law is its prior weight times the density it gives to what was measured on more workers than the two
smallest counts, each count predicted from those below it. (By the chain rule this product is the evidence of the
whole series over that of the two smallest counts; no fit is ever judged by the points it was fitted to.) Predictions
average the laws with their weights; a law whose weight reaches `WINS` is named alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallpoint.models.base.statistics import Reals
from stallpoint.models.scaling.laws import LAWS, Law, models
from stallpoint.models.scaling.noise import Continuation, Likelihood, Smoothing, log_sum
from stallpoint.models.scaling.posterior import PREDICTIVE_DRAWS, Posterior, posterior
from stallpoint.models.scaling.series_placement import Places, Series

WINS = 0.95
"""Weight from which on a law is named alone."""
WIDEST = 3.0
"""Ratio of an interval's ends above which there is no answer: two doublings could be worth nothing, or nearly all."""
FEWEST_COUNTS = 3
"""Different worker counts without which no law's growth can be told from its first step."""


@dataclass(frozen=True)
class Choice:
    """Every law fitted to a series, with its weight."""

    posteriors: Sequence[Posterior]
    weights: Reals
    """[laws], sum 1."""
    across_nodes: bool
    """As `Places.across_nodes`, of what was measured and is wanted together."""

    @property
    def winner(self) -> Posterior | None:
        """The law that has nearly all the weight; None where several share it."""
        best = int(self.weights.argmax())
        return self.posteriors[best] if self.weights[best] >= WINS else None

    @property
    def name(self) -> str:
        """That law, or ``average`` with the laws that make up most of it."""
        if self.winner:
            return self.winner.model.name
        order = np.argsort(-self.weights, kind="stable")
        most = order[: int(np.searchsorted(np.cumsum(self.weights[order]), 0.5)) + 1]
        return f"average ({', '.join(self.posteriors[index].model.name for index in most)})"

    def predict(self, places: Places) -> Reals:
        """Draws of a new measurement: logarithm of a worker's samples per second, [draws, places]."""
        onward = self._onward(places)
        parts = []
        for index, count in self._shares(PREDICTIVE_DRAWS):
            some = np.random.default_rng(index).permutation(PREDICTIVE_DRAWS)[:count]
            parts.append(self.posteriors[index].predict(places, onward, seed=index, which=some))
        return np.concatenate(parts)

    def readings(self, places: Places) -> Reals | None:
        """What weak and what strong scaling would give: median logarithm of a worker's rate, [2, places].

        None where the measurements tell which of them it is, or nothing depends on it.
        """
        strong = np.array([one.model.split for one in self.posteriors])
        either = np.array([not one.model.law.of_rates for one in self.posteriors])
        shares = np.array([self.weights[either & ~strong].sum(), self.weights[strong].sum()])
        if shares.min() <= (1 - WINS) * shares.sum():
            return None
        parts = [np.where(which, self.weights, 0.0) for which in (either & ~strong, strong)]
        medians = [np.median(replace(self, weights=part / part.sum()).predict(places), axis=0) for part in parts]
        return np.array(medians)

    def underlying(self, count: int) -> Reals:
        """Draws of the series without its noise, the laws averaged: as `Posterior.underlying`, [count, places]."""
        first = self.posteriors[0]
        smoothing = Smoothing.of(first.series, self.across_nodes)
        shares = self._shares(count)
        return np.concatenate([self.posteriors[index].underlying(smoothing, of_it, index) for index, of_it in shares])

    def _shares(self, count: int) -> list[tuple[int, int]]:
        """How many of `count` draws each law has that has any, by its weight."""
        # Whole numbers of draws that keep the sum: what the cumulated weights pass.
        ends = np.round(np.cumsum(self.weights) * count).astype(int)
        return [(index, int(of_it)) for index, of_it in enumerate(np.diff(ends, prepend=0)) if of_it]

    def of_law(self, fitted: Posterior, places: Places) -> Reals:
        """The same by one of the laws alone."""
        return fitted.predict(places, self._onward(places))

    def _onward(self, places: Places) -> Continuation:
        first = self.posteriors[0]
        return Continuation.of(first.series, places, self.across_nodes)


def choose(series: Series, wanted: Places, laws: Sequence[Law] = LAWS) -> Choice:
    """Every law fitted to `series`, which has at least `FEWEST_COUNTS` counts, to predict at `wanted` places."""
    beginning = series.up_to(series.counts[1])
    every = series.places.then(wanted)
    across_nodes = every.across_nodes
    whole, start = (Likelihood.of(part, across_nodes) for part in (series, beginning))
    posteriors, log_weights = [], []
    for model, prior in models(laws, every):
        posteriors.append(posterior(model, series, whole))
        before = posterior(model, beginning, start).log_evidence
        log_weights.append(np.log(prior) + posteriors[-1].log_evidence - before)
    return Choice(posteriors, np.exp(log_weights - log_sum(np.array(log_weights))), across_nodes)


def too_wide(lower: Reals, upper: Reals) -> npt.NDArray[np.bool_]:
    """Where an interval's ends are so far apart that the measurements do not carry there."""
    with np.errstate(invalid="ignore"):
        return np.asarray(upper > WIDEST * lower)


def would_tell(counts: Sequence[int], unit: str = "workers") -> str:
    """That measurements at `counts` carry no further, and which one more would help most."""
    return f"{unidentifiable(counts, unit)}: too wide an interval; a rate at {2 * counts[-1]} {unit} would tell"


def too_few(counts: Sequence[int], unit: str = "workers") -> str:
    """Why no law can be told from measurements at `counts`; empty where there are enough."""
    return "" if len(counts) >= FEWEST_COUNTS else unidentifiable(counts, unit)


def unidentifiable(counts: Sequence[int], unit: str = "workers") -> str:
    """That the data do not tell, and which data: those measured at `counts`."""
    if not counts:
        return "not identifiable: nothing measured"
    listed = list(map(str, counts)) if len(counts) <= 8 else [*map(str, counts[:4]), "...", str(counts[-1])]
    return f"not identifiable from {unit} {', '.join(listed)}"
