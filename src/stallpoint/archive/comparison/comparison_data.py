"""Comparisons as data, and as files in every format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stallpoint.archive.comparison.change import ERROR_RATE
from stallpoint.archive.comparison.changes import Comparison
from stallpoint.archive.comparison.comparison_words import summary, to_markdown
from stallpoint.base.frames import records
from stallpoint.base.statistics import INTERVAL, SAME_WITHIN
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import write
from stallpoint.records.tables import COMPARISON


def write_comparison(comparison: Comparison, files: Mapping[str, Path]) -> None:
    """Write the comparison to the `files`, a path for each of `FORMATS`."""
    from stallpoint.archive.comparison.comparison_page import to_html  # a late import: charts need stallpoint[report]

    rows = rows_of(comparison)
    write(COMPARISON, rows, files["parquet"])
    text = json.dumps(to_data(comparison, rows), indent=1, allow_nan=False) + "\n"
    for name, content in (("md", to_markdown(comparison)), ("json", text), ("html", to_html(comparison))):
        with atomic(files[name]) as scratch:
            scratch.write_text(content, encoding="utf-8")


def rows_of(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the rows of a comparison with the column types of `COMPARISON`. Values that do not apply are None."""
    integers = {field.name for field in COMPARISON.schema if str(field.type) == "int64"}
    return [
        {name: None if value != value else int(value) if name in integers else value for name, value in row.items()}
        for row in records(comparison.rows)
    ]


def to_data(comparison: Comparison, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the comparison for JSON (docs/schemas/compare.schema.json); `rows` are its rows, from `rows_of`."""
    return {
        "version": 1,
        "old": {"name": comparison.old.name, "began": comparison.old.began.isoformat()},
        "new": {"name": comparison.new.name, "began": comparison.new.began.isoformat()},
        "interval": INTERVAL,
        "level": ERROR_RATE,
        "margin": SAME_WITHIN,
        "between": comparison.between,
        "summary": summary(comparison),
        "moved": sorted(comparison.moved),
        "answers": rows,
        "verdicts": list(comparison.verdicts),
        "settings": list(comparison.settings),
        "alone": dict(comparison.unmatched),
    }
