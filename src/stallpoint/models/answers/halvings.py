"""Gain of each halving of the mini-batch on one worker: where layers and matrix products stop scaling.

n nodes split a global mini-batch into b = B/n, so a doubling of the nodes halves b. With free communication it gains a
factor t(b)/t(b/2); where b and the next measured b' are further apart, (t(b)/t(b'))^(1/log2(b/b')), the gain of each
halving between them if they are all alike.

*Distances*: how alike the speedups of matrix products and of a network are, both at falling mini-batch.

Keuper & Pfreundt (2016), section III-B: the sgemm speedup has exactly the characteristic of the free-communication
experiment. Both speedups refer to the largest mini-batch B that both were measured at; at each smaller b
d(b) = log((t_sgemm(B)/t_sgemm(b)) / (t_network(B)/t_network(b))), and the distance is the mean of |d|.

The mean of |d| of noisy times is never 0, and drawing them again only adds noise. So the interval of the distance is
taken from those of each d: its low end is 0 where all of them hold 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stallpoint.base.statistics import Ensemble, columns, estimate
from stallpoint.models.answers.fitted import Question
from stallpoint.models.terms.compute import ALL, Compute
from stallpoint.models.terms.matrix_products import ShapeTimes
from stallpoint.records.tables import CURVE_DISTANCES, HALVINGS


def gains(batches: Sequence[int], seconds: Ensemble) -> Iterator[tuple[int, int, Ensemble]]:
    """Yield each of the rising `batches` but the first, the next smaller one, and the gain per halving between them.

    `seconds` [1 + REPLICATES, len(batches)]; the gain is NaN where a time is 0.
    """
    for index in range(1, len(batches)):
        smaller, larger = batches[index - 1], batches[index]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = seconds[:, index] / seconds[:, index - 1]
            gain = np.where(np.isfinite(ratio), ratio, np.nan) ** (1 / np.log2(larger / smaller))
        yield larger, smaller, gain


def halvings(compute: Compute, products: Mapping[tuple[str, str], Sequence[ShapeTimes]]) -> list[dict[str, object]]:
    """Rows of the halvings table; `products` as from `matrix_products.products`."""
    return [*_of_layers(compute), *_of_products(products)]


def _of_layers(compute: Compute) -> Iterator[dict[str, object]]:
    for network, hardware in compute.cells:
        batches, seconds = compute.by_type(network, hardware)
        for kind, times in seconds.items():
            labels = {"network": network, "hardware": hardware, "basis": "layers", "layer": "", "layer_type": kind}
            yield from _halved(labels, batches, times)


def _of_products(products: Mapping[tuple[str, str], Sequence[ShapeTimes]]) -> Iterator[dict[str, object]]:
    for (network, hardware), shapes in products.items():
        for shape in shapes:
            labels = {"layer": shape.name, "layer_type": shape.layer_type}
            labels = {"network": network, "hardware": hardware, "basis": "sgemm", **labels}
            yield from _halved(labels, shape.batches, shape.seconds[..., 0])


def _halved(labels: dict[str, str], batches: Sequence[int], seconds: Ensemble) -> Iterator[dict[str, object]]:
    for larger, smaller, gain in gains(batches, seconds):
        yield {**labels, "worker_batch": larger, "to_batch": smaller, **columns("gain", gain)}


def distance(first: Ensemble, second: Ensemble) -> tuple[float, float, float]:
    """Return the mean |log| ratio of two curves [1 + REPLICATES, points], with an interval from those of each point."""
    intervals = [estimate(log) for log in np.log(first / second).T]
    values, lows, highs = (np.array(side) for side in zip(*intervals, strict=True))
    nearest = np.maximum(np.maximum(lows, -highs), 0.0)
    farthest = np.maximum(np.abs(lows), np.abs(highs))
    return float(np.abs(values).mean()), float(nearest.mean()), float(farthest.mean())


def curve_distances(
    compute: Compute, products: Mapping[tuple[str, str], Sequence[ShapeTimes]]
) -> Iterator[dict[str, object]]:
    """Rows of the curve_distances table: every product that shares two mini-batches with its network's compute time.

    `products` as from `matrix_products.products`.
    """
    for key, shapes in products.items():
        batches, seconds = compute.by_type(*key)
        for shape in shapes:
            common = sorted(set(batches) & set(shape.batches))
            if len(common) < 2:
                continue
            network_speedups = _speedups(batches, seconds[ALL], common)
            value, low, high = distance(_speedups(shape.batches, shape.seconds[..., 0], common), network_speedups)
            yield {
                "network": key[0],
                "hardware": key[1],
                "layer": shape.name,
                "layer_type": shape.layer_type,
                "largest_batch": common[-1],
                "smallest_batch": common[0],
                "points": len(common) - 1,
                "distance": value,
                "distance_low": low,
                "distance_high": high,
            }


def _speedups(batches: Sequence[int], seconds: Ensemble, common: Sequence[int]) -> Ensemble:
    """Return the speedup at each of `common` but the largest, relative to the largest."""
    at = [list(batches).index(batch) for batch in common]
    speedups: Ensemble = seconds[:, at[-1:]] / seconds[:, at[:-1]]
    return speedups


QUESTIONS = (
    Question(HALVINGS, lambda fitted: halvings(fitted.compute, fitted.products)),
    Question(CURVE_DISTANCES, lambda fitted: curve_distances(fitted.compute, fitted.products)),
)
