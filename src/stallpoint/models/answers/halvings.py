"""What each halving of the mini-batch gains on one worker: where layers and matrix products stop scaling.

n nodes split a global mini-batch into b = B/n, so a doubling of the nodes halves b. With free communication it gains a
factor t(b)/t(b/2); where b and the next measured b' are further apart, (t(b)/t(b'))^(1/log2(b/b')), the gain of each
halving between them if they are all alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stallpoint.models.base.statistics import Ensemble, columns
from stallpoint.models.terms.compute import Compute
from stallpoint.models.terms.matrix_products import Shape


def gains(batches: Sequence[int], seconds: Ensemble) -> Iterator[tuple[int, int, Ensemble]]:
    """Each of `batches` (rising) but the first, the next smaller one, and the gain of each halving between them.

    `seconds` [1 + REPLICATES, len(batches)]; the gain is not a number where a time is 0.
    """
    for index in range(1, len(batches)):
        smaller, larger = batches[index - 1], batches[index]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = seconds[:, index] / seconds[:, index - 1]
            gain = np.where(np.isfinite(ratio), ratio, np.nan) ** (1 / np.log2(larger / smaller))
        yield larger, smaller, gain


def table(compute: Compute, products: Mapping[tuple[str, str], Sequence[Shape]]) -> list[dict[str, object]]:
    """Rows of the halvings table; `products` as `matrix_products.products` finds them."""
    return [*_of_layers(compute), *_of_products(products)]


def _of_layers(compute: Compute) -> Iterator[dict[str, object]]:
    for network, hardware in compute.cells:
        batches, seconds = compute.by_type(network, hardware)
        for kind, times in seconds.items():
            labels = {"network": network, "hardware": hardware, "basis": "layers", "layer": "", "layer_type": kind}
            yield from _rows(labels, batches, times)


def _of_products(products: Mapping[tuple[str, str], Sequence[Shape]]) -> Iterator[dict[str, object]]:
    for (network, hardware), shapes in products.items():
        for shape in shapes:
            labels = {"layer": shape.name, "layer_type": shape.layer_type}
            labels = {"network": network, "hardware": hardware, "basis": "sgemm", **labels}
            yield from _rows(labels, shape.batches, shape.seconds[..., 0])


def _rows(labels: dict[str, str], batches: Sequence[int], seconds: Ensemble) -> Iterator[dict[str, object]]:
    for larger, smaller, gain in gains(batches, seconds):
        yield {**labels, "worker_batch": larger, "to_batch": smaller, **columns("gain", gain)}
