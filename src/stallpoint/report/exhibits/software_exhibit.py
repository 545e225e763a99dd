"""Software versions (Shi et al., Table III)."""

from __future__ import annotations

import pandas as pd

from stallpoint.report.exhibits import Made, Material, Missing
from stallpoint.report.exhibits.study_material import environments, machines
from stallpoint.report.typeset import Typeset

FILE = "shi-2018-exhibits"
OURS = {
    "operating system": "kernel",
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
"""Row -> column of `tables.ENVIRONMENTS`."""
LIBRARY = {"cuda": "cuDNN", "cpu": "oneDNN"}
"""Device -> row of its compute library, unless that is turned off."""


def table(material: Material) -> Made:
    """Return a row for each piece of software; a column for each of their clusters and of our hardware entries."""
    published = material.published[FILE]["software"]
    theirs: dict[str, dict[str, str]] = published["rows"]
    found = machines(material)
    if not found:
        raise Missing("no cells (of any kind) that ran")
    shown = pd.DataFrame({"software": list(dict.fromkeys([*theirs, *OURS]))})
    for cluster in next(iter(theirs.values())):
        shown[cluster] = [theirs.get(row, {}).get(cluster, "\N{EN DASH}") for row in shown["software"]]
    for name, entry in found.items():
        nodes, off = environments(material, name), "" if entry.tuned else LIBRARY[entry.device]
        shown[name] = [_ours(nodes, row, off) for row in shown["software"]]
    notes = (
        f"Published: Shi et al. (2018), {published['source']}. Presets of stallpoint imitate the frameworks, with one "
        "PyTorch and one MPI library.",
    )
    return Made(Typeset(shown, "Software.", "tab:shi-2018-table-3", {}, {}, notes))


def _ours(nodes: pd.DataFrame, row: str, off: str) -> str:
    """Return the versions on the `nodes` of a hardware entry, where the library of row `off` is turned off."""
    if row not in OURS or nodes.empty:
        return "\N{EN DASH}"
    versions = sorted({str(version).split(",")[0] for version in nodes[OURS[row]]} - {""})
    return f"{', '.join(versions)}{' (off)' if row == off else ''}" if versions else "\N{EN DASH}"
