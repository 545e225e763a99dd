"""From a table of rates to predictions for every count of every series, and what is left out to check them.

A table of rates has the columns ``series``, ``workers``, ``workers_per_node``, ``batch_per_worker`` and
``samples_per_second`` (see `stallpoint.inputs.rates`); rows without a rate ask for a prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.errors import InputError
from stallpoint.models.base.statistics import INTERVAL, Reals, groups
from stallpoint.models.scaling.scaling_law_choice import Choice, choose, too_few, too_wide, unidentifiable, would_tell
from stallpoint.models.scaling.series_placement import PLACE, Places, Series
from stallpoint.text import Progress

FURTHEST = 2.0
"""Factor between a fitted rate and the law's, above which the law is not taken to describe the series."""
TOLD_APART = 0.1
"""Difference between rates, as a logarithm, from which on it is asked whether scaling is weak or strong."""
MOST_COUNTS = 256
"""Counts that are predicted one by one; of a longer series the others lie on straight lines between them."""
MOST_SERIES = 20_000
"""More series than that are taken for a mistake in the column."""
MANY_SERIES = 100
"""Series from which on it is said how far their fits are."""

_QUANTILES = ((1 - INTERVAL) / 2, 0.5, (1 + INTERVAL) / 2)


@dataclass(frozen=True)
class Fitted:
    """One series of a table, with the laws fitted to a part of it."""

    name: str
    rows: pd.DataFrame
    """All rows of the series."""
    counts: list[int]
    """Worker counts that were fitted, rising."""
    choice: Choice | None
    """None where no law can be told from them."""

    def predict(self) -> pd.DataFrame:
        """``workers, predicted, lower, upper, law`` for every count of the series, in samples per second.

        A count with several placements gets one prediction: of a measurement at one of its rows, drawn at random.
        Where the data cannot tell, the numbers are empty and the law says why.
        """
        counts = np.unique(self.rows["workers"].to_numpy(np.int64))
        ends = self._quantiles(counts)
        law = self.choice.name if self.choice else unidentifiable(self.counts)
        misfit = self._misfit(counts, ends[:, 1])
        if misfit:
            ends[:], law = np.nan, misfit
        wide = too_wide(ends[:, 0], ends[:, 2])
        ends[wide] = np.nan
        laws = np.where(wide, would_tell(self.counts), law) if self.choice else np.full(len(counts), law)
        return pd.DataFrame({
            "workers": counts,
            "predicted": ends[:, 1],
            "lower": ends[:, 0],
            "upper": ends[:, 2],
            "law": laws if misfit else [f"{law}{asked}" for law, asked in zip(laws, self._asked(counts), strict=True)],
        })  # fmt: skip

    def _quantiles(self, counts: Reals) -> Reals:
        """Samples per second at `counts`, [counts, lower end, median and upper end]."""
        if self.choice is None:
            return np.full((len(counts), 3), np.nan)
        steps = np.log(counts)
        drawn = np.unique(
            np.searchsorted(steps, np.linspace(steps[0], steps[-1], MOST_COUNTS)).clip(max=len(counts) - 1)
        )
        at = counts if len(counts) <= MOST_COUNTS else counts[drawn]
        rows = self.rows[self.rows["workers"].isin(at)].groupby(PLACE, dropna=False).size().reset_index(name="rows")
        rates = self.choice.predict(Places.of(rows)) + np.log(rows["workers"].to_numpy(np.float64))
        ends = np.array([_mixed(rates[:, here], rows["rows"].to_numpy()[here]) for here in _positions(rows, at)])
        return np.exp([np.interp(steps, np.log(at), end) for end in ends.T]).T

    def _asked(self, counts: Reals) -> Iterator[str]:
        """For each of `counts` beyond those fitted, what the mini-batch would decide; else nothing."""
        beyond = counts > max(self.counts, default=0)
        farthest = self.rows[self.rows["workers"] == counts[-1]].drop_duplicates(PLACE).iloc[:1]
        medians = self.choice.readings(Places.of(farthest)) if self.choice and beyond.any() else None
        if medians is None or abs(float(medians[0, 0] - medians[1, 0])) < TOLD_APART:
            yield from [""] * len(counts)
            return
        weak, strong = np.exp(medians[:, 0]) * counts[-1]
        both = " or ".join(f"{float(f'{rate:.3g}'):,.10g}" for rate in (weak, strong))
        asked = f"; batch_per_worker would tell weak from strong scaling: {both} at {counts[-1]} workers"
        yield from np.where(beyond, asked, "")

    def _misfit(self, counts: Reals, predicted: Reals) -> str:
        """Why the laws do not describe what was fitted, such as rates that jump; empty where they do."""
        known = self.rows[self.rows["samples_per_second"].notna()].groupby("workers")["samples_per_second"].median()
        ratio = pd.Series(predicted, index=counts).div(known).reindex(self.counts).dropna()
        away = ratio.where(ratio > 1, 1 / ratio)
        return f"no law describes the rate at {away.idxmax()} workers" if (away > FURTHEST).any() else ""

    def left_out(self) -> pd.DataFrame:
        """Predicted against measured at the counts that were not fitted: one row for each measured one."""
        predicted = self.predict()
        rows = self.rows[self.rows["samples_per_second"].notna()]
        measured = rows.groupby("workers")["samples_per_second"].median().rename("measured").reset_index()
        largest = self.counts[-1] if self.counts else 0
        table = predicted.merge(measured[measured["workers"] > largest], on="workers")
        return table.assign(
            fitted_up_to=largest,
            error=table["predicted"] / table["measured"] - 1,
            covered=(table["lower"] <= table["measured"]) & (table["measured"] <= table["upper"]),
        )


def _positions(rows: pd.DataFrame, counts: Reals) -> Iterator[slice]:
    """Where each of `counts` stands in `rows`, which are sorted by workers."""
    workers = rows["workers"].to_numpy()
    ends = np.searchsorted(workers, counts, side="right")
    yield from (slice(start, end) for start, end in zip(np.searchsorted(workers, counts), ends, strict=True))


def _mixed(rates: Reals, rows: Reals) -> Reals:
    """Ends and median of draws [draws, placements], each placement as likely as it has `rows`."""
    if rates.shape[1] == 1:
        return np.asarray(np.quantile(rates[:, 0], _QUANTILES))
    order = np.argsort(rates, axis=None, kind="stable")
    weights = np.broadcast_to(rows / rows.sum() / len(rates), rates.shape).ravel()[order]
    passed = np.searchsorted(np.cumsum(weights), _QUANTILES)
    return np.asarray(rates.ravel()[order][np.minimum(passed, rates.size - 1)])


def fit(rates: pd.DataFrame, fit_up_to: float = 1.0) -> Iterator[Fitted]:
    """Every series of `rates`, fitted to the rows with workers ≤ `fit_up_to` · the largest count.

    At least the three smallest measured counts are fitted. `InputError` for a table of too many series.
    """
    if (count := rates["series"].nunique()) > MOST_SERIES:
        raise InputError(f"{count} series; at most {MOST_SERIES:,} are fitted at once (some 5 each second): split them")
    progress = Progress("scaling laws of series", np.ones(count).tolist(), silent=count < MANY_SERIES)
    for done, (name, rows) in enumerate(groups(rates, "series"), start=1):
        measured = rows[rows["samples_per_second"].notna()]
        known = np.unique(measured["workers"].to_numpy(np.int64))
        # The tolerance keeps 1/64 · 64 from being less than 1.
        within = int((known <= fit_up_to * rows["workers"].max() * (1 + 1e-9)).sum())
        counts = [int(count) for count in known[: max(within, 3)]]
        choice = None
        fitted = measured[measured["workers"] <= counts[-1]] if counts else measured
        fitted = pd.concat([fitted, _alone(fitted)]) if "compute_seconds" in rows else fitted
        if not too_few(sorted(fitted["workers"].unique())):
            wanted = Places.of(rows.drop_duplicates(PLACE)[PLACE])
            choice = choose(Series.of(fitted), wanted)
        yield Fitted(str(name), rows, counts, choice)
        progress.tell(done)


def _alone(fitted: pd.DataFrame) -> pd.DataFrame:
    """What one worker would reach: rows of the mini-batch over the time that computing it alone takes.

    None where one worker was measured.
    """
    if (fitted["workers"] == 1).any():
        return fitted.iloc[:0]
    alone: pd.DataFrame = fitted.assign(
        workers=1,
        workers_per_node=1.0,
        samples_per_second=fitted["batch_per_worker"] / fitted["compute_seconds"],
    )
    return alone.dropna(subset="samples_per_second")


def extrapolate(rates: pd.DataFrame, fit_up_to: float = 1.0) -> pd.DataFrame:
    """``series, workers, predicted, lower, upper, law`` for every count of every series."""
    parts = [series.predict().assign(series=series.name) for series in fit(rates, fit_up_to)]
    return pd.concat(parts, ignore_index=True)[["series", "workers", "predicted", "lower", "upper", "law"]]
