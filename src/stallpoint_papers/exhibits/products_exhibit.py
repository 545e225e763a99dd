"""Matrix products: their number and sizes, and their speedup (Keuper & Pfreundt, Table III and Fig. 9)."""

from __future__ import annotations

import pandas as pd

from stallpoint.base.measured import FULLY_CONNECTED
from stallpoint.records.tables import MACHINE
from stallpoint.report.charts import sgemm_chart
from stallpoint.report.typeset import Typeset
from stallpoint_papers.exhibits import Made, Material
from stallpoint_papers.exhibits.study_material import BY_BATCH, KEUPER_NETWORKS, rows, with_published

FILE = "keuper-2016-exhibits"
CELLS = "sgemm cells"


def table(material: Material) -> Made:
    """Return Table III: each layer's product with numbers in place of the letters, at the largest b measured."""
    frame = rows(material, "sgemm", KEUPER_NETWORKS, CELLS)
    frame = frame[(frame["layer_type"] != MACHINE) & (frame["layer"] != sgemm_chart.REFERENCE)]
    frame = frame[frame["worker_batch"] == frame.groupby("network")["worker_batch"].transform("max")]
    frame = frame.drop_duplicates(["network", "layer"])
    theirs = material.published[FILE]["products"]
    printed = {name: _printed_pixels(name) for name in frame["network"].unique()}
    letters = {kind: f"{entry['operations']} × ({entry['sizes']})" for kind, entry in theirs["rows"].items()}
    shown = pd.DataFrame({
        "network": frame["network"],
        "layer": frame["layer"],
        "layer_type": frame["layer_type"],
        "worker_batch": frame["worker_batch"],
        "published": frame["layer_type"].map(letters).fillna(""),
        "operations": frame["operations"],
        "m": frame["m"],
        "k": frame["k"],
        "n": frame["n"],
        "printed_z": [printed[row["network"]].get(row["layer"]) for row in frame.to_dict("records")],
    })  # fmt: skip
    last = shown[shown["layer_type"] == FULLY_CONNECTED].drop_duplicates("network", keep="last")
    softmax = last.assign(
        layer="loss", layer_type="softmax", published=letters["softmax"], operations=last["worker_batch"], m=last["n"],
        k=1, n=1, printed_z=None,
    )  # fmt: skip
    sizes = ("worker_batch", "operations", "m", "k", "n", "printed_z")
    shown = pd.concat([shown.astype(dict.fromkeys(sizes, "Int64")), softmax]).sort_values("network", kind="stable")
    notes = (
        f"Published: number × (m × k · k × n) of Keuper & Pfreundt (2016), {theirs['source']}; I: inputs, O: outputs, "
        "C: filters, Z: pixels after the convolution, our n. Their Z leaves out stride and padding: (√P - k/2)² of P "
        "pixels and filters of k × k, k/2 rounded down. Theirs counts b products for a convolution, ours as many for "
        "each group; k of a convolution is c/groups times the pixels of a filter. Layers with equal products are "
        "listed once. Softmax is no product in ours, but part of the loss, and of its time.",
    )
    names = {"worker_batch": "b", "layer_type": "type", "printed_z": "their Z"}
    caption = "Number and sizes of the matrix products of a forward pass: operations × (m × k · k × n)."
    lacks = tuple(f"no {CELLS} of {name}" for name in KEUPER_NETWORKS if name not in set(frame["network"]))
    return Made(Typeset(shown, caption, "tab:keuper-2016-table-3", {}, names, notes), lacks)


def _printed_pixels(network: str) -> dict[str, int]:
    """Return Z (pixels after the convolution) of a network's convolutions, by the paper's formula."""
    from stallpoint.networks import find_network  # a late import: networks load PyTorch
    from stallpoint.networks.products import printed_pixels

    known = find_network(network)
    return printed_pixels(known.outline(), known.takes)


def figure(material: Material) -> Made:
    """Return Fig. 9: the reference product on each hardware, from one network's cells, as all networks share it."""
    frame = rows(material, "sgemm_speedup", KEUPER_NETWORKS, CELLS, keep={"layer": sgemm_chart.REFERENCE})
    first = frame.groupby("hardware")["network"].transform("min")
    frame = frame[frame["network"] == first]
    return Made(with_published(material, "fig-09", sgemm_chart.draw({"sgemm_speedup": frame}), BY_BATCH))
