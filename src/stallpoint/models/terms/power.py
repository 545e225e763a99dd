"""Power of a node while it trains: energy that visits counted over their time.

One visit gives the joules of the processors and memory of its nodes, once for each kernel, and those of the GPUs of all
ranks, over seconds and nodes. A cell in which a counter was unreadable has no power.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stallpoint.models.base.statistics import Ensemble, bootstrap, generator, scatter, visits_of

_VISIT = ["cell", "hardware", "nodes", "repeat", "visit"]
_WORDS = {"package": "processors", "dram": "memory", "GPU": "GPUs"}


@dataclass(frozen=True)
class Power:
    """Power of a node."""

    watts: Ensemble
    counted: str
    """What it is the power of, in words."""


class MeasuredPower:
    """Power of nodes by the rows of the table ``energy``."""

    def __init__(self, energy: pd.DataFrame, seed: int) -> None:
        nodes = energy.drop_duplicates([*_VISIT, "kernel"]).groupby(_VISIT)["node_energy"].agg(_sum)
        visits = energy.groupby(_VISIT).agg(
            gpus=("gpu_energy", _sum), seconds=("seconds", "mean"), counted=("counted", "first")
        )
        visits = visits.assign(joules=nodes + visits["gpus"]).reset_index()
        self._visits = visits.assign(watts=visits["joules"] / visits["seconds"] / visits["nodes"]).dropna(
            subset="watts"
        )
        self._seed = seed

    def of(self, cells: Collection[str]) -> Power | None:
        """Return the power in these cells of one point; None unless it was measured in all of them."""
        rows = self._visits[self._visits["cell"].isin(list(cells))]
        return self._power(rows, visits_of(rows)) if {*rows["cell"]} == {*cells} else None

    def usual(self, hardware: str, cells: Collection[str]) -> Power | None:
        """Return the power in any cell like these on a hardware entry; None if it was measured in none of them."""
        rows = self._visits[(self._visits["hardware"] == hardware) & self._visits["cell"].isin(list(cells))]
        return self._power(rows, rows["cell"]) if len(rows) else None

    def _power(self, rows: pd.DataFrame, apart: pd.Series) -> Power:
        """Return the mean; values that differ in `apart` are independent."""
        usual = scatter(self._visits[self._visits["hardware"] == rows["hardware"].iloc[0]], ["cell"], "watts")
        random = generator(self._seed, "power", *sorted(rows["cell"].unique()))
        counted = rows["counted"].iloc[0]
        words = ", ".join(word for name, word in _WORDS.items() if name in counted)
        return Power(bootstrap(rows["watts"], apart, random, np.mean, usual), words)


def _sum(values: pd.Series) -> float:
    """Return the sum; not a number where one value is unknown."""
    return float(values.sum(skipna=False))
