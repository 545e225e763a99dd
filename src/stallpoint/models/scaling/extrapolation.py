"""Predictions for every count of every series in a table of rates, and their errors at held-out counts.

A table of rates has the columns ``series``, ``workers``, ``workers_per_node``, ``batch_per_worker`` and
``samples_per_second`` (see `stallpoint_files.rates.rates`); rows without a rate ask for a prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.base.frames import frame
from stallpoint.base.statistics import INTERVAL, Reals, groups
from stallpoint.errors import InputError
from stallpoint.models.scaling.scaling_law_choice import (
    WeighedLaws,
    choose,
    too_few,
    too_wide,
    why_not_predicted,
    why_unidentifiable,
)
from stallpoint.models.scaling.series_placement import PLACEMENT, Placements, Series
from stallpoint.records.tables import EXTRAPOLATED_TABLES, EXTRAPOLATIONS, LAW_VALIDATION
from stallpoint.text import Progress

MAX_MISFIT = 2.0
"""Factor between a fitted rate and the law's, above which the law does not describe the series."""
MIN_LOG_DIFFERENCE = 0.1
"""Difference between logarithms of rates above which weak and strong scaling are distinguished."""
MAX_COUNTS = 256
"""Counts that are predicted one by one; the others of a longer series are interpolated linearly."""
MAX_SERIES = 20_000
"""Number of series above which the column ``series`` is considered a mistake."""
MIN_LOGGED_SERIES = 100
"""Number of series from which on progress is logged."""

_INTERVAL_QUANTILES = ((1 - INTERVAL) / 2, 0.5, (1 + INTERVAL) / 2)


@dataclass(frozen=True)
class FittedSeries:
    """A series of a table, with the laws fitted to a part of it."""

    name: str
    rows: pd.DataFrame
    """All rows of the series."""
    counts: list[int]
    """Worker counts that were fitted, rising."""
    choice: WeighedLaws | None
    """Weighed laws; None if these counts identify no law."""

    def predict(self) -> pd.DataFrame:
        """Return ``workers, predicted, lower, upper, law`` for every count of the series, in samples/s.

        A count with several placements gets one prediction: each of its rows is equally likely to be the one measured.
        If the data identify no law, the rates are empty and the column ``law`` gives the reason.
        """
        counts = np.unique(self.rows["workers"].to_numpy(np.int64))
        ends = self._quantiles(counts)
        law_name = self.choice.name if self.choice else why_unidentifiable(self.counts)
        reason = self._misfit_reason(counts, ends[:, 1])
        if reason:
            ends[:], law_name = np.nan, reason
        wide = too_wide(ends[:, 0], ends[:, 2])
        ends[wide] = np.nan
        names = (
            np.where(wide, why_not_predicted(self.counts), law_name) if self.choice else np.full(len(counts), law_name)
        )
        return pd.DataFrame({
            "workers": counts,
            "predicted": ends[:, 1],
            "lower": ends[:, 0],
            "upper": ends[:, 2],
            "law": names if reason else [f"{law}{end}" for law, end in zip(names, self._remarks(counts), strict=True)],
        })  # fmt: skip

    def _quantiles(self, counts: Reals) -> Reals:
        """Return samples per second at `counts`, [counts, (lower end, median, upper end)]."""
        if self.choice is None:
            return np.full((len(counts), 3), np.nan)
        steps = np.log(counts)
        drawn = np.unique(
            np.searchsorted(steps, np.linspace(steps[0], steps[-1], MAX_COUNTS)).clip(max=len(counts) - 1)
        )
        at = counts if len(counts) <= MAX_COUNTS else counts[drawn]
        rows = self.rows[self.rows["workers"].isin(at)].groupby(PLACEMENT, dropna=False).size().reset_index(name="rows")
        rates = self.choice.predict(Placements.of(rows)) + np.log(rows["workers"].to_numpy(np.float64))
        ends = np.array([_mixture_ends(rates[:, here], rows["rows"].to_numpy()[here]) for here in _row_spans(rows, at)])
        return np.exp([np.interp(steps, np.log(at), end) for end in ends.T]).T

    def _remarks(self, counts: Reals) -> Iterator[str]:
        """Yield a remark for each of `counts`: the two rates that an unknown mini-batch leaves possible, or nothing."""
        beyond = counts > max(self.counts, default=0)
        farthest = self.rows[self.rows["workers"] == counts[-1]].drop_duplicates(PLACEMENT).iloc[:1]
        medians = self.choice.medians_by_scaling(Placements.of(farthest)) if self.choice and beyond.any() else None
        if medians is None or abs(float(medians[0, 0] - medians[1, 0])) < MIN_LOG_DIFFERENCE:
            yield from [""] * len(counts)
            return
        weak, strong = np.exp(medians[:, 0]) * counts[-1]
        both = " or ".join(f"{float(f'{rate:.3g}'):,.10g}" for rate in (weak, strong))
        asked = f"; batch_per_worker would tell weak from strong scaling: {both} at {counts[-1]} workers"
        yield from np.where(beyond, asked, "")

    def _misfit_reason(self, counts: Reals, predicted: Reals) -> str:
        """Return why no law describes the fitted counts, for example as rates jump; empty if the laws do."""
        known = self.rows[self.rows["samples_per_second"].notna()].groupby("workers")["samples_per_second"].median()
        ratio = pd.Series(predicted, index=counts).div(known).reindex(self.counts).dropna()
        misfit = ratio.where(ratio > 1, 1 / ratio)
        return f"no law describes the rate at {misfit.idxmax()} workers" if (misfit > MAX_MISFIT).any() else ""

    def held_out(self) -> pd.DataFrame:
        """Return predicted and measured rates at the held-out counts, a row for each measurement."""
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


def _row_spans(rows: pd.DataFrame, counts: Reals) -> Iterator[slice]:
    """Yield for each of `counts` the slice of its rows in `rows`, which are sorted by workers."""
    workers = rows["workers"].to_numpy()
    ends = np.searchsorted(workers, counts, side="right")
    yield from (slice(start, end) for start, end in zip(np.searchsorted(workers, counts), ends, strict=True))


def _mixture_ends(rates: Reals, rows: Reals) -> Reals:
    """Return lower end, median and upper end of drawn rates [draws, placements], weighted by `rows` [placements]."""
    if rates.shape[1] == 1:
        return np.asarray(np.quantile(rates[:, 0], _INTERVAL_QUANTILES))
    order = np.argsort(rates, axis=None, kind="stable")
    weights = np.broadcast_to(rows / rows.sum() / len(rates), rates.shape).ravel()[order]
    passed = np.searchsorted(np.cumsum(weights), _INTERVAL_QUANTILES)
    return np.asarray(rates.ravel()[order][np.minimum(passed, rates.size - 1)])


def fit(rates: pd.DataFrame, fit_up_to: float = 1.0) -> Iterator[FittedSeries]:
    """Yield every series of `rates`, fitted to its rows with at most `fit_up_to` times the largest number of workers.

    At least the three smallest measured counts are fitted. Raises `InputError` for a table of too many series.
    """
    if (count := rates["series"].nunique()) > MAX_SERIES:
        raise InputError(f"{count} series; at most {MAX_SERIES:,} are fitted at once (some 5 each second): split them")
    progress = Progress("scaling laws of series", np.ones(count).tolist(), silent=count < MIN_LOGGED_SERIES)
    for done, (name, rows) in enumerate(groups(rates, "series"), start=1):
        measured = rows[rows["samples_per_second"].notna()]
        known = np.unique(measured["workers"].to_numpy(np.int64))
        # The tolerance keeps counts that rounding of the product would exclude.
        within = int((known <= fit_up_to * rows["workers"].max() * (1 + 1e-9)).sum())
        counts = [int(count) for count in known[: max(within, 3)]]
        choice = None
        fitted = measured[measured["workers"] <= counts[-1]] if counts else measured
        fitted = pd.concat([fitted, _isolated_rows(fitted)]) if "compute_seconds" in rows else fitted
        if not too_few(sorted(fitted["workers"].unique())):
            wanted = Placements.of(rows.drop_duplicates(PLACEMENT)[PLACEMENT])
            choice = choose(Series.of(fitted), wanted)
        yield FittedSeries(str(name), rows, counts, choice)
        progress.tell(done)


def _isolated_rows(fitted: pd.DataFrame) -> pd.DataFrame:
    """Return rows for one worker, from the times to compute a mini-batch; no rows if one worker was measured."""
    if (fitted["workers"] == 1).any():
        return fitted.iloc[:0]
    isolated: pd.DataFrame = fitted.assign(
        workers=1,
        workers_per_node=1.0,
        samples_per_second=fitted["batch_per_worker"] / fitted["compute_seconds"],
    )
    return isolated.dropna(subset="samples_per_second")


def extrapolate(rates: pd.DataFrame, fit_up_to: float = 1.0) -> pd.DataFrame:
    """Return ``series, workers, predicted, lower, upper, law`` for every count of every series."""
    parts = [series.predict().assign(series=series.name) for series in fit(rates, fit_up_to)]
    return pd.concat(parts, ignore_index=True)[["series", "workers", "predicted", "lower", "upper", "law"]]


OWN_RATES = "measured"
"""Name of the study's own rates among the tables."""
FITTED_COUNT_SHARE = 0.25
"""Part of the largest count up to which rates are fitted to check the laws on the rest."""
PREDICTED_DOUBLINGS = 3
"""Number of doublings of the largest count that are predicted for an external table."""


def extrapolated(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables of `tables.EXTRAPOLATED_TABLES` by name, from tables of rates by name."""
    parts: dict[str, list[pd.DataFrame]] = {table.name: [] for table in EXTRAPOLATED_TABLES}
    for name, rates in tables.items():
        for series in fit(rates if name == OWN_RATES else _with_doubled_counts(rates)):
            label = {"table": name, "series": series.name}
            if name != OWN_RATES:
                parts[EXTRAPOLATIONS.name].append(_with_measured_rates(series).assign(**label))
        for series in fit(rates, FITTED_COUNT_SHARE):
            parts[LAW_VALIDATION.name].append(series.held_out().assign(table=name, series=series.name))
    return {table.name: frame(table, _concatenated(parts[table.name])) for table in EXTRAPOLATED_TABLES}


def _concatenated(parts: list[pd.DataFrame]) -> pd.DataFrame:
    full = [part for part in parts if len(part)]
    return pd.concat(full, ignore_index=True) if full else pd.DataFrame()


def _with_doubled_counts(rates: pd.DataFrame) -> pd.DataFrame:
    """Return `rates` with further rows to predict: doubled worker counts, in placements like the largest one's."""
    more = []
    for _, rows in groups(rates, "series"):
        largest = rows.loc[[rows["workers"].idxmax()]].assign(samples_per_second=np.nan)
        strong = rows["batch_per_worker"].nunique() > 1 and (rows["workers"] * rows["batch_per_worker"]).nunique() == 1
        for factor in (2**power for power in range(1, PREDICTED_DOUBLINGS + 1)):
            batch = largest["batch_per_worker"] / (factor if strong else 1)
            more.append(largest.assign(workers=largest["workers"] * factor, batch_per_worker=batch))
    return pd.concat([rates, *more], ignore_index=True)


def _with_measured_rates(series: FittedSeries) -> pd.DataFrame:
    measured = series.rows.groupby("workers")["samples_per_second"].median().rename("measured")
    return series.predict().join(measured, on="workers")
