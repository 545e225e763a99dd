"""How alike two speedup curves are: matrix products at falling mini-batch beside a network's compute time.

Keuper & Pfreundt (2016), section III-B: the sgemm speedup has exactly the characteristic of the free-communication
experiment. Both speedups refer to the largest mini-batch B that both were measured at; at each smaller b
d(b) = log((t_sgemm(B)/t_sgemm(b)) / (t_network(B)/t_network(b))), and the distance is the mean of |d|.

The mean of |d| of noisy times is never 0, and drawing them again only adds noise. So the interval of the distance is
taken from those of each d: its low end is 0 where all of them hold 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stallpoint.models.base.statistics import Ensemble, estimate
from stallpoint.models.terms.compute import ALL, Compute
from stallpoint.models.terms.matrix_products import Shape


def distance(first: Ensemble, second: Ensemble) -> tuple[float, float, float]:
    """Mean |log| of the ratio of two curves [1 + REPLICATES, points], with its interval from those of each point."""
    intervals = [estimate(log) for log in np.log(first / second).T]
    values, lows, highs = (np.array(side) for side in zip(*intervals, strict=True))
    nearest = np.maximum(np.maximum(lows, -highs), 0.0)
    farthest = np.maximum(np.abs(lows), np.abs(highs))
    return float(np.abs(values).mean()), float(nearest.mean()), float(farthest.mean())


def table(compute: Compute, products: Mapping[tuple[str, str], Sequence[Shape]]) -> list[dict[str, object]]:
    """Rows of the curve_distances table: every product that shares two mini-batches with its network's compute time.

    `products` as `matrix_products.products` finds them.
    """
    return [row for key, shapes in products.items() for row in _rows(compute, key, shapes)]


def _rows(compute: Compute, key: tuple[str, str], shapes: Sequence[Shape]) -> Iterator[dict[str, object]]:
    batches, seconds = compute.by_type(*key)
    for shape in shapes:
        common = sorted(set(batches) & set(shape.batches))
        if len(common) < 2:
            continue
        whole = _speedups(batches, seconds[ALL], common)
        value, low, high = distance(_speedups(shape.batches, shape.seconds[..., 0], common), whole)
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
    """Speedup at each of `common` but the largest, over that."""
    at = [list(batches).index(batch) for batch in common]
    speedups: Ensemble = seconds[:, at[-1:]] / seconds[:, at[:-1]]
    return speedups
