"""Predictions by scaling laws (`stallpoint.models.scaling`) beyond the largest measured count of a series."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from stallpoint.base.curve import Curve
from stallpoint.base.section import Finding
from stallpoint.text import number
from stallpoint_files.file_options import Options
from stallpoint_files.rates.rate_rows import STRONG, WEAK
from stallpoint_files.rates.rate_series import ASKED, RateSeries

if TYPE_CHECKING:
    import pandas as pd

SAME_GAIN, MIN_FALL = 0.01, 0.1
"""Maximum difference of equal gains of two doublings, and minimum drop over three doublings for gains to fall."""


def with_prediction(found: Finding, series: RateSeries, options: Options) -> Finding:
    """Return the finding with the laws' prediction of the requested count, or of twice the largest."""
    curve = series.first
    if curve.odd_count is not None:
        return replace(found, beyond=f"not predicted: the rate at {curve.odd_count} does not belong to the others")
    from stallpoint.models.scaling.extrapolation import fit  # a late import: pandas takes half a second

    last = curve.counts[-1]
    asked_at = options.at[-1] if options.at else 2 * last
    table = _law_input(series, asked_at, options)
    (fitted,) = fit(table)
    predicted = fitted.predict()
    at = predicted[predicted["workers"] == asked_at].to_dict("records")[0]
    law, _, asked = str(at["law"]).partition("; ")
    asks = list(found.ask)
    if asked and not options.scaling:
        _, _, both = asked.partition(": ")
        asks.append(f"{ASKED[WEAK].partition(', or')[0]}: {both.replace('workers', series.counted)}")
    if math.isnan(at["predicted"]):
        reason = law.partition(": ")[2] or law
        return replace(found, beyond=f"not predicted: {reason}", ask=tuple(asks))
    if falling := _why_falling(curve, bool(table["batch_per_worker"].isna().all()), float(at["lower"])):
        return replace(found, beyond=f"not predicted: {falling}", ask=(f"a rate at {asked_at} {series.counted}", *asks))
    percent = round(100 * (at["predicted"] / curve.rate(last) - 1))
    gains = f"a {'gain' if percent > 0 else 'loss'} of {abs(percent)} %" if percent else "no gain"
    ends = f"{number(at['lower'])} to {number(at['upper'])}"
    beyond = f"{asked_at}: {number(at['predicted'])} {curve.unit} ({ends}), {gains}"
    if (node := curve.full_node_workers) and last <= node < asked_at:
        asks.append(f"a rate on 2 nodes ({2 * node} {series.counted}): nothing that is measured crosses the network")
    point = {"workers": asked_at, "predicted": at["predicted"], "low": at["lower"], "high": at["upper"]}
    return replace(found, beyond=beyond, ask=tuple(asks), points=(*found.points, point))


def _law_input(series: RateSeries, asked_at: int, options: Options) -> pd.DataFrame:
    """Return the measured rates in the form that laws are fitted to, and a row for the requested count."""
    import pandas as pd

    scaling, reading = next(iter(series.readings.items()))
    scaling = options.scaling or scaling
    rows: list[dict[str, Any]] = [
        {
            "series": series.name,
            "workers": float(row.workers),
            "workers_per_node": row.workers_per_node,
            "samples_per_second": rate,
            "batch_per_worker": row.batch_per_worker,
        }
        for row, rate in reading.runs
    ]
    asked: dict[str, Any] = {**rows[-1], "workers": float(asked_at), "samples_per_second": None}
    totals = {row["workers"] * (row["batch_per_worker"] or math.nan) for row in rows}
    if options.at_batch:
        asked["batch_per_worker"] = options.at_batch / asked_at
    elif len(totals) == 1 and len({row["workers"] for row in rows}) > 1:  # the global mini-batch is constant
        asked["batch_per_worker"] = totals.pop() / asked_at
    table = pd.DataFrame([*rows, asked]).astype(dict.fromkeys(list(asked)[1:], float))
    if scaling in (STRONG, WEAK) and table["batch_per_worker"].isna().all():
        table["batch_per_worker"] = series.first.counts[-1] / table["workers"] if scaling == STRONG else 1.0
    return table


def _why_falling(curve: Curve, batch_unknown: bool, lower: float) -> str:
    """Return why the interval has no valid lower end: gains per doubling fall faster and faster for an unknown reason.

    An example is a mini-batch that is split, which no law covers if its size is unknown. The text is empty for other
    curves, and if the interval already includes no further gain. `SAME_GAIN` and `MIN_FALL` were chosen with one public
    curve in sight (docs/own-numbers.md). With known mini-batches such curves are predicted: of 32 in public tables
    (H100, Pollux; benchmarks/public_tables.py) 27 rates at twice the count were in the interval, 3 below it.
    """
    gains = [curve.gain(a, b) for a, b in pairwise(curve.counts)][-3:]
    falls = len(gains) == 3 and gains[0] - SAME_GAIN > gains[1] and gains[1] - SAME_GAIN > gains[2]
    if (
        not batch_unknown
        or not falls
        or gains[0] - gains[2] < MIN_FALL
        or lower < (1 + curve.threshold) * curve.rate(curve.counts[-1])
    ):
        return ""
    listed = ", ".join(f"{100 * (gain - 1):.0f} %" for gain in gains)
    return f"each doubling gains less than the one before ({listed}), and nothing says how much less the next one does"
