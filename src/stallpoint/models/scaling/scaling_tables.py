"""Scaling laws for the study's external tables and its own rates, as tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from stallpoint.models.base.frames import frame
from stallpoint.models.base.statistics import groups
from stallpoint.models.scaling.extrapolation import Fitted, fit
from stallpoint.records.tables import EXTRAPOLATED_TABLES, EXTRAPOLATIONS, LAW_VALIDATION

MEASURED = "measured"
"""Name of the study's own rates among the tables."""
VALIDATED_UP_TO = 0.25
"""Part of the largest count that is fitted to check the laws by what is left out."""
DOUBLINGS = 3
"""How often the largest count is doubled for predictions beyond an external table."""


def extrapolated(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of `tables.EXTRAPOLATED_TABLES` by name, from tables of rates by name."""
    parts: dict[str, list[pd.DataFrame]] = {table.name: [] for table in EXTRAPOLATED_TABLES}
    for name, rates in tables.items():
        for series in fit(rates if name == MEASURED else _further(rates)):
            label = {"table": name, "series": series.name}
            if name != MEASURED:
                parts[EXTRAPOLATIONS.name].append(_with_measured(series).assign(**label))
        for series in fit(rates, VALIDATED_UP_TO):
            parts[LAW_VALIDATION.name].append(series.left_out().assign(table=name, series=series.name))
    return {table.name: frame(table, _joined(parts[table.name])) for table in EXTRAPOLATED_TABLES}


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    full = [part for part in parts if len(part)]
    return pd.concat(full, ignore_index=True) if full else pd.DataFrame()


def _further(rates: pd.DataFrame) -> pd.DataFrame:
    """The rates, with rows that ask for predictions at doubled counts, placed as the largest count was."""
    more = []
    for _, rows in groups(rates, "series"):
        largest = rows.loc[[rows["workers"].idxmax()]].assign(samples_per_second=np.nan)
        strong = rows["batch_per_worker"].nunique() > 1 and (rows["workers"] * rows["batch_per_worker"]).nunique() == 1
        for factor in (2**power for power in range(1, DOUBLINGS + 1)):
            batch = largest["batch_per_worker"] / (factor if strong else 1)
            more.append(largest.assign(workers=largest["workers"] * factor, batch_per_worker=batch))
    return pd.concat([rates, *more], ignore_index=True)


def _with_measured(series: Fitted) -> pd.DataFrame:
    measured = series.rows.groupby("workers")["samples_per_second"].median().rename("measured")
    return series.predict().join(measured, on="workers")
