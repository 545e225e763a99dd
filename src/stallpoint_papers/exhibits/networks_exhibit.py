"""Properties of the networks, theirs and ours (Keuper & Pfreundt, Table II; Shi et al., Table IV)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from stallpoint.report.typeset import Typeset
from stallpoint_papers.exhibits import Made, Material
from stallpoint_papers.exhibits.study_material import KEUPER_NETWORKS, SHI_NETWORKS, lacking, rows
from stallpoint_papers.published import compare

CELLS = "cells (of any kind)"


def keuper(material: Material) -> Made:
    """Return Table II; mini-batches are the global ones."""
    return _made(material, "keuper-2016-table-ii", KEUPER_NETWORKS, "global_batch", "tab:keuper-2016-table-2")


def shi(material: Material) -> Made:
    """Return Table IV; mini-batches are those of one worker."""
    return _made(material, "shi-2018-table-iv", SHI_NETWORKS, "worker_batch", "tab:shi-2018-table-4")


def _made(material: Material, file: str, networks: Sequence[str], batch: str, label: str) -> Made:
    layers = rows(material, "network_layers", networks, CELLS)
    trained = material.tables["predictions"]
    trained = trained[trained["measured_iteration"].notna()]
    batches = {str(name): sorted(set(points[batch].tolist())) for name, points in trained.groupby("network")}
    published = material.published[file]
    comparison = pd.DataFrame(compare(published, layers, batches, material.tables["convergence_runs"]))
    order = {row["property"]: place for place, row in enumerate(published["rows"])}
    comparison = comparison.assign(place=comparison["property"].map(order), ours=comparison["ours"].astype(float))
    shown = comparison.sort_values(["place", "network"])[["property", "network", "published", "ours", "explanation"]]
    names = {"explanation": "why it differs"}
    caption = f"Properties of the networks: {published['source']}, beside ours."
    return Made(Typeset(shown, caption, label, {}, names), lacking(layers, networks, CELLS))
