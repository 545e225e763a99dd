"""Speedup limit by non-scaling layers, by Amdahl's law (Keuper & Pfreundt, Fig. 12)."""

from __future__ import annotations

import pandas as pd

from stallpoint.models.base.measured import MATRIX_LAYERS
from stallpoint.report.charts import amdahl_chart, axes, marks, shapes, theme
from stallpoint.report.charts.shapes import Line
from stallpoint.report.exhibits import Made, Material
from stallpoint.report.exhibits.study_material import BY_NODES, KEUPER_NETWORKS, lacking, rows, with_published
from stallpoint.text import number

CELLS = "train cells with scaling: compute at three mini-batches or more"
LINES = (Line("measured", theme.SOLID, points=True), Line("published", theme.DASHED))
NODES = [2**power for power in range(9)]


def figure(material: Material) -> Made:
    """Return a line for each network: solid with our serial fraction, dashed with the paper's."""
    theirs = material.tables["paper_figures"].query("figure == 12").drop_duplicates(["network", "nodes"])
    published = theirs[["network", "nodes"]].assign(value=theirs["speedup"], basis="published", fraction="")
    missing: tuple[str, ...]
    try:
        ours = _fractions(material)
        missing = lacking(ours, KEUPER_NETWORKS, CELLS)
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
    """Return for each network and hardware the part of the time that does not fall with b, in layers without products.

    That is the sum over their types of share at the largest b times serial fraction (docs/models/compute.md).
    """
    fits = rows(material, "amdahl", KEUPER_NETWORKS, CELLS, keep={"basis": "compute"})
    fits = fits[~fits["layer_type"].isin([*MATRIX_LAYERS, "all"]) & fits["serial_fraction"].notna()]
    times = rows(material, "layer_scaling", KEUPER_NETWORKS, CELLS)
    largest_batch = times[
        times["worker_batch"] == times.groupby(["network", "hardware"])["worker_batch"].transform("max")
    ]
    both = fits.merge(largest_batch, on=["network", "hardware", "layer_type"])
    part = (both["serial_fraction"] * both["share"]).groupby([both["network"], both["hardware"]]).sum()
    return part.rename("serial_fraction").reset_index()
