"""Hardware with its measured rates, and software (Shi et al., Tables II and III)."""

from __future__ import annotations

import pandas as pd

from stallpoint.models.terms.matrix_products import machine, with_value_bytes
from stallpoint.records.origins import in_words
from stallpoint.report.typeset import Typeset
from stallpoint.strategies.options import ALL_REDUCE
from stallpoint.text import number
from stallpoint_papers.exhibits import Made, Material, Missing
from stallpoint_papers.exhibits.study_material import environments, machines

FILE = "shi-2018-exhibits"
UNKNOWN = "not measured"


def hardware(material: Material) -> Made:
    """Return Table II: a row for each property; a column for each of their clusters and of our hardware entries."""
    published = material.published[FILE]["hardware"]
    shown = pd.DataFrame(published["rows"]).T.rename_axis("hardware").reset_index()
    found = machines(material)
    if not found:
        raise Missing("no cells (of any kind) that ran")
    for name in found:
        shown[name] = [_ours(material, name, str(row)) for row in shown["hardware"]]
    notes = (
        f"Published: Shi et al. (2018), {published['source']}, by dd and p2pBandwidthLatencyTest. Ours: network, from "
        "the fit of the all-reduce, bytes of the buffer over its time; memory, STREAM's triad of copies cells, or else "
        "the bandwidth that sgemm cells measure; connection, copies cells and all-reduces within a node; "
        "storage, what all nodes together read.",
    )
    return Made(Typeset(shown, "Hardware and its speeds.", "tab:shi-2018-table-2", {}, {}, notes))


def _ours(material: Material, hardware: str, row: str) -> str:
    """Return a cell of the table as text."""
    nodes = environments(material, hardware)
    entry = machines(material)[hardware]
    first = nodes.iloc[0] if len(nodes) else None
    if row == "GPU":
        model = "" if first is None else str(first["gpu_model"])
        return f"{model} ({entry.workers_per_node})" if model else "none" if entry.device == "cpu" else UNKNOWN
    if row == "CPU":
        return UNKNOWN if first is None else f"{first['cpu_model']}, {first['cores_available']} cores"
    if row == "Memory":
        size = "" if first is None else f"{first['memory_bytes'] / 1e9:.0f} GB"
        return " ".join(filter(None, (size, _speed_in_words(_memory(material, hardware))))) or UNKNOWN
    if row == "Storage":
        return _storage(material, hardware) or UNKNOWN
    fits = _fits(material, hardware)
    if row == "Connection":
        return "; ".join([*_copy_speeds(material, hardware), *_link_speeds(fits[fits["nodes"] == 1])]) or UNKNOWN
    return "; ".join(_link_speeds(fits[fits["nodes"] > 1])) or UNKNOWN


def _fits(material: Material, hardware: str) -> pd.DataFrame:
    """Return the all-reduce fits of single placements: each scheme's line segment of the largest messages."""
    fits = material.tables["communication"]
    fits = fits[(fits["hardware"] == hardware) & (fits["operation"] == ALL_REDUCE)]
    fits = fits[(fits["fit"] == "place") & (fits["beta"] > 0)]
    return fits.sort_values("piece").drop_duplicates(["backend", "reduction", "nodes", "ranks"], keep="last")


def _link_speeds(fits: pd.DataFrame) -> list[str]:
    """Return the bandwidth of the fastest scheme at each placement, in words."""
    best = fits.sort_values("beta").drop_duplicates(["nodes", "ranks"]).sort_values(["nodes", "ranks"])
    return [
        f"all-reduce of {fit['ranks']} workers, nodes: {fit['nodes']} {_speed_in_words(1 / fit['beta'])}"
        for fit in best.to_dict("records")
    ]


def _memory(material: Material, hardware: str) -> float | None:
    """Return the maximum rate of STREAM's triad, B/s; else the memory bandwidth that sgemm cells measured."""
    rates = _copy_rates(material, hardware)
    if len(triad := rates[rates["copy"] == "triad"]):
        return float(triad["bytes_per_second"].max())
    products = with_value_bytes(material.tables["sgemm"], material.tables["runs"])
    known = machine(products[products["hardware"] == hardware])
    return known.bandwidth if known else None


def _copy_rates(material: Material, hardware: str) -> pd.DataFrame:
    rates = material.tables["copy_rates"]
    return rates[rates["hardware"] == hardware]


def _copy_speeds(material: Material, hardware: str) -> list[str]:
    """Return the speeds of copies between the memories of host and devices, in words."""
    rates = _copy_rates(material, hardware)
    between = rates[rates["copy"].isin(["host to device", "device to host", "device to device"])]
    return [f"{rate['copy']} {_speed_in_words(rate['bytes_per_second'])}" for rate in between.to_dict("records")]


def _storage(material: Material, hardware: str) -> str:
    rates = material.tables["storage_rates"]
    rates = rates[(rates["hardware"] == hardware) & (rates["order"] == "sequential") & (rates["readers"] == 1)]
    coldest = rates.sort_values(["storage", "resident", "nodes"], kind="stable").drop_duplicates("storage")
    return "; ".join(
        f"{rate['storage']} {_speed_in_words(rate['bytes_per_second'])}"
        + ("" if rate["uncached"] else f", {in_words(rate['origin'], rate['server_cache'])}")
        for rate in coldest.to_dict("records")
    )


def _speed_in_words(bytes_per_second: float | None) -> str:
    if bytes_per_second is None:
        return ""
    unit, name = (1e9, "GB/s") if bytes_per_second >= 1e9 else (1e6, "MB/s")
    return f"({number(bytes_per_second / unit)} {name})"


# --- Table III: software --------------------------------------------------------------------------

OURS = {
    "operating system": "kernel", "PyTorch": "torch", "MPI": "mpi_library", "mpi4py": "mpi4py", "CUDA": "cuda",
    "cuDNN": "cudnn", "NCCL": "nccl", "driver": "driver", "BLAS": "blas", "oneDNN": "onednn",
    "stallpoint": "stallpoint",
}  # fmt: skip
"""Column of `tables.ENVIRONMENTS` for each row of Table III."""
LIBRARY = {"cuda": "cuDNN", "cpu": "oneDNN"}
"""Row of each device's compute library, which a hardware entry may turn off."""


def software(material: Material) -> Made:
    """Return Table III: a row for each software; a column for each of their clusters and of our hardware entries."""
    published = material.published[FILE]["software"]
    theirs: dict[str, dict[str, str]] = published["rows"]
    found = machines(material)
    if not found:
        raise Missing("no cells (of any kind) that ran")
    shown = pd.DataFrame({"software": list(dict.fromkeys([*theirs, *OURS]))})
    for cluster in next(iter(theirs.values())):
        shown[cluster] = [theirs.get(row, {}).get(cluster, "–") for row in shown["software"]]
    for name, entry in found.items():
        nodes, off = environments(material, name), "" if entry.tuned else LIBRARY[entry.device]
        shown[name] = [_versions(nodes, row, off) for row in shown["software"]]
    notes = (
        f"Published: Shi et al. (2018), {published['source']}. Presets of stallpoint imitate the frameworks, with one "
        "PyTorch and one MPI library.",
    )
    return Made(Typeset(shown, "Software.", "tab:shi-2018-table-3", {}, {}, notes))


def _versions(nodes: pd.DataFrame, row: str, off: str) -> str:
    """Return the versions on the `nodes` of a hardware entry, with "(off)" if `row` is the library turned off."""
    if row not in OURS or nodes.empty:
        return "–"
    versions = sorted({str(version).split(",")[0] for version in nodes[OURS[row]]} - {""})
    return f"{', '.join(versions)}{' (off)' if row == off else ''}" if versions else "–"
