"""Speedup of one worker at falling mini-batch, as if communication were free (Keuper & Pfreundt, Fig. 4)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.charts import Tables
from stallpoint.charts.frames import least
from stallpoint.charts.layer_scaling import falling_batch, layer_scaling
from stallpoint.numerals import number

MANY = 0.25
"""Share of disturbed iterations from which on a point is marked."""
POINT = ["network", "hardware", "worker_batch"]


def draw(tables: Tables) -> alt.FacetChart:
    """A panel for each network, a curve for each hardware (which the legend or else the panel names)."""
    frame = layer_scaling(tables, all_layers=True)
    if frame["hardware"].nunique() > 1:
        frame = frame.assign(panel=frame["network"])
    return falling_batch(frame.merge(_disturbed(tables), on=POINT, how="left"), "hardware", "hardware", bands=True)


def _disturbed(tables: Tables) -> pd.DataFrame:
    """Points of one worker of which many iterations were disturbed, with how many of how many."""
    iterations, found = tables.get("iterations"), tables.get("disturbances")
    if iterations is None or found is None or iterations.empty or found.empty:
        return pd.DataFrame(columns=[*POINT, "disturbed"]).astype({"worker_batch": "int64"})
    here = iterations[(iterations["ranks"] == 1) & ~iterations["warmup"].astype(bool)]
    marked = found[["cell", "visit", "iteration"]].drop_duplicates().assign(hit=True)
    here = here.merge(marked, on=["cell", "visit", "iteration"], how="left")
    counts = here.groupby(POINT)["hit"].agg(["count", "size"]).reset_index()
    many = counts[counts["count"] > MANY * counts["size"]]
    return many.assign(disturbed=[f"{a} of {b}" for a, b in zip(many["count"], many["size"], strict=True)])[
        [*POINT, "disturbed"]
    ]


def finding(tables: Tables) -> str:
    """The speedup at the smallest mini-batch beside the ideal one, where it falls short most."""
    frame = layer_scaling(tables, all_layers=True)
    place = frame.groupby(["network", "hardware"])["worker_batch"]
    frame = frame.assign(workers=place.transform("max") / frame["worker_batch"])
    ends = frame[frame["worker_batch"] == place.transform("min")]
    at = least(ends.assign(part=ends["speedup"] / ends["workers"]), "part")
    reached = f"{number(at['workers'])} workers reach {number(at['speedup'], 2)} times"
    return f"{at['network']}: with free communication {reached}"
