"""Migration of records of earlier versions, so that later programs read what a GPU or a cluster measured.

Each new record version (`SCHEMA_VERSION`) has an entry in `RENAMED_COLUMNS`; columns added within a version are in
`ADDED_COLUMNS`. The tests read an archive of each version. Versions before `OLDEST_VERSION` were never released.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from stallpoint.records.tables import RUNS, SCHEMA_VERSION, TEXT, Table

OLDEST_VERSION = 4
_LAYER_NAMES = {"message": "bucket", "message_bytes": "bucket_bytes"}
_CALL_NAMES = {"messages": "calls"}
_STALLING_NAMES = {f"worthwhile_ranks{end}": f"cost_efficient_ranks{end}" for end in ("", "_low", "_high")}
RENAMED_COLUMNS: Mapping[int, Mapping[str, Mapping[str, str]]] = {
    4: {
        "visits": {"turn": "position", "beside": "concurrent", "began": "started", "left_out": "excluded_samples"},
        "layers": _LAYER_NAMES,
        "instrumentation": {"turns": "marks"},
        "collectives": _CALL_NAMES,
        "contention": {
            **_CALL_NAMES, "alone_operations": "isolated_operations", "alone_computing": "isolated_computing",
        },
        "storage_passes": {"of_storage": "uncached"},
        "stalling": _STALLING_NAMES,
        "disturbances": {"left_out": "excluded"},
        "settings": {"most_epochs": "max_epochs", "most_minutes": "max_minutes", "most_corrupt": "max_corrupt"},
    },
}  # fmt: skip
"""Version -> table -> old name of a column -> name in the next version; under ``settings`` names of cells' settings."""
ADDED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "environments": ("interface", "subnet"),
    "convergence_runs": ("loss_gap", "accuracy_gap", "sharpness"),
}
"""Table -> columns that older records lack; in migrated records they are empty, which means unknown."""


def is_readable(version: str) -> bool:
    """Return whether records of `version` are read, directly or by migration."""
    return version.isdigit() and OLDEST_VERSION <= int(version) <= SCHEMA_VERSION


def current_names(table: str, version: int) -> dict[str, str]:
    """Map old names to today's names, for columns of `table` (or cells' ``settings``) renamed since `version`."""
    found: dict[str, str] = {}
    for step in range(version, SCHEMA_VERSION):
        new_names = RENAMED_COLUMNS[step].get(table, {})
        found = {old: new_names.get(new, new) for old, new in found.items()} | {
            old: new for old, new in new_names.items() if old not in found.values()
        }
    return found


def current_settings(cell: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return the settings of a cell under today's names; the cell was recorded in `version`."""
    names = current_names("settings", version)
    return {names.get(name, name): value for name, value in cell.items()}


def migrate(table: Table, rows: pa.Table, version: int) -> pa.Table:
    """Return the rows of a record of `version` with today's columns, names and metadata, as far as known."""
    names = current_names(table.name, version)
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    for column in table.columns:
        if column.name in ADDED_COLUMNS.get(table.name, ()) and column.name not in rows.column_names:
            nulls = pa.repeat("", len(rows)).cast(TEXT) if column.type == TEXT else pa.nulls(len(rows), column.type)
            rows = rows.append_column(column.name, nulls)
    if table is RUNS:
        settings_texts = [
            json.dumps(current_settings(json.loads(text), version), separators=(",", ":"))
            for text in rows["settings"].to_pylist()
        ]
        rows = rows.set_column(rows.column_names.index("settings"), "settings", pa.array(settings_texts, TEXT))
    known_columns = [name for name in table.names if name in rows.column_names]
    rows = rows.select([*known_columns, *(name for name in rows.column_names if name not in known_columns)])
    return rows.replace_schema_metadata(table.schema.metadata)
