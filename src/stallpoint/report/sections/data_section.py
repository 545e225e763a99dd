"""Data of the study: networks, machines and software, and the tables behind the charts."""

from __future__ import annotations

import math
from collections import Counter
from html import escape
from typing import Any

import pandas as pd

from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES, RUNS, Table
from stallpoint.report.charts import Tables
from stallpoint.report.charts.labels import interleaved_order
from stallpoint.report.html import MAX_ROWS, PagePart, paragraph, table
from stallpoint.text import number, sort_key

NETWORK_HEAD = [
    "network", "layers", "parameters", "gradients", "multiply-adds of a sample's forward pass", "layer types",
]  # fmt: skip
MAX_TYPES = 6


def networks(tables: Tables) -> PagePart:
    """Return the size of each network, from the table ``network_layers``."""
    layers = tables.get("network_layers")
    if layers is None or layers.empty:
        return PagePart("networks", "Networks", "Data", paragraph("No network was described."))
    return PagePart("networks", "Networks", "Data", table(NETWORK_HEAD, *_rows(layers)))


def _rows(layers: pd.DataFrame) -> tuple[list[list[str]], list[dict[str, str]]]:
    """Return a row for each network, and for each row the network to which the page's filter assigns it."""
    found = {str(name): rows for name, rows in layers.groupby("network", sort=False)}
    return [_network(name, rows) for name, rows in found.items()], [{"network": name} for name in found]


def _network(name: str, layers: pd.DataFrame) -> list[str]:
    """Return the row of a network. Values that traces lack are dashes."""
    totals = layers[["parameters", "gradient_bytes", "multiply_adds"]].sum(min_count=1)
    parameters, size, work = totals.astype(float)
    types = ", ".join(f"{count} {kind}" for kind, count in Counter(layers["layer_type"]).most_common(MAX_TYPES))
    return [
        name,
        str(len(layers)),
        "-" if math.isnan(parameters) else f"{parameters:,.0f}",
        f"{number(size / 1e6)} MB",
        "-" if math.isnan(work) else f"{number(work / 1e9)} billion",
        types,
    ]


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
"""Columns of the table ``environments`` that the page summarises, and their titles."""
MAX_VALUES = 6


def environment(tables: Tables) -> PagePart:
    """Return the table of environments: a column for each hardware, a row for each property with its values."""
    runs, environments = tables.get("runs"), tables.get("environments")
    if runs is None or environments is None or environments.empty:
        return PagePart("environment", "Environment", "Data", paragraph("No job recorded its environment."))
    known = environments.merge(runs[["cell", "hardware"]], on="cell")
    known = known.assign(
        memory_bytes=[f"{size / 2**30:.0f} GiB" for size in known["memory_bytes"]],
        **{name: [_mib(size) for size in known[name]] for name in ("core_cache_bytes", "cache_bytes")},
        **{name: [_ghz(clock) for clock in known[name]] for name in PROPERTIES if name.endswith("_clock")},
    )
    hardware, frames = zip(*known.groupby("hardware"), strict=True)
    rows = [[name, *(_values(frame[column]) for frame in frames)] for column, name in PROPERTIES.items()]
    return PagePart(
        "environment", "Environment", "Data", table(["of", *map(str, hardware)], [row for row in rows if any(row[1:])])
    )


def _mib(size: float) -> str:
    return "" if pd.isna(size) else f"{size / 2**20:g} MiB"


def _ghz(clock: float) -> str:
    return "" if pd.isna(clock) else f"{clock / 1e9:g} GHz"


def _values(values: pd.Series[Any]) -> str:
    texts = sorted({str(value) for value in values.dropna()} - {""}, key=sort_key)
    rest = f" and {len(texts) - MAX_VALUES} more" if len(texts) > MAX_VALUES else ""
    return ", ".join(texts[:MAX_VALUES]) + rest


FOLDERS = {table.name: "models" for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES)} | {RUNS.name: "tables"}
"""Tables on the page, and the folder of each table's file in the results."""
WIDE_COLUMNS = {"settings"}
"""Columns that are too wide for the page; the files have them."""


def raw_tables(tables: Tables) -> tuple[PagePart, dict[str, Any]]:
    """Return a folded element for each table, and the data by which the page's script fills it."""
    shown = [table for table in (RUNS, *MODEL_TABLES, *EXTRAPOLATED_TABLES) if len(tables.get(table.name, ()))]
    introduction = (
        "<p>Each is also a file (Parquet, with units and descriptions of the columns); so are the raw records behind "
        f"them, in raw/ and tables/. Of large tables {MAX_ROWS} rows are on this page, some of each network, hardware "
        "and storage.</p>"
    )
    html = introduction + "\n".join(_table_element(table, len(tables[table.name])) for table in shown)
    return PagePart("raw-tables", "Raw tables", "Data", html), {
        table.name: _data(table, tables[table.name]) for table in shown
    }


def _table_element(table: Table, rows: int) -> str:
    name, file = table.name, f"{FOLDERS[table.name]}/{table.name}.parquet"
    count = f"{MAX_ROWS} of {rows:,} rows" if rows > MAX_ROWS else f"{rows:,} row{'s' if rows > 1 else ''}"
    return (
        f'<details data-table="{name}"><summary><code>{name}</code> <span class="soft">{count}</span></summary>'
        f"<p>{escape(table.description[0].upper() + table.description[1:])}. <output></output>"
        f'<code>{file}</code> <span class="tools"><button type="button" data-action="table" data-table="{name}" '
        f'aria-label="{name}: save these rows as CSV">CSV</button></span></p><div class="wide"></div></details>'
    )


def _data(table: Table, frame: pd.DataFrame) -> dict[str, Any]:
    """Return a table as JSON: columns with unit and meaning, and rows, real numbers at five significant digits."""
    columns = [column for column in table.columns if column.name in frame and column.name not in WIDE_COLUMNS]
    rows = _sample(frame)[[column.name for column in columns]]
    return {
        "columns": [{"name": c.name, "unit": c.unit, "description": c.description} for c in columns],
        "rows": [[_value(value) for value in row] for row in rows.itertuples(index=False)],
    }


def _sample(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most `MAX_ROWS` rows in their order, selected in turn from every network, hardware and storage."""
    return frame.loc[interleaved_order(frame)[:MAX_ROWS].sort_values()]


def _value(value: Any) -> Any:
    if value is None or value is pd.NaT or (isinstance(value, float) and pd.isna(value)):
        return None
    if isinstance(value, float):
        return float(f"{value:.5g}") if abs(value) != float("inf") else str(value).replace("inf", "∞")
    return value if isinstance(value, str | int | bool) else str(value)
