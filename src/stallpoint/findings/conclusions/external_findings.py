"""What a study's tables of rates from elsewhere say: the answers that their files get without a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

EXTERNAL = "external table"
"""Kind of such a finding."""
MAX_LINES = 10


def external_lines(conclusions: Mapping[str, Any], limit: int | None = MAX_LINES) -> Iterator[str]:
    """Yield a line for each series, at most `limit` of them: its verdict, and what laws say of more workers."""
    found = [row for row in conclusions["findings"] if row["kind"] == EXTERNAL]
    for row in found[:limit]:
        predicted = any(point.get("predicted") for point in row["points"])
        beyond = f"at {row['beyond']}" if predicted else row["beyond"]
        yield f"{row['subject']}: {'; '.join(filter(None, (row['words'], beyond)))}"
    if limit and (more := len(found) - limit) > 0:
        yield f"{more} more series of external tables: details.md"
