"""How fast memory is copied."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stallpoint.models.base.statistics import bootstrap, columns, generator, groups, scatter, visits_of

_COPY = ("hardware", "copy", "threads")


def copy_rates(copies: pd.DataFrame, seed: int) -> list[dict[str, object]]:
    """Rows of the copy_rates table, from the tidy table `copies`."""
    usual = {hardware: scatter(rows, _COPY, "seconds") for hardware, rows in groups(copies, "hardware")}
    found = []
    for key, rows in groups(copies, _COPY):
        random = generator(seed, "copies", *key)
        seconds = bootstrap(rows["seconds"], visits_of(rows), random, np.mean, usual[key[0]])
        found.append(
            {
                **dict(zip(_COPY, key, strict=True)),
                **columns("bytes_per_second", float(rows["bytes"].mean()) / seconds),
            }
        )
    return found
