"""Differences in machines, software and settings between two studies: the likely causes of changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pandas as pd

from stallpoint.records.tables import ENVIRONMENTS, RUNS
from stallpoint.text import natural

OF_MACHINE = (
    "device", "cpu_model", "gpu_model", "cpu_nominal_clock", "cpu_max_clock", "gpu_max_clock", "cores_available",
    "threads", "memory_bytes", "kernel", "python", "torch", "cuda", "cudnn", "nccl", "driver", "blas", "onednn",
    "cudnn_in_force", "onednn_in_force", "precision_in_force", "mpi4py", "mpi_library", "mpi_parameters", "interface",
    "subnet", "stallpoint", "git_commit", "git_dirty",
)  # fmt: skip
"""Columns of the environments that are compared."""
_APART = ("kind", "hardware", "own_network")
"""Entries of a cell that identify it, or are too long to show."""


def differences(old: Mapping[str, pd.DataFrame], new: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Return rows of hardware, what, old, new: each property whose values differ, of hardware that both studies have.

    Properties are those of the machines used, and the settings of cells that both have.
    """
    cells = set(old[RUNS.name]["cell"]) & set(new[RUNS.name]["cell"])
    first, second = (dict(_properties(tables, cells)) for tables in (old, new))
    return [
        {"hardware": hardware, "what": what, "old": _text(first[hardware, what]), "new": _text(values)}
        for (hardware, what), values in second.items()
        if (hardware, what) in first and values != first[hardware, what]
    ]


def _properties(tables: Mapping[str, pd.DataFrame], cells: set[str]) -> Iterator[tuple[tuple[str, str], set[str]]]:
    """Return hardware and property, and every value that occurs."""
    runs = tables[RUNS.name]
    machines = tables[ENVIRONMENTS.name].merge(runs[["cell", "hardware"]], on="cell")
    for hardware, rows in machines.groupby("hardware"):
        yield (str(hardware), "nodes used"), {str(rows["node"].nunique())}
        for name in filter(rows.columns.__contains__, OF_MACHINE):
            yield (str(hardware), name), {str(value) for value in rows[name].dropna()} - {""}
    shared = runs[runs["cell"].isin(cells)]
    for hardware, rows in shared.groupby("hardware"):
        settings = [(kind, json.loads(text)) for kind, text in zip(rows["kind"], rows["settings"], strict=True)]
        names = sorted({(kind, name) for kind, values in settings for name in values if name not in _APART})
        for kind, name in names:
            values = {json.dumps(one[name]) for of, one in settings if of == kind and name in one}
            yield (str(hardware), f"{kind}: {name}"), values


def _text(values: set[str]) -> str:
    return ", ".join(sorted(values, key=natural)) or "none"
