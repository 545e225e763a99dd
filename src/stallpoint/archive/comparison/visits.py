"""One time for each visit: the unit of comparison of two studies.

Intervals contain the scatter between visits (placement, neighbours, the state of the machine), not that between the
iterations of a visit, as in all of stallpoint (`base.statistics.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from stallpoint.base.measured import POINT, composed, kept, over_ranks
from stallpoint.records.disturbances import without

LAYER = (*POINT, "layer", "layer_type")


def point_times(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return columns `POINT`, visit and seconds: the mean of the visit's undisturbed iterations, over ranks.

    `tables` holds runs, iterations, layers and disturbances, as in `stallpoint.records.tables`. Iterations composed of
    the times of their layers are predictions, and excluded.
    """
    iterations = without(tables["iterations"], tables["disturbances"])
    iterations = iterations[~iterations["cell"].isin(composed(tables["runs"]))]
    return step_times(over_ranks(iterations, tables["layers"].iloc[:0]))


def step_times(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the same from iterations reduced by `measured.over_ranks`."""
    return _visits(steps.assign(seconds=steps["iteration_time"]), POINT, "mean")


def layer_times(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return columns `LAYER`, visit and seconds: forward and backward time of each layer, median of the visit's
    iterations.

    They are those of rank 0 in the cells with the fewest workers of each network and hardware entry: a single worker,
    where there is such a cell.
    """
    layers = kept(without(tables["layers"], tables["disturbances"]))
    fewest = layers.groupby(["network", "hardware"])["ranks"].transform("min")
    isolated = layers[(layers["ranks"] == fewest) & (layers["rank"] == 0)]
    return _visits(isolated.assign(seconds=isolated["forward"] + isolated["backward"]), LAYER, "median")


def _visits(rows: pd.DataFrame, by: Sequence[str], statistic: str) -> pd.DataFrame:
    """Return rows reduced to one for each visit; with several repeats, which are jobs of their own, one for each of
    these."""
    repeated = rows.groupby(list(by))["repeat"].transform("nunique") > 1
    rows = rows.assign(visit=rows["visit"].where(~repeated, rows["repeat"]))
    times = rows.groupby([*by, "visit"], as_index=False)["seconds"].agg(statistic)
    known: pd.DataFrame = times[np.isfinite(times["seconds"]) & (times["seconds"] > 0)]
    return known
