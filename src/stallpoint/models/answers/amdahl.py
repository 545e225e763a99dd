"""Amdahl's law, S(n) = 1 / (s + (1 - s)/n), for the speedup S of n workers with the serial fraction s.

The law is fitted as T(n) = t_serial + t_parallel/n, both at least 0 (`non_negative_fit`); s = t_serial / T(1).

*Halvings*: the gain of each halving of the mini-batch on one worker. They show where layers and products stop scaling.

Among n nodes a worker's share of a global mini-batch B is b = B/n, so doubling the nodes halves b. If communication is
free, the doubling gains the factor t(b)/t(b/2), with t the time of an iteration on one worker. If the next smaller
measured b' is not b/2, the gain is the mean gain of a halving, (t(b)/t(b'))^(1/log2(b/b')).

*Distances*: the difference between the speedups of matrix products and of a network as the mini-batch falls.

Keuper & Pfreundt (2016), section III-B: the sgemm speedup has exactly the characteristic of the free-communication
experiment. Both speedups are relative to the largest mini-batch B measured for both. For each smaller b, d(b) is
log((t_sgemm(B)/t_sgemm(b)) / (t_network(B)/t_network(b))). The distance is the mean of |d|.

The mean of |d| of noisy times is never 0, and replicates only add noise. So the interval of the distance follows from
the intervals of d(b): its low end is 0 if every interval contains 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from stallpoint.base.non_negative_fits import non_negative_fit
from stallpoint.base.statistics import Ensemble, Reals, columns, estimate
from stallpoint.models.answers.fitted import Question
from stallpoint.models.iteration.curve_points import CurvePoints
from stallpoint.models.terms.compute import ALL_LAYER_TYPES, Compute
from stallpoint.models.terms.matrix_products import ShapeTimes
from stallpoint.records.tables import AMDAHL, CURVE_DISTANCES, HALVINGS


def serial_fraction(n: Sequence[float], seconds: Reals) -> Reals:
    """Return the serial fraction s by the times `seconds` [..., len(n)] on `n` workers; at least two counts differ."""
    design = np.stack([np.ones(len(n)), 1 / np.asarray(n, dtype=np.float64)], axis=-1)
    coefficients = non_negative_fit(design, seconds)
    return np.asarray(coefficients[..., 0] / coefficients.sum(-1))


def stall_ranks(serial_share: Reals, threshold: float) -> Reals:
    """Return the worker count from which a doubling gains less than `threshold`; infinite for a `serial_share` of 0.

    From S(2n)/S(n) = 1 + θ, with θ the threshold and s the serial fraction: n = (1 - s)·(1 - θ) / (2·s·θ).
    """
    with np.errstate(divide="ignore"):
        ranks = (1 - serial_share) * (1 - threshold) / (2 * serial_share * threshold)
    return np.maximum(ranks, 1.0)


def speedup_limit(serial_share: Reals) -> Reals:
    """Return the upper limit of the speedup, 1/s; infinite for s = 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(1 / serial_share)


def table(compute: Compute, curves: Iterable[CurvePoints], threshold: float) -> list[dict[str, object]]:
    """Return the amdahl table: a row for each layer type on one worker, and for each measured strong-scaling curve."""
    return [*_compute_rows(compute, threshold), *_measured_rows(curves, threshold)]


def _compute_rows(compute: Compute, threshold: float) -> Iterator[dict[str, object]]:
    for network, hardware in compute.cells:
        batches, seconds = compute.seconds_by_layer_type(network, hardware)
        # One worker with mini-batch B/n computes as much as each of n workers does by strong scaling.
        n = [max(batches) / batch for batch in batches]
        for kind, times in seconds.items():
            labels = {"network": network, "hardware": hardware, "basis": "compute", "layer_type": kind, "series": ""}
            yield labels | _fit_row(n, times, threshold, 1, "mini-batches")


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
        yield labels | {"series": series} | _fit_row(n, times, threshold, curve.base, "worker counts")


def _fit_row(n: Sequence[float], seconds: Ensemble, threshold: float, base: int, count_noun: str) -> dict[str, object]:
    """Return the columns of a row that the fit gives; `n` are worker counts divided by `base`, the smallest count."""
    if len(set(n)) < 2:
        unknowns = np.full(len(seconds), np.nan)
        share, stall, limit, note = unknowns, unknowns, unknowns, f"fewer than two different {count_noun}"
    elif not (seconds > 0).all():
        unknowns = np.full(len(seconds), np.nan)
        share, stall, limit, note = unknowns, unknowns, unknowns, "no measurable time"
    else:
        share = serial_fraction(n, seconds)
        stall, limit, note = stall_ranks(share, threshold) * base, speedup_limit(share), ""
    quantities = columns("serial_fraction", share) | columns("stall_ranks", stall) | columns("speedup_limit", limit)
    return {**quantities, "points": len(set(n)), "note": note}


def halving_gains(batches: Sequence[int], seconds: Ensemble) -> Iterator[tuple[int, int, Ensemble]]:
    """Yield each pair of neighbours in the rising `batches`, the larger first, and the gain of a halving.

    `seconds` is [1 + REPLICATES, len(batches)]. The gain is NaN where the time of the smaller mini-batch is 0.
    """
    for index in range(1, len(batches)):
        smaller, larger = batches[index - 1], batches[index]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = seconds[:, index] / seconds[:, index - 1]
            gain = np.where(np.isfinite(ratio), ratio, np.nan) ** (1 / np.log2(larger / smaller))
        yield larger, smaller, gain


def halvings(compute: Compute, products: Mapping[tuple[str, str], Sequence[ShapeTimes]]) -> list[dict[str, object]]:
    """Return the rows of the halvings table; `products` come from the function `matrix_products.products`."""
    return [*_layer_halving_rows(compute), *_product_halving_rows(products)]


def _layer_halving_rows(compute: Compute) -> Iterator[dict[str, object]]:
    for network, hardware in compute.cells:
        batches, seconds = compute.seconds_by_layer_type(network, hardware)
        for kind, times in seconds.items():
            labels = {"network": network, "hardware": hardware, "basis": "layers", "layer": "", "layer_type": kind}
            yield from _halving_rows(labels, batches, times)


def _product_halving_rows(products: Mapping[tuple[str, str], Sequence[ShapeTimes]]) -> Iterator[dict[str, object]]:
    for (network, hardware), shapes in products.items():
        for shape in shapes:
            labels = {"layer": shape.name, "layer_type": shape.layer_type}
            labels = {"network": network, "hardware": hardware, "basis": "sgemm", **labels}
            yield from _halving_rows(labels, shape.batches, shape.seconds[..., 0])


def _halving_rows(labels: dict[str, str], batches: Sequence[int], seconds: Ensemble) -> Iterator[dict[str, object]]:
    for larger, smaller, gain in halving_gains(batches, seconds):
        yield {**labels, "worker_batch": larger, "to_batch": smaller, **columns("gain", gain)}


def distance(first_speedups: Ensemble, second_speedups: Ensemble) -> tuple[float, float, float]:
    """Return the mean of |log(first / second speedups)| and its interval; speedups are [1 + REPLICATES, points]."""
    intervals = [estimate(log) for log in np.log(first_speedups / second_speedups).T]
    values, lows, highs = (np.array(side) for side in zip(*intervals, strict=True))
    lower_distances = np.maximum(np.maximum(lows, -highs), 0.0)
    upper_distances = np.maximum(np.abs(lows), np.abs(highs))
    return float(np.abs(values).mean()), float(lower_distances.mean()), float(upper_distances.mean())


def curve_distances(
    compute: Compute, products: Mapping[tuple[str, str], Sequence[ShapeTimes]]
) -> Iterator[dict[str, object]]:
    """Yield the rows of the curve_distances table, one for each shape of a matrix product.

    A shape needs at least two mini-batches at which its network's compute time was measured too.
    """
    for key, shapes in products.items():
        batches, seconds = compute.seconds_by_layer_type(*key)
        for shape in shapes:
            overlap = sorted(set(batches) & set(shape.batches))
            if len(overlap) < 2:
                continue
            network_speedups = _speedups(batches, seconds[ALL_LAYER_TYPES], overlap)
            value, low, high = distance(_speedups(shape.batches, shape.seconds[..., 0], overlap), network_speedups)
            yield {
                "network": key[0],
                "hardware": key[1],
                "layer": shape.name,
                "layer_type": shape.layer_type,
                "largest_batch": overlap[-1],
                "smallest_batch": overlap[0],
                "points": len(overlap) - 1,
                "distance": value,
                "distance_low": low,
                "distance_high": high,
            }


def _speedups(batches: Sequence[int], seconds: Ensemble, common_batches: Sequence[int]) -> Ensemble:
    """Return the time at the largest of the `common_batches` over the time at each smaller one."""
    indices = [list(batches).index(batch) for batch in common_batches]
    speedups: Ensemble = seconds[:, indices[-1:]] / seconds[:, indices[:-1]]
    return speedups


QUESTIONS = (
    Question(AMDAHL, lambda fitted: table(fitted.compute, fitted.training_curves, fitted.asked.threshold)),
    Question(HALVINGS, lambda fitted: halvings(fitted.compute, fitted.products)),
    Question(CURVE_DISTANCES, lambda fitted: curve_distances(fitted.compute, fitted.products)),
)
