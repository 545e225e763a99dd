"""Cells that `snakemake next` adds to a study, chosen to narrow the intervals of its stalling points at low cost.

A file in the folder of results holds these cells as entries of ``include``; they belong to the study from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stallpoint.errors import InputError
from stallpoint.records.atomic import atomic
from stallpoint.records.parquet import read
from stallpoint.records.tables import NEXT_CELLS, SERIES
from stallpoint.study.cells import Cell
from stallpoint.study.kinds.command_kind import CommandCell
from stallpoint.study.kinds.train_kind import TrainCell
from stallpoint.study.study import Study, expand
from stallpoint.text import number

FILE = "next.yaml"
"""Name of the file in the folder of the study's results."""
_AXES = ("network", "hardware", "nodes", "workers_per_node", "batch", "storage", "scaling", "sync", "prefetch")


@dataclass(frozen=True)
class Round:
    """Cells that one call of `snakemake next` adds, and a summary that explains their number."""

    cells: Sequence[dict[str, Any]] = field(default_factory=list)
    """Entries of ``include``."""
    hours: float = 0.0
    """Expected node-hours of the cells."""
    outcome: str = ""
    """Summary of the round in words."""


def added(results: Path) -> list[dict[str, Any]]:
    """Return the entries of ``include`` that earlier rounds added; `InputError` for an invalid file."""
    file = results / FILE
    try:
        if not file.exists():
            return []
    except (OSError, ValueError):  # the study's name cannot be a file's name, which the study's check reports
        return []
    try:
        found = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("include"), list):
        raise InputError(f"{file}: not a list of cells under include, as `snakemake next` writes it; remove the file")
    entries: list[dict[str, Any]] = found["include"]
    return entries


def expanded(config: Any, schema: Mapping[str, Any], new_entries: Sequence[Mapping[str, Any]] = ()) -> Study:
    """Return the study with the cells that earlier rounds added, and with the cells of `new_entries`."""
    if isinstance(config, Mapping):  # a configuration of another type is reported by the study's check
        earlier_entries = added(Path("results", str(config.get("study"))))
        config = with_cells(config, [*earlier_entries, *new_entries])
    return expand(config, schema)


def with_cells(config: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the configuration of a study with `cells` added to ``include``."""
    include_entries = config.get("include") or []
    # If ``include`` is no list, it is left unchanged: the check of the study reports it.
    return {**config, "include": [*include_entries, *cells]} if cells and isinstance(include_entries, list) else config


def write(results: Path, cells: Sequence[Mapping[str, Any]]) -> None:
    """Write the cells of all rounds to the file in `results`; an earlier file is replaced."""
    results.mkdir(parents=True, exist_ok=True)
    with atomic(results / FILE) as scratch:
        head = "# Cells that `snakemake next` chose; they are of the study as if they stood under its include.\n"
        scratch.write_text(head + yaml.safe_dump({"include": [dict(cell) for cell in cells]}, sort_keys=False))


def next_round(
    models: Path, cells: Mapping[str, Cell], hardware: Iterable[str], *, node_hours: float, within: float
) -> Round:
    """Return the next round of a study that has `cells`; it is chosen from the table ``next_cells`` in `models`.

    A curve is uncertain if the 90 % interval of its stalling point, with the model's errors, is wider than the factor
    `within`. Of each uncertain curve, a round has the cell that narrows this interval most for its cost. Cells are
    added, the best first, until `node_hours` are used up. `hardware` has the hardware entries that can measure.
    """
    file = models / f"{NEXT_CELLS.name}.parquet"
    if not file.exists():
        return Round(outcome="nothing was fitted yet: the study itself comes first")
    rows = [row for row in read(NEXT_CELLS, file).to_pylist() if row["hardware"] in set(hardware)]
    unsure_rows = [row for row in rows if row["width"] > math.log2(within)]
    if not unsure_rows:
        return Round(
            outcome=f"every stalling point is known within a factor of {number(within)}: nothing is left to measure"
        )
    narrowing = [row for row in unsure_rows if row["narrowing"] > 0 and row["kind"] != "collectives"]
    narrowing.sort(key=lambda row: -row["narrowing_per_node_hour"])
    entries: list[dict[str, Any]] = []
    curves: set[tuple[Any, ...]] = set()
    hours = 0.0
    for row in narrowing:
        curve = tuple(row[column.name] for column in SERIES)
        if curve in curves or hours + row["node_hours"] > node_hours:
            continue
        curves.add(curve)
        if (entry := _include_entry(row, cells)) not in entries:
            entries.append(entry)
            hours += row["node_hours"]
    if entries:
        return Round(
            entries, hours, f"{len(entries)} cell{'s' if len(entries) > 1 else ''}, {number(hours, 2)} node-hours"
        )
    why = f"each cell that would help takes over {number(node_hours)} node-hours" if narrowing else "no cell would help"
    return Round(outcome=f"{_unknown_points(unsure_rows)} within a factor of {number(within)}, but {why}")


def _unknown_points(rows: Iterable[Mapping[str, Any]]) -> str:
    count = len({tuple(row[column.name] for column in SERIES) for row in rows})
    return "one stalling point is not known" if count == 1 else f"{count} stalling points are not known"


def _include_entry(row: Mapping[str, Any], cells: Mapping[str, Cell]) -> dict[str, Any]:
    """Return the entry of ``include`` for the cell of a row; a cell that was measured before gets one more repeat."""
    entry = {name: row[name] for name in _AXES}
    if row["kind"] == "compute":
        return entry | {"nodes": 1, "workers_per_node": 1, "scaling": "compute", "batch": row["worker_batch"]}
    entry["workers_per_node"] = row["ranks"] // row["nodes"]
    same_cells = [
        cell
        for cell in cells.values()
        if type(cell) in (TrainCell, CommandCell) and all(getattr(cell, name) == value for name, value in entry.items())
    ]
    return entry | ({"repeats": 1 + max(cell.repeat for cell in same_cells)} if same_cells else {})
