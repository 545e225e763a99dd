"""Limits of the speedup: free communication, and Amdahl's law (Keuper & Pfreundt, Figs. 4, 11 and 12)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from stallpoint.base.measured import MATRIX_LAYERS
from stallpoint.report.charts import amdahl_chart, axes, marks, shapes, theme
from stallpoint.report.charts.labels import estimate
from stallpoint.report.charts.shapes import Line
from stallpoint.text import number
from stallpoint_papers.exhibits import Made, Material, Missing
from stallpoint_papers.exhibits.study_material import BY_NODES, KEUPER_NETWORKS, lacking, rows, with_published

CELLS = "train cells with scaling: compute at falling batch"
SPEEDUP = "speedup over one node"
BAND = replace(shapes.MEASURED, intervals="band")
MIN_NODE_COUNTS = 3
"""Minimum number of measured node counts for the curve of a mini-batch B."""


def default_batch(material: Material) -> Made:
    """Return Fig. 4: B is the largest mini-batch measured on each hardware."""
    frame = _times(material)
    curves = estimate(frame, "speedup").assign(panel=frame["network"], basis="measured", series=frame["hardware"])
    curves["nodes"] = curves.groupby(["network", "hardware"])["worker_batch"].transform("max") / curves["worker_batch"]
    curves = _integer_node_counts(curves)
    ideal = marks.ideal_rows(curves, "nodes")
    y = axes.ratio_y([*axes.span(curves), ideal["value"].max()], SPEEDUP)
    tips = {"hardware": "hardware", "nodes": "nodes", "worker_batch": "b [samples]", "shown": "speedup (90 %)"}
    colour = marks.colour(curves, "hardware", "hardware")
    chart = shapes.curves(pd.concat([curves, ideal]), axes.nodes_x(curves), y, tips, [BAND], colour=colour)
    largest = curves[curves["nodes"] == 1].drop_duplicates(["network", "hardware"])
    shown = ", ".join(f"{r['network']} on {r['hardware']}: B = {r['worker_batch']}" for r in largest.to_dict("records"))
    return Made(with_published(material, "fig-04", chart, BY_NODES), lacking(frame, KEUPER_NETWORKS, CELLS), shown)


def larger_batches(material: Material) -> Made:
    """Return Fig. 11: a curve for each mini-batch B with measured fractions, coloured by network."""
    frame = _times(material)
    curves = pd.concat([_curves(times) for _, times in frame.groupby(["network", "hardware"])], ignore_index=True)
    if curves.empty or curves.groupby("network")["global_batch"].nunique().max() < 2:
        raise Missing(f"no {CELLS} such that two mini-batches B have {MIN_NODE_COUNTS} node counts n = B/b each")
    ends = curves.loc[curves.groupby(["panel", "network", "global_batch"])["nodes"].idxmax()].assign(basis="end")
    x, y = axes.nodes_x(curves), axes.ratio_y([*curves["value"], *curves["nodes"]], SPEEDUP)
    drawn = pd.concat([curves, ends, marks.ideal_rows(curves.assign(series=""), "nodes")])
    tips = {"network": "network", "global_batch": "B", "nodes": "nodes", "shown": "speedup"}
    names = marks.rows_of("end").mark_text(align="left", dx=5, dy=-2, fontSize=8)
    names = names.encode(x=x, y=y, text="name:N", color=marks.colour(curves, "network"))
    line = Line("measured", theme.SOLID, points=True)
    chart = shapes.curves(drawn, x, y, tips, [line], colour="network", details=["global_batch"], overlay=[names])
    return Made(with_published(material, "fig-11", chart, BY_NODES, SPEEDUP), lacking(frame, KEUPER_NETWORKS, CELLS))


def _times(material: Material) -> pd.DataFrame:
    frame = rows(material, "layer_scaling", KEUPER_NETWORKS, CELLS, keep={"layer_type": "all"})
    return frame.sort_values(["network", "hardware", "worker_batch"], kind="stable")


def _integer_node_counts(curves: pd.DataFrame) -> pd.DataFrame:
    return curves[curves["nodes"] % 1 == 0].astype({"nodes": int})


def _curves(times: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup at the measured b that divide each B: time at B over time at b."""
    pairs = times.merge(times[["network", "hardware", "worker_batch", "seconds"]], on=["network", "hardware"])
    pairs = pairs.assign(nodes=pairs["worker_batch_x"] / pairs["worker_batch_y"], global_batch=pairs["worker_batch_x"])
    pairs = _integer_node_counts(pairs[(pairs["nodes"] >= 1) & np.isfinite(pairs["seconds_x"] / pairs["seconds_y"])])
    pairs = pairs[pairs.groupby("global_batch")["nodes"].transform("nunique") >= MIN_NODE_COUNTS]
    value = pairs["seconds_x"] / pairs["seconds_y"]
    return pairs.assign(
        panel=pairs["hardware"], basis="measured", value=value, shown=[number(v) for v in value],
        name="B = " + pairs["global_batch"].astype(str),
    )[["panel", "network", "global_batch", "name", "nodes", "basis", "value", "shown"]]  # fmt: skip


# --- Amdahl's law ---------------------------------------------------------------------------------

FITTED = "train cells with scaling: compute at three mini-batches or more"
LINES = (Line("measured", theme.SOLID, points=True), Line("published", theme.DASHED))
NODES = [2**power for power in range(9)]


def amdahl(material: Material) -> Made:
    """Return a line for each network: solid with our serial fraction, dashed with the paper's."""
    theirs = material.tables["paper_figures"].query("figure == 12").drop_duplicates(["network", "nodes"])
    published = theirs[["network", "nodes"]].assign(value=theirs["speedup"], basis="published", fraction="")
    missing: tuple[str, ...]
    try:
        ours = _fractions(material)
        missing = lacking(ours, KEUPER_NETWORKS, FITTED)
    except LookupError as reason:
        ours, missing = pd.DataFrame(columns=["network", "hardware", "serial_fraction"]), (str(reason),)
    measured = ours.merge(pd.Series(NODES, name="nodes"), how="cross")
    measured = measured.assign(
        basis="measured",
        value=amdahl_chart.speedup(measured["serial_fraction"].astype(float), measured["nodes"]),
        fraction=[number(fraction) for fraction in measured["serial_fraction"]],
    )
    panels = list(dict.fromkeys(ours["hardware"])) or ["published"]
    everywhere = pd.concat([published.assign(panel=panel) for panel in panels])
    frame = pd.concat([measured.assign(panel=measured["hardware"]), everywhere])
    x, y = axes.nodes_x(frame), axes.ratio_y([1, NODES[-1]], "speedup by Amdahl's law")
    tips = {"network": "network", "basis": "basis", "fraction": "serial fraction", "nodes": "nodes"}
    drawn = pd.concat([frame, marks.ideal_rows(frame, "nodes")])
    chart = shapes.curves(drawn, x, y, tips, LINES, colour="network")
    texts = [f"{row.network} on {row.hardware}: {row.serial_fraction:.2%}" for row in ours.itertuples()]
    shown = f"our serial fractions: {', '.join(texts)}" if texts else "from the paper's serial fractions alone"
    return Made(with_published(material, "fig-12", chart, BY_NODES), missing, shown)


def _fractions(material: Material) -> pd.DataFrame:
    """Return the fraction of time that does not fall with b in layers without products, by network and hardware.

    It is the sum over layer types of the share at the largest b times the serial fraction (docs/models/compute.md).
    """
    fits = rows(material, "amdahl", KEUPER_NETWORKS, FITTED, keep={"basis": "compute"})
    fits = fits[~fits["layer_type"].isin([*MATRIX_LAYERS, "all"]) & fits["serial_fraction"].notna()]
    times = rows(material, "layer_scaling", KEUPER_NETWORKS, FITTED)
    largest_batch = times[
        times["worker_batch"] == times.groupby(["network", "hardware"])["worker_batch"].transform("max")
    ]
    both = fits.merge(largest_batch, on=["network", "hardware", "layer_type"])
    part = (both["serial_fraction"] * both["share"]).groupby([both["network"], both["hardware"]]).sum()
    return part.rename("serial_fraction").reset_index()
