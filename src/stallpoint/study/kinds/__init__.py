"""The kinds of job. The module of a kind has its class of cells, its tables, and the choice of a study's cells.

A new kind needs a module here and a line in `KINDS`, a module in `measure.jobs` with ``measure(cell, world,
recorder)``, and its tables in `records.tables`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any

from stallpoint.errors import InputError
from stallpoint.study.cells import Cell, check_value
from stallpoint.study.job_kind import JobKind
from stallpoint.study.kinds import (
    collectives_kind,
    command_kind,
    convergence_kind,
    copies_kind,
    imported_kinds,
    intervention_kind,
    sgemm_kind,
    storage_kind,
    train_kind,
)

KINDS: dict[str, JobKind] = {
    kind.name: kind
    for kind in (
        train_kind.KIND,
        command_kind.KIND,
        intervention_kind.KIND,
        sgemm_kind.KIND,
        collectives_kind.KIND,
        storage_kind.KIND,
        copies_kind.KIND,
        convergence_kind.KIND,
        imported_kinds.TRAIN_KIND,
        imported_kinds.COLLECTIVES_KIND,
    )
}
MEASURED = tuple(name for name, kind in KINDS.items() if kind.measured)
IMPORTED_KINDS = tuple(name for name, kind in KINDS.items() if not kind.measured)


def kind_of(cell: Cell) -> JobKind:
    """Return the kind of a cell."""
    return KINDS[cell.kind]


@lru_cache(2**16)
def cell_from_json(text: str) -> Cell:
    """Return the cell from its JSON (`Cell.to_json`); raises `InputError` if the text describes no valid cell.

    Cells are cached: each table of a study asks for all cells again, and a check takes 0.1 ms for each cell.
    """
    try:
        values: dict[str, Any] = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"a cell is expected as JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"a cell is expected as JSON, not {text[:40]!r}")
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise InputError(f"a cell of unknown kind {kind!r}; known: {', '.join(KINDS)}")
    cell = KINDS[kind].cell
    if wrong_fields := sorted(({*cell.later(), *values}) ^ {one.name for one in fields(cell)}):
        raise InputError(f"not a {kind} cell: missing or unknown {', '.join(wrong_fields)}")
    for name, value in values.items():
        check_value(cell, name, value)
    return cell(**values)
