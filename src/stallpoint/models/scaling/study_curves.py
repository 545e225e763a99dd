"""Scaling laws fitted to the study's own scaling curves, next to the DAG model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from stallpoint.base.measured import Measured, Point
from stallpoint.base.statistics import INTERVAL, Ensemble, Reals, columns, unknown_ensemble
from stallpoint.models.iteration.scaling_curve import ScalingCurve
from stallpoint.models.scaling.scaling_law_choice import choose, too_few, too_wide, would_tell
from stallpoint.models.scaling.series_placement import PLACEMENT, Placements, Series

_QUANTILES = (0.5, (1 - INTERVAL) / 2, (1 + INTERVAL) / 2)
_RATE = "samples_per_second"
_UNKNOWN = unknown_ensemble()


def rates(curves: Iterable[ScalingCurve]) -> list[dict[str, object]]:
    """Return the rows of the rates table: every measured point of every curve."""
    return [row for curve in curves for row in _measured(curve)]


def scaling_laws(curves: Iterable[ScalingCurve]) -> list[dict[str, object]]:
    """Return the rows of the scaling_laws table: the chosen law, or their average, at every count of every curve."""
    return [row for curve in curves for row in _curve_rows(curve)]


def _placement(point: Point) -> dict[str, float]:
    batch = float(point.worker_batch)
    return {"workers": point.ranks, "workers_per_node": point.ranks / point.nodes, "batch_per_worker": batch}


def _measured(curve: ScalingCurve) -> Iterator[dict[str, object]]:
    for measured in curve.measured.values():
        point = measured.point
        name = "/".join(map(str, point.series))
        if _usable(measured):
            seconds = float(measured.parts.iteration_time[0])
            yield {"series": name, **_placement(point), _RATE: point.global_batch / seconds}


def _usable(measured: Measured) -> bool:
    return 0 < float(measured.parts.iteration_time[0]) < np.inf


def _curve_rows(curve: ScalingCurve) -> Iterator[dict[str, object]]:
    measured = pd.DataFrame(_measured(curve), columns=["series", *PLACEMENT, _RATE])
    points = [predicted.point for predicted in curve.predicted.values()]
    wanted = Placements.of(pd.DataFrame([_placement(point) for point in points]))
    counted = "nodes" if curve.per_node == 1 else "workers"
    refusal = too_few([n for n, at in curve.measured.items() if _usable(at)], counted)
    if refusal:
        empty = np.full((3, len(points)), np.nan)
        yield from _law_rows(curve, points, empty, [refusal] * len(points))
        return
    choice = choose(Series.of(measured), wanted)
    rates = wanted.workers * np.exp(np.quantile(choice.predict(wanted), _QUANTILES, axis=0))
    counts = sorted(int(ranks) for ranks in measured["workers"])
    wide = too_wide(rates[1], rates[2])
    rates[:, wide] = np.nan
    notes = np.where(wide, would_tell(counts), choice.name)
    yield from _law_rows(curve, points, rates, notes)


def _law_rows(
    curve: ScalingCurve, points: list[Point], rate: Reals, notes: Iterable[str]
) -> Iterator[dict[str, object]]:
    """Yield a row for each point; `rate` holds median and ends of samples per second, [3, points]."""
    for point, (value, low, high), note in zip(points, rate.T, notes, strict=True):
        measured = curve.measured.get(point.ranks)
        times = measured.parts.iteration_time if measured else _UNKNOWN
        yield {
            **point.labels(),
            _RATE: value,
            f"{_RATE}_low": low,
            f"{_RATE}_high": high,
            **columns(f"dag_{_RATE}", _rate(point, curve.predicted[point.ranks].parts.iteration_time)),
            **columns(f"measured_{_RATE}", _rate(point, times)),
            "note": str(note),
        }


def _rate(point: Point, seconds: Ensemble) -> Ensemble:
    """Return samples per second; not a number where an iteration of no time is predicted."""
    return point.global_batch / np.where(seconds > 0, seconds, np.nan)
