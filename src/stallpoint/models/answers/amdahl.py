"""Amdahl's law, S(n) = 1 / (s + (1 - s)/n): the serial fraction s, and where doubling stops paying.

Fitted as T(n) = t_serial + t_parallel/n, both non-negative (`non_negative_fit`); s = t_serial / T(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stallpoint.base.non_negative_fits import non_negative_fit
from stallpoint.base.statistics import Ensemble, Reals, columns
from stallpoint.models.answers.fitted import Question
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.terms.compute import Compute
from stallpoint.records.tables import AMDAHL


def serial_fraction(n: Sequence[float], seconds: Reals) -> Reals:
    """Return the serial fraction s of times `seconds` [..., len(n)] on `n` workers, at least two of which differ."""
    design = np.stack([np.ones(len(n)), 1 / np.asarray(n, dtype=np.float64)], axis=-1)
    coefficients = non_negative_fit(design, seconds)
    return np.asarray(coefficients[..., 0] / coefficients.sum(-1))


def stall_ranks(serial: Reals, threshold: float) -> Reals:
    """Return the worker count from which doubling gains less than `threshold` (0.10: 10 %); at least 1, infinite for
    s = 0.

    From S(2n)/S(n) = 1 + θ: n = (1 - s)·(1 - θ) / (2·s·θ).
    """
    with np.errstate(divide="ignore"):
        ranks = (1 - serial) * (1 - threshold) / (2 * serial * threshold)
    return np.maximum(ranks, 1.0)


def speedup_limit(serial: Reals) -> Reals:
    """Return the upper limit of the speedup, 1/s; infinite for s = 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(1 / serial)


def table(compute: Compute, curves: Iterable[CurvePoints], threshold: float) -> list[dict[str, object]]:
    """Rows of the amdahl table, by layer type on one worker and for each measured strong-scaling curve."""
    return [*_compute_rows(compute, threshold), *_measured_rows(curves, threshold)]


def _compute_rows(compute: Compute, threshold: float) -> Iterator[dict[str, object]]:
    for network, hardware in compute.cells:
        batches, seconds = compute.by_type(network, hardware)
        # b = B/n: falling mini-batch on one worker is strong scaling with free communication.
        n = [max(batches) / batch for batch in batches]
        for kind, times in seconds.items():
            labels = {"network": network, "hardware": hardware, "basis": "compute", "layer_type": kind, "series": ""}
            yield labels | _fitted(n, times, threshold, 1, "mini-batches")


def _measured_rows(curves: Iterable[CurvePoints], threshold: float) -> Iterator[dict[str, object]]:
    for curve in curves:
        if not (curve.strong and curve.measured):
            continue
        point = curve.origin
        n = [ranks / curve.base for ranks in curve.measured]
        times = np.stack([measured.parts.iteration_time for measured in curve.measured.values()], axis=-1)
        series = f"{point.storage}/{point.sync}/{point.prefetch}/{point.batch}"
        if curve.per_node > 1:
            series += f"/{curve.per_node} per node"
        labels = {"network": point.network, "hardware": point.hardware, "basis": "measured", "layer_type": "all"}
        yield labels | {"series": series} | _fitted(n, times, threshold, curve.base, "worker counts")


def _fitted(n: Sequence[float], seconds: Ensemble, threshold: float, base: int, what: str) -> dict[str, object]:
    """Return the fitted columns; `n` is relative to the smallest worker count, `base`."""
    if len(set(n)) < 2:
        unknown = np.full(len(seconds), np.nan)
        serial, stall, limit, note = unknown, unknown, unknown, f"fewer than two different {what}"
    elif not (seconds > 0).all():
        unknown = np.full(len(seconds), np.nan)
        serial, stall, limit, note = unknown, unknown, unknown, "no measurable time"
    else:
        serial = serial_fraction(n, seconds)
        stall, limit, note = stall_ranks(serial, threshold) * base, speedup_limit(serial), ""
    quantities = columns("serial_fraction", serial) | columns("stall_ranks", stall) | columns("speedup_limit", limit)
    return {**quantities, "points": len(set(n)), "note": note}


QUESTIONS = (Question(AMDAHL, lambda fitted: table(fitted.compute, fitted.training, fitted.asked.threshold)),)
