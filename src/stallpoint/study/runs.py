"""The row of a cell in the table ``runs``, and the folder of a cell that cannot run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stallpoint.records.parquet import write_cell
from stallpoint.records.tables import RUNS
from stallpoint.study.cells import Cell
from stallpoint.text import for_terminal


def run_row(cell: Cell, started: datetime, *, failure: str = "", source: str = "") -> dict[str, Any]:
    """Return the cell's row of `tables.RUNS`; `source` names imported files."""
    return {
        "cell": cell.path,
        "kind": cell.kind,
        "status": "failed" if failure else "ok",
        "reason": for_terminal(failure),
        "started": started,
        "duration": (datetime.now(UTC) - started).total_seconds(),
        **dict.fromkeys(("planned", "planned_low", "planned_high"), None),
        "settings": cell.to_json(),
        "ended": "",
        "source": source,
        **{name: getattr(cell, name) for name in ("hardware", "nodes", "workers_per_node", "ranks", "repeat")},
    }


def write_failure(cell: Cell, folder: Path, started: datetime, reason: str) -> None:
    """Write the folder of a cell, or of a visit to it, that cannot run here."""
    write_cell(folder, {RUNS.name: [run_row(cell, started, failure=reason)]})
