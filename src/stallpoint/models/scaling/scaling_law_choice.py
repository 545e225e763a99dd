"""Choice of the laws for a series, by how well each predicts larger counts from smaller ones.

The weight of a law is its prior weight times the density of the measurements beyond the two smallest counts. Each count
is predicted from the smaller ones, so no fit is judged by the points to which it was fitted. (By the chain rule the
density is the evidence of the complete series over that of the two smallest counts.) Predictions are averages over laws
by weight. A law whose weight reaches `WINNING_WEIGHT` is named as the only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stallpoint.base.statistics import Reals
from stallpoint.models.scaling.laws import LAWS, Law, models
from stallpoint.models.scaling.noise import Continuation, Likelihood, log_sum_exp
from stallpoint.models.scaling.posterior import PREDICTIVE_DRAWS, Posterior, posterior
from stallpoint.models.scaling.series_placement import Placements, Series

WINNING_WEIGHT = 0.95
"""Weight above which a single law is named."""
MAX_INTERVAL_RATIO = 3.0
"""Ratio of an interval's ends above which there is no answer: the interval of two doublings would include no gain."""
MIN_COUNTS = 2
"""Worker counts needed to identify the cost of a step; its growth then follows from the priors."""


@dataclass(frozen=True)
class WeighedLaws:
    """Laws fitted to a series, with their weights."""

    posteriors: Sequence[Posterior]
    weights: Reals
    """[laws], sum 1."""
    across_nodes: bool
    """`Placements.across_nodes` of all measured and wanted placements."""

    @property
    def winner(self) -> Posterior | None:
        """Return the law with nearly all the weight; None if several share it."""
        best = int(self.weights.argmax())
        return self.posteriors[best] if self.weights[best] >= WINNING_WEIGHT else None

    @property
    def name(self) -> str:
        """Return the winning law's name, or ``average`` with the laws of most weight."""
        if self.winner:
            return self.winner.model.name
        order = np.argsort(-self.weights, kind="stable")
        majority_laws = order[: int(np.searchsorted(np.cumsum(self.weights[order]), 0.5)) + 1]
        return f"average ({', '.join(self.posteriors[index].model.name for index in majority_laws)})"

    def predict(self, placements: Placements) -> Reals:
        """Return draws of a new measurement: logarithm of a worker's samples per second, [draws, placements]."""
        first = self.posteriors[0]
        continuation = Continuation.of(first.series, placements, self.across_nodes)
        parts = []
        for index, count in self._shares(PREDICTIVE_DRAWS):
            drawn_rows = np.random.default_rng(index).permutation(PREDICTIVE_DRAWS)[:count]
            parts.append(self.posteriors[index].predict(placements, continuation, seed=index, which=drawn_rows))
        return np.concatenate(parts)

    def medians_by_scaling(self, placements: Placements) -> Reals | None:
        """Return the median logarithm of a worker's rate for weak and for strong scaling, [2, placements].

        None if the measurements identify the scaling, or if the rates do not depend on it.
        """
        strong = np.array([one.model.split for one in self.posteriors])
        depends_on_scaling = np.array([not one.model.law.any_batch for one in self.posteriors])
        shares = np.array([self.weights[depends_on_scaling & ~strong].sum(), self.weights[strong].sum()])
        if shares.min() <= (1 - WINNING_WEIGHT) * shares.sum():
            return None
        parts = [np.where(which, self.weights, 0.0) for which in (depends_on_scaling & ~strong, strong)]
        medians = [np.median(replace(self, weights=part / part.sum()).predict(placements), axis=0) for part in parts]
        return np.array(medians)

    def _shares(self, count: int) -> list[tuple[int, int]]:
        """Return how many of `count` draws each law gets by its weight."""
        # Cumulative weights are rounded, so that the integers add up to `count`.
        ends = np.round(np.cumsum(self.weights) * count).astype(int)
        return [(index, int(draws)) for index, draws in enumerate(np.diff(ends, prepend=0)) if draws]


def choose(series: Series, wanted: Placements, laws: Sequence[Law] = LAWS) -> WeighedLaws:
    """Fit every law to `series`, of at least `MIN_COUNTS` counts, to predict at the `wanted` placements."""
    smallest_counts = series.up_to_workers(series.counts[1])
    every = series.places.followed_by(wanted)
    across_nodes = every.across_nodes
    whole, start = (Likelihood.of(part, across_nodes) for part in (series, smallest_counts))
    posteriors, log_weights = [], []
    for model, prior in models(laws, every):
        posteriors.append(posterior(model, series, whole))
        before = posterior(model, smallest_counts, start).log_evidence
        log_weights.append(np.log(prior) + posteriors[-1].log_evidence - before)
    return WeighedLaws(posteriors, np.exp(log_weights - log_sum_exp(np.array(log_weights))), across_nodes)


def too_wide(lower_ends: Reals, upper_ends: Reals) -> npt.NDArray[np.bool_]:
    """Return which intervals are too wide to be an answer."""
    with np.errstate(invalid="ignore"):
        return np.asarray(upper_ends > MAX_INTERVAL_RATIO * lower_ends)


def why_not_predicted(counts: Sequence[int]) -> str:
    """Return the sentence that measurements at `counts` give no prediction, and which further count would help most."""
    return f"{why_unidentifiable(counts)}: too wide an interval; a rate at {2 * counts[-1]} workers would tell"


def too_few(counts: Sequence[int], unit: str = "workers") -> str:
    """Return the sentence that `counts` are too few to identify a law; empty if they are enough."""
    return "" if len(counts) >= MIN_COUNTS else why_unidentifiable(counts, unit)


def why_unidentifiable(counts: Sequence[int], unit: str = "workers") -> str:
    """Return the sentence that measurements at `counts` identify no law."""
    if not counts:
        return "not identifiable: nothing measured"
    listed = list(map(str, counts)) if len(counts) <= 8 else [*map(str, counts[:4]), "...", str(counts[-1])]
    return f"not identifiable from {unit} {', '.join(listed)}"
