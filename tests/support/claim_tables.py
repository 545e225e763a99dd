"""Rows of model tables for claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from stallpoint.base.frames import frame
from stallpoint.questions.claims.facts import Facts
from stallpoint.questions.claims.quantity import Evidence
from stallpoint.records.tables import TABLES

Interval: TypeAlias = tuple[float, float, float]
"""Value, lower and upper end."""
Rows: TypeAlias = dict[str, list[dict[str, Any]]]

EMPTY = {"large_string": "", "int64": 0, "double": math.nan, "bool": False}


def row(table: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table; columns that are not given are empty."""
    unknown = set(given) - {column.name for column in TABLES[table].columns}
    assert not unknown, f"{table} has no {unknown}"
    return {column.name: EMPTY[str(column.type)] for column in TABLES[table].columns} | dict(given)


def evidence(rows: Mapping[str, list[dict[str, Any]]], facts: Facts | None = None) -> Evidence:
    """Tables of the given rows."""
    frames = {name: frame(TABLES[name], [row(name, one) for one in given]) for name, given in rows.items()}
    return Evidence(frames, facts or {})
