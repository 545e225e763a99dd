"""Bytes that an iteration moves: training data against gradients (Keuper & Pfreundt, 2016, section IV-A).

As there, gradients are those of n workers that share a parameter server: n - 1 send their gradients to it and receive
the weights, 2(n-1) times the size of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from stallpoint.models.base.measured import Measured
from stallpoint.models.terms.trainings import Layers


def table(
    points: Iterable[Measured], networks: Mapping[str, Layers], storage_reads: pd.DataFrame
) -> list[dict[str, object]]:
    """Rows of the traffic table; `storage_reads` as the tidy table of this name."""
    sample = storage_reads.groupby(["hardware", "storage"])["bytes"].mean()
    return [
        {
            **point.labels(),
            "data_bytes": round(point.global_batch * float(sample[point.hardware, point.storage])),
            "gradient_bytes": 2 * (point.ranks - 1) * int(networks[point.network].gradient_bytes.sum()),
        }
        for point in (measured.point for measured in points)
        if point.ranks > 1 and (point.hardware, point.storage) in sample.index and point.network in networks
    ]
