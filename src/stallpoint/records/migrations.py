"""Migration of records of earlier versions, so that later programs read what a GPU or a cluster measured.

Each new record version (`SCHEMA_VERSION`) has an entry in `STEPS`; columns added within a version are listed in
`ADDED`. The tests read an archive of each version. Versions before `OLDEST` were never released.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from stallpoint.records.tables import RUNS, SCHEMA_VERSION, TEXT, Table

OLDEST = 4
_PASSES = {"message": "bucket", "message_bytes": "bucket_bytes"}
_CALLS = {"messages": "calls"}
_COST_EFFICIENT = {f"worthwhile_ranks{end}": f"cost_efficient_ranks{end}" for end in ("", "_low", "_high")}
STEPS: Mapping[int, Mapping[str, Mapping[str, str]]] = {
    4: {
        "visits": {"turn": "position", "beside": "concurrent", "began": "started", "left_out": "excluded_samples"},
        "layers": _PASSES,
        "instrumentation": {"turns": "marks"},
        "collectives": _CALLS,
        "contention": {
            **_CALLS, "alone_operations": "isolated_operations", "alone_computing": "isolated_computing",
        },
        "storage_passes": {"of_storage": "uncached"},
        "stalling": _COST_EFFICIENT,
        "disturbances": {"left_out": "excluded"},
        "settings": {"most_epochs": "max_epochs", "most_minutes": "max_minutes", "most_corrupt": "max_corrupt"},
    },
}  # fmt: skip
"""Version -> table -> old name of a column -> name in the next version; under ``settings`` names of cells' settings."""
ADDED: Mapping[str, tuple[str, ...]] = {
    "environments": ("interface", "subnet"),
    "convergence_runs": ("loss_gap", "accuracy_gap", "sharpness"),
}
"""Table -> columns that older records lack; in migrated records they are empty, which means unknown."""


def readable(version: str) -> bool:
    """Return whether records of `version` are read, directly or by migration."""
    return version.isdigit() and OLDEST <= int(version) <= SCHEMA_VERSION


def current_names(table: str, version: int) -> dict[str, str]:
    """Return the names that changed since `version`, old to new, of a table's columns or of cells' ``settings``."""
    found: dict[str, str] = {}
    for step in range(version, SCHEMA_VERSION):
        renamed = STEPS[step].get(table, {})
        found = {old: renamed.get(new, new) for old, new in found.items()} | {
            old: new for old, new in renamed.items() if old not in found.values()
        }
    return found


def current_settings(cell: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return a cell's settings, recorded in `version`, under today's names."""
    names = current_names("settings", version)
    return {names.get(name, name): value for name, value in cell.items()}


def migrate(table: Table, rows: pa.Table, version: int) -> pa.Table:
    """Return the rows of a record of `version` with today's columns, names and metadata, as far as known."""
    names = current_names(table.name, version)
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    for column in table.columns:
        if column.name in ADDED.get(table.name, ()) and column.name not in rows.column_names:
            nulls = pa.repeat("", len(rows)).cast(TEXT) if column.type == TEXT else pa.nulls(len(rows), column.type)
            rows = rows.append_column(column.name, nulls)
    if table is RUNS:
        texts = [
            json.dumps(current_settings(json.loads(text), version), separators=(",", ":"))
            for text in rows["settings"].to_pylist()
        ]
        rows = rows.set_column(rows.column_names.index("settings"), "settings", pa.array(texts, TEXT))
    known = [name for name in table.names if name in rows.column_names]
    rows = rows.select([*known, *(name for name in rows.column_names if name not in known)])
    return rows.replace_schema_metadata(table.schema.metadata)
