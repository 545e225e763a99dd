"""Staleness of gradients that servers apply: the updates of the weights between a worker's pull and its push.

With n equally fast workers, n - 1 others update in this time. The worker's own update makes n (Gupta, Zhang & Wang
2016). Each server counts the updates of its own shard.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from stallpoint.base.statistics import bootstrap, columns, generator, groups

TRAINING_COLUMNS = ("network", "hardware", "storage", "sync", "batch", "nodes", "workers_per_node", "ranks")
"""Columns that identify a training, whose visits and runs are pooled."""


def shares(staleness: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of the staleness_shares table: the distribution of staleness in each training."""
    return [
        {
            **dict(zip(TRAINING_COLUMNS, key, strict=True)),
            "staleness": int(stale),
            "gradients": int(count),
            "share": count / len(rows),
        }
        for key, rows in groups(staleness, TRAINING_COLUMNS)
        for stale, count in zip(*np.unique(rows["staleness"], return_counts=True), strict=True)
    ]


def workers(staleness: pd.DataFrame, seed: int) -> Iterator[dict[str, object]]:
    """Yield the rows of the worker_staleness table: each worker of each training, so that slow workers stand out."""
    visits = staleness.groupby(["cell", "visit"]).ngroup()
    for key, rows in groups(staleness.assign(of=visits), [*TRAINING_COLUMNS, "worker"]):
        *training, worker = key
        mean = bootstrap(rows["staleness"], rows["of"], generator(seed, "staleness", *key), np.mean)
        yield {
            **dict(zip(TRAINING_COLUMNS, training, strict=True)),
            "worker": int(worker),
            "gradients": len(rows),
            **columns("mean_staleness", mean),
            **columns("over_workers", (mean + 1) / training[TRAINING_COLUMNS.index("ranks")]),
        }
