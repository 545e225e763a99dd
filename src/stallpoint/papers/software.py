"""The software that was measured with (Shi et al., Table III)."""

from __future__ import annotations

import pandas as pd

from stallpoint.papers import Made, Material, Missing
from stallpoint.papers.study import machines
from stallpoint.typeset import Typeset

FILE = "shi-2018-exhibits"
OURS = {
    "PyTorch": "torch",
    "MPI": "mpi_library",
    "mpi4py": "mpi4py",
    "CUDA": "cuda",
    "cuDNN": "cudnn",
    "NCCL": "nccl",
    "driver": "driver",
    "BLAS": "blas",
    "oneDNN": "onednn",
    "stallpoint": "stallpoint",
}
"""Row -> column of `records.ENVIRONMENTS`."""
LIBRARIES = {"cuDNN": ("cuda", "cudnn_in_force"), "oneDNN": ("cpu", "onednn_in_force")}
"""Row -> the device that computes with it, and whether it does."""


def table(material: Material) -> Made:
    """A row for each piece of software; a column for each of their clusters and of our hardware entries."""
    published = material.published[FILE]["software"]
    theirs: dict[str, dict[str, str]] = published["rows"]
    found = machines(material)
    if not found:
        raise Missing("no cells (of any kind) that ran")
    runs, environments = material.tables["runs"], material.tables["environments"]
    shown = pd.DataFrame({"software": list(dict.fromkeys([*theirs, *OURS]))})
    for cluster in next(iter(theirs.values())):
        shown[cluster] = [theirs.get(row, {}).get(cluster, "\N{EN DASH}") for row in shown["software"]]
    for name, entry in found.items():
        of_entry = environments[environments["cell"].isin(runs.loc[runs["hardware"] == name, "cell"])]
        shown[name] = [_ours(of_entry, row, entry.device) for row in shown["software"]]
    notes = (
        f"Published: Shi et al. (2018), {published['source']}. Presets of stallpoint imitate the frameworks, with one "
        "PyTorch and one MPI library.",
    )
    return Made(Typeset(shown, "Software.", "tab:shi-2018-table-3", {}, {}, notes))


def _ours(nodes: pd.DataFrame, row: str, device: str) -> str:
    """The versions on all nodes of a hardware entry, and whether a library was turned off."""
    if row not in OURS or nodes.empty:
        return "\N{EN DASH}"
    versions = sorted({str(version).split(",")[0] for version in nodes[OURS[row]]} - {""})
    computes, in_force = LIBRARIES.get(row, ("", ""))
    off = " (off)" if versions and device == computes and not nodes[in_force].any() else ""
    return f"{', '.join(versions)}{off}" if versions else "\N{EN DASH}"
