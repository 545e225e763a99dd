"""Compute against communication time by nodes (Keuper & Pfreundt, Fig. 3)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.report.charts import NoData, Tables, axes, labels, marks, paper_chart
from stallpoint.report.charts.iteration_chart import CELLS_WITH_COMMUNICATION, COMPUTE, EXPOSED
from stallpoint.text import number
from stallpoint_papers.exhibits import Made, Material
from stallpoint_papers.exhibits.study_material import BY_NODES, KEUPER_NETWORKS, lacking, rows, with_published

CELLS = "train cells with scaling: strong on two nodes or more"
THEIR_CLUSTER = ("cpu", "k80")
"""Compute units of the cluster of their distributed experiments (section I-B3)."""
CURVE = ["network", "hardware", "scaling", "sync", "batch", "workers_per_node", "ranks"]
TIMES = {"communication": "communication", "exposed_communication": EXPOSED}


def figure(material: Material) -> Made:
    """Return Fig. 3: our chart above, the paper's (from its parameters) below."""
    theirs = material.tables["paper_figures"]
    theirs = theirs[theirs["hardware"].isin(THEIR_CLUSTER)]
    published = _marked(material, paper_chart.draw_times({"paper_figures": theirs}))
    try:
        frame = rows(material, "predictions", KEUPER_NETWORKS, CELLS, keep={"scaling": "strong"})
        ours = _marked(material, _by_nodes({"predictions": frame}))
    except LookupError as reason:
        return Made(published, (_text(reason),), "from the paper's parameters alone")
    both = alt.vconcat(ours, published, spacing=24).resolve_scale(color="independent", shape="independent")
    return Made(both, lacking(frame, KEUPER_NETWORKS, CELLS))


def _text(reason: LookupError) -> str:
    return f"no {CELLS}" if isinstance(reason, NoData) else str(reason)


def _marked(material: Material, chart: alt.FacetChart) -> alt.FacetChart:
    return with_published(material, "fig-03", chart, BY_NODES)


def _by_nodes(tables: Tables) -> alt.FacetChart:
    """Return our chart: s of an iteration for computing, communication, and exposed communication, over nodes."""
    predictions = labels.rows(tables, "predictions", CELLS_WITH_COMMUNICATION)
    predictions = predictions[predictions["scaling"] != "compute"]
    times = pd.concat([_times(predictions, basis) for basis in ("measured", "predicted")])
    # Positive times only: a single worker does not communicate, and a logarithmic axis has no zero.
    times = times[times["value"] > 0]
    curves = times[[*CURVE]].apply(tuple, axis=1)
    times = times[curves.isin(curves[times["time"] == "communication"])]
    if times.empty:
        raise NoData(f"no {CELLS_WITH_COMMUNICATION}")
    # Points of almost completely hidden communication would stretch the axis over many empty decades.
    times = times[times["value"] >= times.loc[times["time"] != EXPOSED, "value"].min() / 5]
    frame = labels.arrange(times.assign(storage="", prefetch=0), own_panel=True)
    x, y = axes.ranks_x(frame), axes.log10_y(frame["value"], "time in one iteration [s]")
    tips = marks.tips(
        time="time", ranks=axes.unit(frame), basis="basis", shown="median (range over storages and prefetch)"
    )
    colour = marks.colour(frame, "time")
    line = alt.Chart().encode(x=x, y=y, color=colour, strokeDash=marks.dashes())
    exposed = f"datum.time == '{EXPOSED}'"
    # Without overlap all communication is exposed: the wide line then shows on both sides of the narrow one.
    layers = [
        line.transform_filter(exposed).mark_line(strokeWidth=4.5, opacity=0.6),
        line.transform_filter(f"!({exposed})").mark_line(),
        marks.hover(marks.rows_of("predicted").encode(x=x, color=colour), y).encode(tooltip=tips),
        marks.points(marks.rows_of("measured").encode(x=x, color=colour), y).encode(tooltip=tips),
    ]
    return marks.panels(layers, frame)


def _times(predictions: pd.DataFrame, basis: str) -> pd.DataFrame:
    """Return the median over storages and prefetch depths, with their range, one row for each kind of time."""
    compute = predictions[[f"{basis}_{part}" for part in COMPUTE]].sum(axis=1, skipna=False)
    wide = predictions[CURVE].assign(
        compute=compute, **{shown: predictions[f"{basis}_{name}"] for name, shown in TIMES.items()}
    )
    long = wide.melt(CURVE, var_name="time", value_name="value").dropna(subset="value")
    spread = long.groupby([*CURVE, "time"], sort=False)["value"].agg(["median", "min", "max"])
    ranges = zip(spread["median"], spread["min"], spread["max"], strict=True)
    shown = [f"{number(value)} s ({number(low)} to {number(high)})" for value, low, high in ranges]
    return spread["median"].rename("value").reset_index().assign(basis=basis, shown=shown)
