"""Tables of phases: a row for each run and a column for each phase, or transposed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite, isnan

from stallpoint.inputs.documents import Document
from stallpoint_files.phases.phased_steps import LITTLE, TOTAL, PhasedSteps, PhaseKind, kind_of_phase, plain_name
from stallpoint_files.tables.grids import Grid, is_number, tables
from stallpoint_files.texts.counts import COUNT_ALONE
from stallpoint_files.texts.headings import COUNTS, TIMES, ColumnKind, kind_of
from stallpoint_files.texts.numbers import MISSING, number_in, seconds_in

_OF_LEARNING = (PhaseKind.GENERATION, PhaseKind.LOG_PROBABILITIES, PhaseKind.WEIGHTS, PhaseKind.REWARD)
"""Kinds of phases of which a table needs one; without them, the reader of rates understands more."""
_PHASE_HEAD = re.compile(r"phases?|stages?|parts?|timings?(?:[_ ](?:raw|s))?|components?|steps?|metrics?|", re.I)
_RATE = re.compile(r"/ ?s|per (s|sec)|tok|samples|tflop|mfu|speed|efficien|\bratio|%", re.IGNORECASE)


def _is_phase(heading: str) -> bool:
    return kind_of_phase(heading) != PhaseKind.OTHER and not _RATE.search(heading) and kind_of(heading) in (
        ColumnKind.UNKNOWN, ColumnKind.PART, *TIMES
    )  # fmt: skip


def _has_runs_in_rows(cells: Sequence[str]) -> bool:
    """Return whether the headings are phases, so that each row is a run."""
    if any(map(is_number, cells)) or any(kind_of(cell) == ColumnKind.RATE for cell in cells):
        return False
    phases = {kind_of_phase(cell) for cell in cells if _is_phase(cell) and not _is_total(cell)}
    counted = any(kind_of(cell) in COUNTS for cell in cells)
    totals = any(map(_is_total, cells))
    parts = PhaseKind.COMMUNICATION in phases and len(phases) > 2 and not totals  # with totals, it is a table of rates
    return len(phases) > 1 and (bool(phases & set(_OF_LEARNING)) or parts) and (counted or totals)


def _is_total(heading: str) -> bool:
    name = plain_name(heading)
    return bool(
        TOTAL.fullmatch(name) or re.fullmatch(r"(total_)?step(_time)?|(step|iteration|e2e)_time|total_step_time", name)
    )


def _has_phases_in_rows(cells: Sequence[str]) -> bool:
    """Return whether the headings are counts, so that each row is a phase."""
    return len(cells) > 2 and bool(_PHASE_HEAD.fullmatch(cells[0].strip("* "))) and all(
        COUNT_ALONE.fullmatch(cell.strip("* ")) for cell in cells[1:]
    )  # fmt: skip


def phase_tables(document: Document) -> list[PhasedSteps]:
    """Return the runs of all tables of phases in a text."""
    found = [one for grid in tables(document, _has_runs_in_rows) for one in _rows(document, grid)]
    return found or [one for grid in tables(document, _has_phases_in_rows) for one in _columns(document, grid)]


def _seconds(text: str, heading: str) -> float:
    return float("nan") if MISSING.fullmatch(text) else seconds_in(text, heading, decimal_comma=False)


def _unit_of(texts: Sequence[str]) -> float:
    """Return the unit to which the texts' numbers are rounded, such as 0.01."""
    digits = [len(found[1]) for text in texts if (found := re.match(r"\s*\d+\.?(\d*)", text))]
    return 10.0 ** -max(digits, default=0)


def _rows(document: Document, grid: Grid) -> Iterator[PhasedSteps]:
    _, heads = grid.rows[0]
    kinds = [kind_of(head) for head in heads]
    total = next((index for index, head in enumerate(heads) if _is_total(head)), None)
    phases = [index for index, head in enumerate(heads) if index != total and _is_phase(head)]
    settings = [
        index
        for index, kind in enumerate(kinds)
        if kind in (ColumnKind.SETTING, ColumnKind.LABEL) or (not kind and index not in phases)
    ]
    above: dict[int, str] = {}
    for _number, cells in grid.rows[1:]:
        row = [cells[index].strip().strip("*`") if index < len(cells) else "" for index in range(len(heads))]
        for index in settings:
            above[index] = row[index] = row[index] or above.get(index, "")
        seconds = {heads[index]: _seconds(row[index], heads[index]) for index in phases}
        seconds = {name: value for name, value in seconds.items() if not isnan(value)}
        whole = _seconds(row[total], heads[total]) if total is not None else sum(seconds.values())
        if isnan(whole) or len(seconds) < 2:
            continue
        known = (*COUNTS, ColumnKind.PER_NODE, ColumnKind.GLOBAL_BATCH)
        counts = {kind: number_in(row[kinds.index(kind)]) for kind in known if kind in kinds}
        counts = {kind: value for kind, value in counts.items() if isfinite(value)}
        nodes, workers = counts.get(ColumnKind.NODES), counts.get(ColumnKind.WORKERS)
        per_node = counts.get(ColumnKind.PER_NODE)
        if nodes and per_node and not workers:
            workers = nodes * per_node
        setup = ", ".join(row[index] for index in settings if row[index] and not is_number(row[index]))
        batch = counts.get(ColumnKind.GLOBAL_BATCH)
        yield _run_from_row(
            document, setup, whole, seconds, workers, nodes, batch, _unit_of([row[index] for index in phases])
        )  # fmt: skip


def _columns(document: Document, grid: Grid) -> Iterator[PhasedSteps]:
    _, heads = grid.rows[0]
    for index, head in enumerate(heads[1:], start=1):
        count = COUNT_ALONE.fullmatch(head.strip("* "))
        cells = {row[0].strip("* "): row[index].strip("* ") for _, row in grid.rows[1:] if len(row) > index}
        seconds = {name: _seconds(cell, "time (s)") for name, cell in cells.items()}
        seconds = {name: value for name, value in seconds.items() if not isnan(value) and not _RATE.search(name)}
        total = next((name for name in seconds if _is_total(name)), "")
        whole = seconds.pop(total) if total else sum(seconds.values())
        of_learning = {kind_of_phase(name) for name in seconds} & set(_OF_LEARNING)
        if not count or len(seconds) < 2 or not of_learning:
            continue
        number, nodes = float(count["count"]), float(count["nodes"] or count["before"] or 0) or None
        workers, nodes = (None, number) if count["of"].lower().startswith("node") else (number, nodes)
        yield _run_from_row(document, "", whole, seconds, workers, nodes, None, _unit_of(list(cells.values())))


def _run_from_row(
    document: Document, setup: str, total: float, seconds: dict[str, float], workers: float | None,
    nodes: float | None, batch: float | None, rounded: float,
) -> PhasedSteps:  # fmt: skip
    phases = {re.sub(r"\s*[(\[].*?[)\]]", "", name).strip().lower(): [value] for name, value in seconds.items()}
    rest = total - sum(seconds.values())
    if rest > LITTLE * total:
        phases["other"] = [rest]
    return PhasedSteps(
        "table of phases", setup or document.path.stem, [total], phases, round(workers) if workers else None,
        round(nodes) if nodes else None, batch, rounded=rounded,
    )  # fmt: skip
