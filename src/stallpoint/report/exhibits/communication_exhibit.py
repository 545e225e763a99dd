"""Compute against communication time by nodes (Keuper & Pfreundt, Fig. 3)."""

from __future__ import annotations

import altair as alt

from stallpoint.report.charts import NoData, paper_times_chart
from stallpoint.report.exhibits import Made, Material, times_by_nodes_exhibit
from stallpoint.report.exhibits.of_study import BY_NODES, KEUPER_NETWORKS, lacking, rows, with_published

CELLS = "train cells with scaling: strong on two nodes or more"
THEIR_CLUSTER = ("cpu", "k80")
"""Compute units of the cluster of their distributed experiments (section I-B3)."""


def figure(material: Material) -> Made:
    """Ours above, theirs from published parameters below."""
    theirs = material.tables["paper_figures"]
    theirs = theirs[theirs["hardware"].isin(THEIR_CLUSTER)]
    published = _marked(material, paper_times_chart.draw({"paper_figures": theirs}))
    try:
        frame = rows(material, "predictions", KEUPER_NETWORKS, CELLS, keep={"scaling": "strong"})
        ours = _marked(material, times_by_nodes_exhibit.draw({"predictions": frame}))
    except LookupError as reason:
        return Made(published, (_text(reason),), "from the paper's parameters alone")
    both = alt.vconcat(ours, published, spacing=24).resolve_scale(color="independent", shape="independent")
    return Made(both, lacking(frame, KEUPER_NETWORKS, CELLS))


def _text(reason: LookupError) -> str:
    return f"no {CELLS}" if isinstance(reason, NoData) else str(reason)


def _marked(material: Material, chart: alt.FacetChart) -> alt.FacetChart:
    return with_published(material, "fig-03", chart, BY_NODES)
