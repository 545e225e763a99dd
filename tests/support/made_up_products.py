"""Times of matrix products on machines that are made up, and the curves that are found from them."""

import pandas as pd

from stallpoint.models.terms import matrix_products
from stallpoint.models.terms.batch_law import BatchTimes, Kernel

PEAK, BANDWIDTH = 100e9, 25e9
CALIBRATED = (1, 2, 4, 16, 64, 256)
TRUE = Kernel(block=4, min_rows=4)


def seconds(m: int, k: int, n: int) -> float:
    """A machine that multiplies fewer than 4 rows one by one, and else reads the matrix twice and packs it."""
    read = 4 * k * n / BANDWIDTH
    return m * read if m < 4 else 2 * read + 4 * -(-m // 4) * 2 * k * n / (0.9 * PEAK)


def rows(layer: str, kind: str, m: int, k: int, n: int, time: float) -> list[dict[str, object]]:
    return [
        {
            "cell": "sgemm/c", "network": "alexnet", "hardware": "cpu", "repeat": 1, "visit": 1, "layer": layer,
            "layer_type": kind, "worker_batch": m, "m": m, "k": k, "n": n, "operations": 1, "sample": sample,
            "seconds": time * factor, "value_bytes": 4, "gflops": 2 * m * k * n / time / factor / 1e9,
        }
        for sample, factor in enumerate((0.99, 1.0, 1.02))
    ]  # fmt: skip


def changing(m: int, k: int, n: int) -> float:
    """A library that packs the matrix from 192 rows on, and not before, though that would be faster from 48 on.

    As MKL 2024.2 on one core with AVX-512 and AMX: 132 ms for 160 rows of 4096 x 9216, 90 ms for 192. A small matrix
    stays in the cache, and is never packed.
    """
    if k * n < 2**22:
        return (8 + m) * 2 * k * n / PEAK
    read = 4 * k * n / BANDWIDTH
    return read * (1 + 0.1 * m) if m < 192 else 2 * read + m * 2 * k * n / PEAK


def curves(sgemm: pd.DataFrame) -> dict[str, BatchTimes]:
    library = matrix_products.libraries(sgemm, seed=0)["cpu"]
    return {shape.name: shape.curve(library) for shape in matrix_products.shapes(sgemm, seed=0)}
