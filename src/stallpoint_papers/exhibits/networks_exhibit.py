"""Properties of the networks, theirs and ours (Keuper & Pfreundt, Table II; Shi et al., Table IV).

Each difference has its explanation. The published values and the explanations are data (``resources/published``); ours
are computed from the networks themselves and the study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from stallpoint.measure import STEP_SIZE
from stallpoint.report.typeset import Typeset
from stallpoint_papers.exhibits import Made, Material
from stallpoint_papers.exhibits.study_material import KEUPER_NETWORKS, SHI_NETWORKS, lacking, rows

CELLS = "cells (of any kind)"


def keuper(material: Material) -> Made:
    """Return Keuper & Pfreundt's Table II; its mini-batches are global."""
    return _comparison(material, "keuper-2016-table-ii", KEUPER_NETWORKS, "global_batch", "tab:keuper-2016-table-2")


def shi(material: Material) -> Made:
    """Return Shi et al.'s Table IV; its mini-batches are per worker."""
    return _comparison(material, "shi-2018-table-iv", SHI_NETWORKS, "worker_batch", "tab:shi-2018-table-4")


def _comparison(material: Material, file: str, networks: Sequence[str], batch: str, label: str) -> Made:
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


# --- properties of networks -----------------------------------------------------------------------

PASSES = 3
"""Work of a forward and a backward pass over that of a forward pass: back-propagation multiplies twice as much, for the
gradients of the weights and of the layer's input."""
UNEXPLAINED = "not explained"


@dataclass(frozen=True)
class Facts:
    """Data from which our values for one network are computed."""

    layers: pd.DataFrame
    """The network's rows of `tables.NETWORK_LAYERS`."""
    batches: Sequence[int]
    """The study's mini-batches: global or per worker, like the published one."""
    runs: pd.DataFrame
    """The network's rows of `tables.CONVERGENCE_RUNS`."""
    published: Mapping[str, float]
    """The published values by property."""

    def of_type(self, layer_type: str) -> pd.DataFrame:
        """Return the rows of the layers of one type."""
        return self.layers[self.layers["layer_type"] == layer_type]


def _exaflop(facts: Facts) -> float:
    """Return the operations (multiplications and additions) for the published number of samples, in units of 10^18."""
    samples = facts.published["iterations to convergence"] * facts.published["default batch size"]
    return 2 * PASSES * float(facts.layers["multiply_adds"].sum()) * samples / 1e18


def _runs(facts: Facts) -> pd.DataFrame:
    """Return the network's convergence runs at the mini-batch nearest to the published one."""
    nearest = min(facts.runs["batch"], key=_log_distance(facts.published["default batch size"]), default=None)
    return facts.runs[facts.runs["batch"] == nearest]


def _log_distance(batch: float) -> Callable[[float], float]:
    return lambda other: abs(math.log(other / batch))


def _nearest(name: str) -> Callable[[Facts], float]:
    return lambda facts: min(facts.batches, key=_log_distance(facts.published[name]), default=math.nan)


PROPERTIES: dict[str, Callable[[Facts], float]] = {
    "ExaFLOP to convergence": _exaflop,
    "iterations to convergence": lambda facts: _runs(facts)["steps_to_target"].median(),
    "model size [MB]": lambda facts: facts.layers["gradient_bytes"].sum() / 1e6,
    "default batch size": _nearest("default batch size"),
    "default step size": lambda facts: STEP_SIZE if facts.runs.empty else _runs(facts)["step_size"].median(),
    "layers": lambda facts: len(facts.layers),
    "convolutional layers": lambda facts: len(facts.of_type("convolution")),
    "fully-connected layers": lambda facts: len(facts.of_type("fully-connected")),
    "weights in fully-connected layers [million]": lambda facts: (
        facts.of_type("fully-connected")["parameters"].sum() / 1e6
    ),
    "layers with weights": lambda facts: len(facts.of_type("convolution")) + len(facts.of_type("fully-connected")),
    "parameters [million]": lambda facts: facts.layers["parameters"].sum() / 1e6,
    "batch size of a worker": _nearest("batch size of a worker"),
}
"""Our value of each property, in the unit of its name; NaN where there is none."""


def compare(
    table: Mapping[str, Any], layers: pd.DataFrame, batches: Mapping[str, Sequence[int]], runs: pd.DataFrame
) -> list[dict[str, Any]]:
    """Return a row for each cell of the networks of the published `table` that are in `layers`.

    `layers` are rows of `tables.NETWORK_LAYERS`, `runs` of `tables.CONVERGENCE_RUNS`; `batches` are the study's
    mini-batches by network, global or per worker like the table's.
    """
    found: list[dict[str, Any]] = []
    for network, own in layers.groupby("network"):
        cells = {row["property"]: row[network] for row in table["rows"] if network in row}
        published = {name: float(cell["published"]) for name, cell in cells.items()}
        facts = Facts(own, batches.get(str(network), []), runs[runs["network"] == network], published)
        found += [_row(table["source"], str(network), name, cell, facts) for name, cell in cells.items()]
    return found


def _row(source: str, network: str, name: str, cell: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    ours = float(PROPERTIES[name](facts))
    agrees = _rounded(ours, cell["digits"]) == facts.published[name]
    return {
        "source": source,
        "property": name,
        "network": network,
        "published": facts.published[name],
        "ours": None if math.isnan(ours) else ours,
        "digits": cell["digits"],
        "agrees": agrees,
        "explanation": "" if agrees else cell.get("differs", UNEXPLAINED),
    }


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
