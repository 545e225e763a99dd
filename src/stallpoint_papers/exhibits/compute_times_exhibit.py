"""Time of an iteration and until convergence, by compute unit (Keuper & Pfreundt, Table I)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from stallpoint.report.typeset import Typeset
from stallpoint_papers.exhibits import Made, Material
from stallpoint_papers.exhibits.study_material import KEUPER_NETWORKS, StudyMachine, lacking, machines, rows

FILE = "keuper-2016-exhibits"
CELLS = "train cells on nodes: 1"


def table(material: Material) -> Made:
    """Return Table I: a row for each network and compute unit, the paper's units first."""
    frame = rows(material, "predictions", KEUPER_NETWORKS, CELLS, keep={"ranks": 1})
    frame = frame[frame["measured_iteration"].notna()]
    found = machines(material)
    shown = pd.DataFrame([row for network in KEUPER_NETWORKS for row in _rows(network, frame, found, material)])
    names = {
        "iteration": "time per iteration", "convergence": "time till convergence", "batch": "B",
        "samples": "samples till convergence",
    }  # fmt: skip
    notes = (
        "Published: Keuper & Pfreundt (2016), Table I. Until convergence: 450k iterations of 256 samples for AlexNet, "
        "1000k of 32 for GoogLeNet; ours is the time for as many samples, or for the median of the study's runs to "
        "their target, at the mini-batch nearest to theirs.",
    )
    units = {"iteration": "s", "convergence": "h", "batch": "samples"}
    caption = "Time of one iteration on one worker, and of training until convergence."
    return Made(
        Typeset(shown, caption, "tab:keuper-2016-table-1", units, names, notes), lacking(frame, KEUPER_NETWORKS, CELLS)
    )


def _rows(
    network: str, frame: pd.DataFrame, found: dict[str, StudyMachine], material: Material
) -> Iterator[dict[str, Any]]:
    theirs = material.published[FILE]["convergence"]["networks"][network]
    units = material.published[FILE]["units"]
    published = float(theirs["iterations"] * theirs["batch"])
    samples = _samples_to_target(network, theirs["batch"], material) or published
    for unit, entry in material.published["keuper-2016"]["iteration_seconds"][network].items():
        yield {
            "network": network, "compute unit": units[unit], "from": "published", "batch": theirs["batch"],
            "samples": published,
            **_estimate("iteration", entry["value"]), **_estimate("convergence", float(theirs["hours"][unit])),
        }  # fmt: skip
    for hardware, times in frame[frame["network"] == network].groupby("hardware"):
        off = (times["global_batch"] / theirs["batch"]).map(lambda ratio: abs(math.log(ratio)))
        nearest = times[off == off.min()].sort_values("measured_iteration").iloc[0]
        ends = [nearest[f"measured_iteration{end}"] for end in ("", "_low", "_high")]
        hours = samples / nearest["global_batch"] / 3600
        yield {
            "network": network, "compute unit": f"{found[str(hardware)].processor} ({hardware})", "from": "this study",
            "batch": int(nearest["global_batch"]), "samples": samples,
            **_estimate("iteration", *ends), **_estimate("convergence", *(hours * seconds for seconds in ends)),
        }  # fmt: skip


def _samples_to_target(network: str, batch: int, material: Material) -> float | None:
    """Return the median number of samples to the target of the network's runs, at the mini-batch nearest to `batch`."""
    runs = material.tables["convergence_runs"]
    runs = runs[(runs["network"] == network) & runs["samples_to_target"].notna()]
    if runs.empty:
        return None
    nearest = min(runs["batch"], key=lambda one: abs(math.log(one / batch)))
    return float(runs.loc[runs["batch"] == nearest, "samples_to_target"].median())


def _estimate(name: str, value: float, low: float = math.nan, high: float = math.nan) -> dict[str, float]:
    return {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}
