"""Shares of the data layer and the layer types, by storage (Keuper & Pfreundt, Fig. 13)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from stallpoint.records.tables import SERIES
from stallpoint.report.charts import layer_share_chart, marks, theme
from stallpoint.report.exhibits import Made, Material, Missing
from stallpoint.report.exhibits.study_material import KEUPER_NETWORKS, lacking, rows
from stallpoint.text import number

DATA = "data"
CELLS = "train cells with scaling: strong and one batch, on two storages"
POINT = [*(column.name for column in SERIES), "nodes", "ranks"]


def figure(material: Material) -> Made:
    """Return stacked shares by mini-batch, largest left; a panel for each network, hardware and storage.

    Of several presets and prefetch depths the one with the fewest mini-batches read ahead is shown, where the data
    layer is most visible; the same for all storages.
    """
    layers = rows(material, "layer_predictions", KEUPER_NETWORKS, CELLS, keep={"scaling": "strong"})
    chosen = _comparable(layers)
    if chosen.empty:
        raise Missing(f"no {CELLS}, of {' or '.join(KEUPER_NETWORKS)}")
    seconds = chosen["measured_forward"] + chosen["measured_backward"]
    types = chosen.assign(seconds=seconds).groupby([*POINT, "layer_type"], as_index=False)["seconds"].sum()
    points = material.tables["predictions"]
    waits = chosen[POINT].drop_duplicates().merge(points[[*POINT, "worker_batch", "measured_data"]], on=POINT)
    data = waits.assign(layer_type=DATA, seconds=waits["measured_data"]).drop(columns="measured_data")
    types = types.merge(waits[[*POINT, "worker_batch"]], on=POINT)
    frame = pd.concat([data, types]).sort_values(POINT, kind="stable")
    frame["value"] = 100 * frame["seconds"] / frame.groupby(POINT)["seconds"].transform("sum")
    frame["panel"] = frame["network"] + " · " + frame["hardware"] + "\n" + frame["storage"]
    frame["shown"] = [f"{number(value)} s" for value in frame["seconds"]]
    shown = frame.drop_duplicates(["network", "sync", "prefetch", "batch"])
    texts = [f"{r.network}: B = {r.batch}, {r.sync}, prefetch {r.prefetch}" for r in shown.itertuples()]
    return Made(_bars(frame), lacking(frame, KEUPER_NETWORKS, CELLS), "; ".join(texts))


def _comparable(layers: pd.DataFrame) -> pd.DataFrame:
    """Return for each network and hardware the preset, prefetch depth and B measured with the most storages."""
    same = ["network", "hardware", "prefetch", "sync", "batch"]
    counts = layers.groupby(same)["storage"].nunique().rename("storages").reset_index()
    counts = counts[counts["storages"] > 1].sort_values(
        ["network", "hardware", "storages", "prefetch", "sync", "batch"],
        ascending=[True, True, False, True, True, False],
    )
    best = counts.drop_duplicates(["network", "hardware"])[same]
    return layers.merge(best, on=same)


def _bars(frame: pd.DataFrame) -> alt.FacetChart:
    """Return the bars, the data layer first, in grey."""
    colour = marks.colour(frame, "layer_type")
    known = dict(zip(colour["scale"]["domain"], colour["scale"]["range"], strict=True))
    colour_of = {DATA: theme.GREY, **{name: known[name] for name in known if name != DATA}}
    colour["scale"] = alt.Scale(domain=list(colour_of), range=list(colour_of.values()))
    tips = {"layer_type": "layer type", "worker_batch": "b [samples]", "shown": "time"}
    return layer_share_chart.shares(frame, "share of compute and data [%]", colour, tips)
