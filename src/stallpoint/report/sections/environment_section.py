"""Machines and software used by the study."""

from __future__ import annotations

from typing import Any

import pandas as pd

from stallpoint.report.charts import Tables, theme
from stallpoint.report.html import Section, paragraph, table

PROPERTIES = {
    "node": "nodes",
    "cpu_model": "CPU",
    "gpu_model": "GPU",
    "cpu_nominal_clock": "nominal clock of the CPU",
    "cpu_max_clock": "highest clock of the CPU",
    "gpu_max_clock": "highest clock of the GPU",
    "cores_available": "cores",
    "threads": "threads of a worker",
    "core_cache_bytes": "cache of a core",
    "cache_bytes": "caches of a worker",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "python": "Python",
    "torch": "PyTorch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "cudnn_in_force": "cuDNN in force",
    "nccl": "NCCL",
    "driver": "driver of the GPU",
    "blas": "BLAS",
    "onednn": "oneDNN",
    "onednn_in_force": "oneDNN in force",
    "precision_in_force": "precision of products",
    "mpi_library": "MPI",
    "mpi4py": "mpi4py",
    "interface": "interface between ranks",
    "subnet": "network between ranks",
    "stallpoint": "stallpoint",
    "git_commit": "commit of the workflow",
    "git_dirty": "uncommitted changes",
    "slurm_job_id": "Slurm jobs",
}
"""Columns of the table ``environments`` that are summarised, and their titles."""
MAX_VALUES = 6


def environment(tables: Tables) -> Section:
    """Return a column for each hardware entry, a row for each property, with every value that occurred."""
    runs, environments = tables.get("runs"), tables.get("environments")
    if runs is None or environments is None or environments.empty:
        return Section("environment", "Environment", paragraph("No job recorded its environment."))
    known = environments.merge(runs[["cell", "hardware"]], on="cell")
    known = known.assign(
        memory_bytes=[f"{size / 2**30:.0f} GiB" for size in known["memory_bytes"]],
        **{name: [_mib(size) for size in known[name]] for name in ("core_cache_bytes", "cache_bytes")},
        **{name: [_ghz(clock) for clock in known[name]] for name in PROPERTIES if name.endswith("_clock")},
    )
    hardware, frames = zip(*known.groupby("hardware"), strict=True)
    rows = [[name, *(_values(frame[column]) for frame in frames)] for column, name in PROPERTIES.items()]
    return Section(
        "environment", "Environment", table(["of", *map(str, hardware)], [row for row in rows if any(row[1:])])
    )


def _mib(size: float) -> str:
    return "" if pd.isna(size) else f"{size / 2**20:g} MiB"


def _ghz(clock: float) -> str:
    return "" if pd.isna(clock) else f"{clock / 1e9:g} GHz"


def _values(values: pd.Series[Any]) -> str:
    texts = sorted({str(value) for value in values.dropna()} - {""}, key=theme.natural)
    more = f" and {len(texts) - MAX_VALUES} more" if len(texts) > MAX_VALUES else ""
    return ", ".join(texts[:MAX_VALUES]) + more
