"""One complete iteration of each run: the one whose wall time (of its slowest rank) is the median of its cell.

A run is the measurement at the largest worker count of a network, hardware entry and preset. Only its rows are kept of
all layers of all ranks, so that drawings do not grow with the study.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from stallpoint.models.base.measured import SERIES, composed, kept, trained
from stallpoint.models.base.statistics import groups
from stallpoint.strategies.presets import NONE

RUN = ("network", "hardware", "sync")
MAX_RANKS = 16
"""Ranks to keep; if there are more, the slowest."""


class MedianIteration(NamedTuple):
    """One iteration of a cell."""

    ranks: pd.DataFrame
    """A row for each rank, as in `tables.MEDIAN_ITERATIONS`."""
    layers: pd.DataFrame
    """A row for each layer of these ranks, as in `tables.LAYERS`."""


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


def median_iterations(cells: frozenset[str], iterations: pd.DataFrame, layers: pd.DataFrame) -> list[MedianIteration]:
    """Return the median iterations of those `cells` that occur in these tables, which hold complete cells."""
    counted = kept(iterations)
    of_cell = groups(counted[counted["cell"].isin(list(cells))], "cell")
    return [_median(rows, layers[layers["cell"] == name]) for name, rows in of_cell]


def _median(iterations: pd.DataFrame, layers: pd.DataFrame) -> MedianIteration:
    walls = iterations.groupby("iteration")["iteration_time"].max().sort_values(kind="stable")
    chosen = int(walls.index[(len(walls) - 1) // 2])
    ranks = iterations[iterations["iteration"] == chosen]
    first = ranks["start"].min()
    slowest = ranks.nlargest(MAX_RANKS, "iteration_time").sort_values("rank")
    shown = slowest.assign(start=slowest["start"] - first, wall=walls.loc[chosen], iterations=len(walls))
    here = layers[(layers["iteration"] == chosen) & layers["rank"].isin(shown["rank"])]
    return MedianIteration(shown, here)


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
    ranks, layers = ([one[table] for one in middle] for table in (0, 1))
    return pd.concat(ranks, ignore_index=True), pd.concat(layers, ignore_index=True)
