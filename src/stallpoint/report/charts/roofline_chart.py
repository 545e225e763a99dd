"""Roofline: rate of each layer in training against its arithmetic intensity, with the machine's limits."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from stallpoint.models.terms.matrix_products import machine, with_value_bytes
from stallpoint.report.charts import NoData, Tables, axes, marks
from stallpoint.report.charts.labels import rows
from stallpoint.text import number

CELLS = "train cells on one worker whose layers were timed"
PASSES = 3
"""Number of passes with equal multiply-adds: forward, and backward for gradients of the input and of the weights."""
MIN_SHARE = 5.0
"""Share of the compute time [%] below which a layer type is not named."""
POINT = ["network", "hardware", "worker_batch", "layer", "layer_type"]


def draw(tables: Tables) -> alt.FacetChart:
    """Draw a point for each layer with matrix products, at the largest mini-batch, and the rooflines of machines."""
    frame = _layers(tables)
    roofs = _roofs(tables, frame)
    scale_x, axis_x = axes.log10([*frame["intensity"], *roofs["intensity"]])
    scale_y, axis_y = axes.log10([*frame["value"], *roofs["value"]])
    x = alt.X("intensity:Q", title="multiply-adds · 2 for each byte of weights [FLOP/B]", scale=scale_x, axis=axis_x)
    y = alt.Y("value:Q", title="achieved [GFLOP/s]", scale=scale_y, axis=axis_y)
    colour = marks.colour(frame, "layer_type")
    size = alt.Size("share:Q", scale=alt.Scale(range=[15, 400], domain=[0, 100]), legend=None)
    tips = marks.tips(layer="layer", layer_type="type", shown="rate", time="time", share="of the compute time [%]")
    layers = [
        marks.rows_of("ceiling").mark_line(style="ideal", clip=True).encode(x=x, y=y),
        marks.points(marks.rows_of("measured").encode(x=x, color=colour), y).encode(size=size, tooltip=tips),
    ]
    return marks.panels(layers, pd.concat([frame, roofs]))


def _layers(tables: Tables) -> pd.DataFrame:
    """Return intensity and rate of each layer with matrix products, for one worker with its largest mini-batch."""
    timed, known = rows(tables, "layer_times", CELLS), rows(tables, "network_layers", "networks that were described")
    timed = timed[timed["ranks"] == 1]
    timed = timed[timed["worker_batch"] == timed.groupby(["network", "hardware"])["worker_batch"].transform("max")]
    seconds = (
        timed.assign(seconds=timed["forward"] + timed["backward"]).groupby(POINT)["seconds"].median().reset_index()
    )
    known = known.drop_duplicates(["network", "layer"])[["network", "layer", "gradient_bytes", "multiply_adds"]]
    frame = seconds.merge(known, on=["network", "layer"])
    total = seconds.groupby(["network", "hardware"])["seconds"].sum().rename("whole").reset_index()
    frame = frame.merge(total, on=["network", "hardware"])
    frame = frame[(frame["multiply_adds"] > 0) & (frame["gradient_bytes"] > 0) & (frame["seconds"] > 0)]
    if frame.empty:
        raise NoData(f"no {CELLS}")
    work = 2.0 * frame["multiply_adds"] * frame["worker_batch"]
    rate = PASSES * work / frame["seconds"] / 1e9
    return frame.assign(
        panel=frame["network"] + " · " + frame["hardware"] + ", b = " + frame["worker_batch"].astype(str),
        basis="measured",
        intensity=work / frame["gradient_bytes"],
        value=rate,
        share=100 * frame["seconds"] / frame["whole"],
        shown=[f"{number(one)} GFLOP/s" for one in rate],
        time=[f"{number(1e3 * one)} ms" for one in frame["seconds"]],
    )


def _roofs(tables: Tables, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the roofline min(peak, bandwidth · intensity) in each panel whose hardware has both measurements."""
    panels = frame[["panel", "network", "hardware"]].drop_duplicates()
    intensities = np.geomspace(frame["intensity"].min(), frame["intensity"].max(), 60)
    found = []
    for hardware, sgemm in _products(tables).items():
        if (known := machine(sgemm)) is not None:
            ridge = known.peak / known.bandwidth
            points = np.unique(np.append(intensities, np.clip(ridge, intensities[0], intensities[-1])))
            roof = pd.DataFrame({"intensity": points, "value": np.minimum(known.peak, points * known.bandwidth) / 1e9})
            found.append(panels[panels["hardware"] == hardware].merge(roof.assign(basis="ceiling"), how="cross"))
    empty = pd.DataFrame(columns=["panel", "intensity", "value", "basis"])
    return pd.concat(found) if found else empty.astype({"intensity": float, "value": float})


def _products(tables: Tables) -> dict[str, pd.DataFrame]:
    sgemm, runs = tables.get("sgemm"), tables.get("runs")
    if sgemm is None or runs is None or sgemm.empty:
        return {}
    return {str(name): of for name, of in with_value_bytes(sgemm, runs).groupby("hardware")}


def finding(tables: Tables) -> str:
    """Return the finding: the layer type furthest below the measured peak, of those with `MIN_SHARE` of the time."""
    frame = _layers(tables)
    peaks = {name: known.peak / 1e9 for name, of in _products(tables).items() if (known := machine(of))}
    frame = frame[frame["hardware"].isin(peaks)]
    if frame.empty:
        return "Peak and memory bandwidth were not measured here: no ceiling is drawn"
    work = frame.assign(work=frame["value"] * frame["seconds"])
    sums = work.groupby(["network", "hardware", "layer_type"])[["work", "seconds", "share"]].sum()
    sums = sums[sums["share"] >= min(MIN_SHARE, sums["share"].max())]
    part = (sums["work"] / sums["seconds"]) / [peaks[hardware] for _, hardware, _ in sums.index]
    network, _, kind = part.idxmin()
    return f"{network}: {kind} layers reach {100 * part.min():.0f} % of the measured peak"
