"""Bytes that an iteration moves: training data against gradients (Keuper & Pfreundt, 2016, section IV-A).

As there, gradients are those of n workers that share a parameter server: n - 1 send their gradients to it and receive
the weights, 2(n-1) times the size of the model. A whole training moves what an epoch does times its epochs: their
AlexNet 100 x 150 GB = 15 TB of images, and 450,000 x 250 MB x 2(n-1) of gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from stallpoint.models.base.measured import Measured, Point
from stallpoint.models.terms.trainings import Layers


def table(
    points: Iterable[Measured], networks: Mapping[str, Layers], storage_reads: pd.DataFrame, epoch_samples: int
) -> list[dict[str, object]]:
    """Rows of the traffic table; `storage_reads` as the tidy table of this name."""
    sample = storage_reads.groupby(["hardware", "storage"])["bytes"].mean()
    return [
        _row(point, float(sample[point.hardware, point.storage]), networks[point.network], epoch_samples)
        for point in (measured.point for measured in points)
        if point.ranks > 1 and (point.hardware, point.storage) in sample.index and point.network in networks
    ]


def _row(point: Point, sample_bytes: float, layers: Layers, epoch_samples: int) -> dict[str, object]:
    gradients = 2 * (point.ranks - 1) * int(layers.gradient_bytes.sum())
    return {
        **point.labels(),
        "data_bytes": round(point.global_batch * sample_bytes),
        "gradient_bytes": gradients,
        "epoch_data_bytes": epoch_samples * sample_bytes,
        "epoch_gradient_bytes": epoch_samples / point.global_batch * gradients,
    }
