"""Sobol' sequences: points that fill a unit cube more evenly than random ones.

SciPy's `scipy.stats.qmc.Sobol` gives the same points, but importing `scipy.stats` takes more time than a whole answer.
Directions are those of Joe and Kuo (2008), Constructing Sobol sequences with better two-dimensional projections;
scrambling is by a random linear matrix and a random shift (Matoušek 1998).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from stallpoint.base.distributions import normal_quantile
from stallpoint.base.statistics import Reals

BITS = 30
"""Binary digits of a coordinate."""
_DIRECTIONS = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
)
"""Degree and coefficients of the primitive polynomial, and direction numbers, of each dimension after the first."""
MAX_DIMENSIONS = 1 + len(_DIRECTIONS)


def sobol(dimensions: int, count: int, seed: int | None = None) -> Reals:
    """Return the first points of the sequence, [count, dimensions], in [0, 1); with a `seed` they are scrambled."""
    direction_digits = np.stack([_direction_digits(dimension) for dimension in range(dimensions)])
    weights = 2 ** np.arange(BITS - 1, -1, -1)
    random_shift = np.zeros(dimensions, np.int64)
    if seed is not None:
        random = np.random.default_rng(seed)
        random_shift = random.integers(2, size=(dimensions, BITS), dtype=np.uint32) @ weights[::-1]
        scrambling_matrix = np.tril(random.integers(2, size=(dimensions, BITS, BITS), dtype=np.uint32)).astype(np.int64)
        scrambling_matrix[:, range(BITS), range(BITS)] = 1
        direction_digits = direction_digits @ scrambling_matrix.swapaxes(1, 2) % 2
    directions = (direction_digits @ weights).T
    # In the order of the Gray code, points n and n + 1 differ in the direction of the lowest binary digit 0 of n.
    numbers = np.arange(count - 1)
    lowest_zero = np.log2(~numbers & (numbers + 1)).astype(np.int64)
    steps = np.concatenate([random_shift[None], directions[lowest_zero]])
    return np.asarray(np.bitwise_xor.accumulate(steps) / 2**BITS)


@cache
def normal_points(dimensions: int, count: int, seed: int) -> Reals:
    """Return quasi-random standard normal draws, [count, dimensions]."""
    return normal_quantile(sobol(dimensions, count, seed))


def _direction_digits(dimension: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the directions of one dimension in binary, [direction, digit], with the most significant digit first."""
    if dimension == 0:
        return np.eye(BITS, dtype=np.int64)
    degree, polynomial, first = _DIRECTIONS[dimension - 1]
    numbers = list(first)
    for index in range(degree, BITS):
        number = numbers[index - degree] ^ (numbers[index - degree] << degree)
        for back in range(1, degree):
            if polynomial >> (degree - 1 - back) & 1:
                number ^= numbers[index - back] << back
        numbers.append(number)
    shifted_numbers = [number << (BITS - 1 - index) for index, number in enumerate(numbers)]
    return np.array([[number >> digit & 1 for digit in range(BITS - 1, -1, -1)] for number in shifted_numbers])
