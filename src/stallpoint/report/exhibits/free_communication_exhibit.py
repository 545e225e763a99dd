"""Speedup if communication were free, against nodes n = B/b (Keuper & Pfreundt, Figs. 4 and 11)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stallpoint.report.charts import axes
from stallpoint.report.charts import marks as chart_marks
from stallpoint.report.charts.labels import compact, estimate
from stallpoint.report.exhibits import Made, Material, Missing
from stallpoint.report.exhibits.of_study import KEUPER_NETWORKS, lacking, marks, rows, said, with_marks
from stallpoint.text import number

FILE = "keuper-2016-exhibits"
CELLS = "train cells with scaling: compute at falling batch"
SPEEDUP = "speedup over one node"
LEAST_POINTS = 3
"""Node counts that a mini-batch B must be measured at to be a curve."""


def default_batch(material: Material) -> Made:
    """Fig. 4: B is the largest mini-batch measured on each hardware."""
    frame = _times(material)
    curves = estimate(frame, "speedup").assign(panel=frame["network"], basis="measured", series=frame["hardware"])
    curves["nodes"] = curves.groupby(["network", "hardware"])["worker_batch"].transform("max") / curves["worker_batch"]
    curves = _whole(curves)
    ideal = chart_marks.ideal_rows(curves, "nodes")
    x, y = axes.nodes_x(curves), axes.ratio_y([*axes.reach(curves), ideal["value"].max()], SPEEDUP)
    drawn = pd.concat([axes.clipped(curves, y), ideal])
    drawn = compact(
        drawn, ["panel", "hardware", "worker_batch", "nodes", "basis", "value", "low", "high", "shown", "start"]
    )
    measured = chart_marks.only("measured").encode(x=x, color=chart_marks.colour(curves, "hardware", "hardware"))
    tips = chart_marks.tips(hardware="hardware", nodes="nodes", worker_batch="b [samples]", shown="speedup (90 %)")
    layers = [
        chart_marks.ideal(x, y),
        chart_marks.band(measured, y),
        measured.mark_line().encode(y=y),
        chart_marks.points(measured, y).encode(tooltip=tips),
    ]
    chart = chart_marks.panels(layers, drawn)
    places = marks(said(material, FILE, "fig-04"), "nodes", "nodes", "nodes")
    largest = curves[curves["nodes"] == 1].drop_duplicates(["network", "hardware"])
    shown = ", ".join(f"{r['network']} on {r['hardware']}: B = {r['worker_batch']}" for r in largest.to_dict("records"))
    return Made(with_marks(chart, places), lacking(frame, KEUPER_NETWORKS, CELLS), shown)


def larger_batches(material: Material) -> Made:
    """Fig. 11: every mini-batch of which fractions were measured is a B, and each network a colour."""
    frame = _times(material)
    curves = pd.concat([_curves(times) for _, times in frame.groupby(["network", "hardware"])], ignore_index=True)
    if curves.empty or curves.groupby("network")["global_batch"].nunique().max() < 2:
        raise Missing(f"no {CELLS} such that two mini-batches B have {LEAST_POINTS} node counts n = B/b each")
    ends = curves.loc[curves.groupby(["panel", "network", "global_batch"])["nodes"].idxmax()].assign(basis="end")
    x, y = axes.nodes_x(curves), axes.ratio_y([*curves["value"], *curves["nodes"]], SPEEDUP)
    ideal = chart_marks.ideal_rows(curves.assign(series=""), "nodes")
    columns = ["panel", "network", "global_batch", "name", "nodes", "basis", "value", "shown", "start"]
    drawn = compact(pd.concat([curves, ends, ideal]), columns)
    colour = chart_marks.colour(curves, "network")
    measured = chart_marks.only("measured").encode(x=x, color=colour, detail="global_batch:N")
    tips = chart_marks.tips(network="network", global_batch="B", nodes="nodes", shown="speedup")
    ends_of = chart_marks.only("end").mark_text(align="left", dx=5, dy=-2, fontSize=8)
    layers = [
        chart_marks.ideal(x, y),
        measured.mark_line().encode(y=y),
        chart_marks.points(measured, y).encode(tooltip=tips),
        ends_of.encode(x=x, y=y, text="name:N", color=colour),
    ]
    places = marks(said(material, FILE, "fig-11"), "nodes", "nodes", "nodes", SPEEDUP)
    return Made(with_marks(chart_marks.panels(layers, drawn), places), lacking(frame, KEUPER_NETWORKS, CELLS))


def _times(material: Material) -> pd.DataFrame:
    frame = rows(material, "layer_scaling", KEUPER_NETWORKS, CELLS, keep={"layer_type": "all"})
    return frame.sort_values(["network", "hardware", "worker_batch"], kind="stable")


def _whole(curves: pd.DataFrame) -> pd.DataFrame:
    """Only mini-batches that a whole number of nodes has."""
    return curves[curves["nodes"] % 1 == 0].astype({"nodes": int})


def _curves(times: pd.DataFrame) -> pd.DataFrame:
    """For each B the speedup at the measured b that divide it: its time over theirs."""
    pairs = times.merge(times[["network", "hardware", "worker_batch", "seconds"]], on=["network", "hardware"])
    pairs = pairs.assign(nodes=pairs["worker_batch_x"] / pairs["worker_batch_y"], global_batch=pairs["worker_batch_x"])
    pairs = _whole(pairs[(pairs["nodes"] >= 1) & np.isfinite(pairs["seconds_x"] / pairs["seconds_y"])])
    pairs = pairs[pairs.groupby("global_batch")["nodes"].transform("nunique") >= LEAST_POINTS]
    value = pairs["seconds_x"] / pairs["seconds_y"]
    return pairs.assign(
        panel=pairs["hardware"], basis="measured", value=value, shown=[number(v) for v in value],
        name="B = " + pairs["global_batch"].astype(str),
    )[["panel", "network", "global_batch", "name", "nodes", "basis", "value", "shown"]]  # fmt: skip
