"""How stale the gradients were that servers applied: updates of the weights since the worker had taken them.

Of n workers that are equally fast, n - 1 others update between a worker's pull and its push; with its own counted that
is n, the number of workers (Gupta, Zhang & Wang 2016). Each server counts the updates of its own share.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from stallpoint.models.answers.fitted import Question
from stallpoint.models.base.statistics import bootstrap, columns, generator, groups
from stallpoint.records.tables import STALENESS_SHARES, WORKER_STALENESS

TRAINING = ("network", "hardware", "storage", "sync", "batch", "nodes", "workers_per_node", "ranks")
"""Which training; all visits and runs of it together."""


def shares(staleness: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of the staleness_shares table: how many gradients were so stale, for each training."""
    return [
        {
            **dict(zip(TRAINING, key, strict=True)),
            "staleness": int(stale),
            "gradients": int(count),
            "share": count / len(rows),
        }
        for key, rows in groups(staleness, TRAINING)
        for stale, count in zip(*np.unique(rows["staleness"], return_counts=True), strict=True)
    ]


def workers(staleness: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Rows of the worker_staleness table: each worker of each training, so that a slow one is seen."""
    return list(_workers(staleness, seed))


def _workers(staleness: pd.DataFrame, seed: int) -> Iterator[dict[str, object]]:
    visits = staleness.groupby(["cell", "visit"]).ngroup()
    for key, rows in groups(staleness.assign(of=visits), [*TRAINING, "worker"]):
        *place, worker = key
        mean = bootstrap(rows["staleness"], rows["of"], generator(seed, "staleness", *key), np.mean)
        yield {
            **dict(zip(TRAINING, place, strict=True)),
            "worker": int(worker),
            "gradients": len(rows),
            **columns("mean_staleness", mean),
            **columns("over_workers", (mean + 1) / place[TRAINING.index("ranks")]),
            "largest_staleness": int(rows["staleness"].max()),
        }


QUESTIONS = (
    Question(STALENESS_SHARES, lambda fitted: shares(fitted.tidy["staleness"])),
    Question(WORKER_STALENESS, lambda fitted: workers(fitted.tidy["staleness"], fitted.asked.seed)),
)
