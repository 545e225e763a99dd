"""Comparisons as files: text, data and a web page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stallpoint.archive.comparison.change import LEVEL
from stallpoint.archive.comparison.changes import Comparison, records
from stallpoint.archive.comparison.comparison_page import to_html
from stallpoint.archive.comparison.comparison_words import summary, to_markdown
from stallpoint.models.base.statistics import INTERVAL, SAME_WITHIN
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import write
from stallpoint.records.tables import COMPARISON


def write_comparison(comparison: Comparison, files: Mapping[str, Path]) -> None:
    """Write all of it to the `files`, a path for each of `FORMATS`."""
    rows = rows_of(comparison)
    write(COMPARISON, rows, files["parquet"])
    text = json.dumps(to_data(comparison, rows), indent=1, allow_nan=False) + "\n"
    for name, content in (("md", to_markdown(comparison)), ("json", text), ("html", to_html(comparison))):
        with atomic(files[name]) as scratch:
            scratch.write_text(content, encoding="utf-8")


def rows_of(comparison: Comparison) -> list[dict[str, Any]]:
    """The rows in the types of their table; None where a column is no part of what a row is about."""
    whole = {field.name for field in COMPARISON.schema if str(field.type) == "int64"}
    return [
        {name: None if value != value else int(value) if name in whole else value for name, value in row.items()}
        for row in records(comparison.rows)
    ]


def to_data(comparison: Comparison, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All of it as JSON holds it; `rows` are its rows in the types of their table."""
    return {
        "old": {"name": comparison.old.name, "began": comparison.old.began.isoformat()},
        "new": {"name": comparison.new.name, "began": comparison.new.began.isoformat()},
        "interval": INTERVAL,
        "level": LEVEL,
        "margin": SAME_WITHIN,
        "between": comparison.between,
        "summary": summary(comparison),
        "moved": sorted(comparison.moved),
        "answers": rows,
        "verdicts": list(comparison.verdicts),
        "settings": list(comparison.settings),
        "alone": dict(comparison.alone),
    }
