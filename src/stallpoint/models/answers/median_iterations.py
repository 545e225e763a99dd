"""One complete iteration of each run: the one whose wall time (of its slowest rank) is the median of its cell.

A run is the measurement at the largest worker count of a network, hardware entry and preset. Only its rows are kept of
all layers of all ranks, so that drawings do not grow with the study.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from stallpoint.base.frames import typed
from stallpoint.base.measured import SERIES, composed, kept, trained
from stallpoint.base.statistics import groups
from stallpoint.records.tables import LAYERS
from stallpoint.strategies.presets import NONE

RUN = ("network", "hardware", "sync")
MAX_RANKS = 16
"""Ranks to keep; if there are more, the slowest."""


@dataclass
class MedianIteration:
    """One iteration of a cell."""

    ranks: pd.DataFrame
    """A row for each rank, as in `tables.MEDIAN_ITERATIONS`."""
    parts: list[pd.DataFrame] = field(default_factory=list)
    """Rows of the layers of these ranks, as far as they were read."""

    @property
    def layers(self) -> pd.DataFrame:
        """A row for each layer of these ranks, as in `tables.LAYERS`; none for training that has no layers."""
        return pd.concat(self.parts) if self.parts else typed(LAYERS, LAYERS.schema.empty_table().to_pandas())

    def add(self, layers: pd.DataFrame) -> None:
        """Keep the rows that belong to this iteration."""
        cell, iteration = self.ranks.iloc[0][["cell", "iteration"]]
        here = (layers["iteration"] == iteration) & layers["rank"].isin(self.ranks["rank"])
        rows = layers[here]
        self.parts.append(typed(LAYERS, rows[rows["cell"] == cell]))


def cells_of_runs(runs: pd.DataFrame) -> frozenset[str]:
    """Return the cells, of any repeat, that represent a run; cells with composed iterations are excluded."""
    runs_of: dict[tuple[object, ...], dict[tuple[object, ...], list[str]]] = {}
    parts = composed(runs)
    for path, cell in trained(runs[runs["status"] == "ok"]).items():
        if cell.ranks > 1 and cell.sync != NONE and path not in parts:
            run = tuple(getattr(cell, name) for name in RUN)
            order = (-cell.ranks, *(getattr(cell, name) for name in SERIES))
            runs_of.setdefault(run, {}).setdefault(order, []).append(path)
    return frozenset(path for places in runs_of.values() for path in places[min(places)])


def median_iterations(cells: frozenset[str], iterations: pd.DataFrame) -> list[MedianIteration]:
    """Return the median iterations of those `cells` that occur in this table, which holds complete cells."""
    counted = kept(iterations)
    return [_median(rows) for _, rows in groups(counted[counted["cell"].isin(list(cells))], "cell")]


def _median(iterations: pd.DataFrame) -> MedianIteration:
    walls = iterations.groupby("iteration")["iteration_time"].max().sort_values(kind="stable")
    chosen = int(walls.index[(len(walls) - 1) // 2])
    ranks = iterations[iterations["iteration"] == chosen]
    first = ranks["start"].min()
    slowest = ranks.nlargest(MAX_RANKS, "iteration_time").sort_values("rank")
    return MedianIteration(
        slowest.assign(start=slowest["start"] - first, wall=walls.loc[chosen], iterations=len(walls))
    )


def tables(found: Iterable[MedianIteration]) -> tuple[pd.DataFrame | Sequence[dict[str, object]], ...]:
    """Return the tables median_iterations and median_layers, with the repeat of median wall time for each run."""
    runs: dict[tuple[str, ...], list[MedianIteration]] = {}
    for one in found:
        runs.setdefault(tuple(one.ranks.iloc[0][list(RUN)]), []).append(one)
    if not runs:
        return [], []
    middle = [
        sorted(of, key=lambda one: one.ranks["wall"].iloc[0])[(len(of) - 1) // 2] for _, of in sorted(runs.items())
    ]
    return tuple(
        pd.concat(frames, ignore_index=True)
        for frames in ([one.ranks for one in middle], [one.layers for one in middle])
    )
