"""What non-scaling layers leave of the speedup, by Amdahl's law (Keuper & Pfreundt, Fig. 12)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.models.base.measured import MATRIX_LAYERS
from stallpoint.report.charts import amdahl_chart, axes, theme
from stallpoint.report.charts import marks as chart_marks
from stallpoint.report.charts.labels import compact
from stallpoint.report.exhibits import Made, Material
from stallpoint.report.exhibits.of_study import KEUPER_NETWORKS, lacking, marks, rows, said, with_marks
from stallpoint.text import number

FILE = "keuper-2016-exhibits"
CELLS = "train cells with scaling: compute at three mini-batches or more"
BASES = ["measured", "published"]
NODES = [2**power for power in range(9)]


def figure(material: Material) -> Made:
    """A line for each network: solid with our serial fraction, dashed with the paper's."""
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
    frame["series"] = frame["network"]
    x, y = axes.nodes_x(frame), axes.ratio_y([1, NODES[-1]], "speedup by Amdahl's law")
    columns = ["panel", "network", "nodes", "basis", "value", "fraction", "start"]
    drawn = compact(pd.concat([frame, chart_marks.ideal_rows(frame, "nodes")]), columns)
    dash = alt.StrokeDash(
        "basis:N", scale=alt.Scale(domain=BASES, range=[theme.SOLID, theme.DASHED]),
        legend=alt.Legend(title=None, symbolType="stroke", symbolSize=chart_marks.DASH_SIZE),
    )  # fmt: skip
    tips = chart_marks.tips(network="network", basis="basis", fraction="serial fraction", nodes="nodes")
    curve = alt.Chart().transform_filter("datum.basis != 'ideal'").mark_line()
    curve = curve.encode(x=x, y=y, color=chart_marks.colour(frame, "network"), strokeDash=dash, tooltip=tips)
    points = chart_marks.only("measured").encode(x=x, color=chart_marks.colour(frame, "network"))
    layers = [chart_marks.ideal(x, y), curve, chart_marks.points(points, y)]
    places = marks(said(material, FILE, "fig-12"), "nodes", "nodes", "nodes")
    texts = [f"{row.network} on {row.hardware}: {row.serial_fraction:.2%}" for row in ours.itertuples()]
    shown = f"our serial fractions: {', '.join(texts)}" if texts else "from the paper's serial fractions alone"
    return Made(with_marks(chart_marks.panels(layers, drawn), places), missing, shown)


def _fractions(material: Material) -> pd.DataFrame:
    """For each network and hardware the part of the time that does not fall with b, in layers without products.

    That is the sum over their types of share at the largest b times serial fraction (docs/models/compute.md).
    """
    fits = rows(material, "amdahl", KEUPER_NETWORKS, CELLS, keep={"basis": "compute"})
    fits = fits[~fits["layer_type"].isin([*MATRIX_LAYERS, "all"]) & fits["serial_fraction"].notna()]
    times = rows(material, "layer_scaling", KEUPER_NETWORKS, CELLS)
    whole = times[times["worker_batch"] == times.groupby(["network", "hardware"])["worker_batch"].transform("max")]
    both = fits.merge(whole, on=["network", "hardware", "layer_type"])
    part = (both["serial_fraction"] * both["share"]).groupby([both["network"], both["hardware"]]).sum()
    return part.rename("serial_fraction").reset_index()
