"""The tables behind the charts."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from stallpoint.records.tables import EXTRAPOLATED_TABLES, MODEL_TABLES, RUNS, WHAT_IF_GRID, Table
from stallpoint.report.charts import Tables
from stallpoint.report.charts.labels import FILTERS
from stallpoint.report.html import MAX_ROWS, Section

FOLDERS = {table.name: "models" for table in (*MODEL_TABLES, *EXTRAPOLATED_TABLES)} | {RUNS.name: "tables"}
"""Tables on the page, and the folder of the results with the file."""
UNSHOWN = {"settings"}
"""Columns that are too wide for a table; the file has them."""


def raw_tables(tables: Tables) -> tuple[Section, dict[str, Any]]:
    """Return a closed element for each table, and the data with which the page's script fills it."""
    shown = [
        table
        for table in (RUNS, *MODEL_TABLES, *EXTRAPOLATED_TABLES)
        if table != WHAT_IF_GRID and len(tables.get(table.name, ()))
    ]
    introduction = (
        "<p>Each is also a file (Parquet, with units and descriptions of the columns); so are the raw records behind "
        f"them, in raw/ and tables/. Of large tables {MAX_ROWS} rows are on this page, some of each network, hardware "
        "and storage.</p>"
    )
    html = introduction + "\n".join(_element(table, len(tables[table.name])) for table in shown)
    return Section("raw-tables", "Raw tables", html), {table.name: _data(table, tables[table.name]) for table in shown}


def _element(table: Table, rows: int) -> str:
    name, file = table.name, f"{FOLDERS[table.name]}/{table.name}.parquet"
    count = f"{MAX_ROWS} of {rows:,} rows" if rows > MAX_ROWS else f"{rows:,} row{'s' if rows > 1 else ''}"
    return (
        f'<details data-table="{name}"><summary><code>{name}</code> <span class="soft">{count}</span></summary>'
        f"<p>{escape(table.description[0].upper() + table.description[1:])}. <output></output>"
        f'<code>{file}</code> <span class="tools"><button type="button" data-action="table" data-table="{name}" '
        f'aria-label="{name}: save these rows as CSV">CSV</button></span></p><div class="wide"></div></details>'
    )


def _data(table: Table, frame: pd.DataFrame) -> dict[str, Any]:
    """Return columns with unit and meaning, and rows as JSON, real numbers at five significant digits."""
    columns = [column for column in table.columns if column.name in frame and column.name not in UNSHOWN]
    rows = _some(frame)[[column.name for column in columns]]
    return {
        "columns": [{"name": c.name, "unit": c.unit, "description": c.description} for c in columns],
        "rows": [[_value(value) for value in row] for row in rows.itertuples(index=False)],
    }


def _some(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most `MAX_ROWS` rows, taken in turn from every network, hardware and storage, in their own order."""
    owners = [name for name in FILTERS if name in frame]
    turn = frame.groupby(owners, dropna=False).cumcount() if owners else pd.Series(range(len(frame)), frame.index)
    return frame.loc[turn.sort_values(kind="stable").index[:MAX_ROWS].sort_values()]


def _value(value: Any) -> Any:
    if value is None or value is pd.NaT or (isinstance(value, float) and pd.isna(value)):
        return None
    if isinstance(value, float):
        return float(f"{value:.5g}") if abs(value) != float("inf") else str(value).replace("inf", "∞")
    return value if isinstance(value, str | int | bool) else str(value)
