"""A made-up study of two networks, hardware entries and storages, as the report's tests take it."""

from typing import TypeAlias

import pandas as pd
import synthetic

from stallpoint.models import fitting
from stallpoint.models.iteration.scenarios import scenarios
from stallpoint.models.scaling.extrapolation import extrapolated
from stallpoint.report.charts import CHARTS
from stallpoint.study.study import Exclusion

Tables: TypeAlias = dict[str, pd.DataFrame]

LEFT_OUT = [
    Exclusion({"network": "alexnet", "nodes": n, "batch": 64}, "B is not divisible by the ranks") for n in (3, 5)
]


def study() -> Tables:
    """Tidy and model tables of a study on ``cpu``, and the same once more as if it had run on ``gpu``."""
    tidy = synthetic.study(
        networks=("alexnet", "googlenet"), syncs=("wfbp",), prefetches=(0,), compute_batches=(64, 16, 4), repeats=1,
        iterations=3,
    )  # fmt: skip
    fitted = fitting.fit(tidy, nodes=[8], scenarios=scenarios([{"bandwidth": 10}]))
    tables = {
        **tidy,
        "network_layers": synthetic.network_layers(tidy["layers"]),
        **fitted,
        **extrapolated({"elsewhere": synthetic.external_rates()}),
    }
    return {name: pd.concat([frame, _elsewhere(frame)], ignore_index=True) for name, frame in tables.items()}


def of_two_charts(tables: Tables) -> Tables:
    """The tables of a report with every section, and with marks in two charts alone."""
    of_sections = ("runs", "environments", "network_layers")
    kept = {*of_sections, *CHARTS["speedup"].tables, *CHARTS["time-to-target"].tables}
    return {name: frame for name, frame in tables.items() if name in kept}


def _elsewhere(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows once more, on other hardware; none of a table that knows no hardware."""
    if "cell" in frame:
        frame = frame.assign(cell=frame["cell"].str.replace("hardware~cpu", "hardware~gpu"))
    return frame.assign(hardware="gpu") if "hardware" in frame else frame[: len(frame) if "cell" in frame else 0]
