"""Words for the cells that a study lacks to test a claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from stallpoint.questions.claims.facts import Facts, choose_rows, column_of, is_end, meets_condition
from stallpoint.questions.claims.language import FACTS, Selection, wanted_in_words
from stallpoint.study.kinds import KINDS

_TRAIN, _SGEMM, _COLLECTIVES, _STORAGE, _CONVERGENCE = (
    KINDS[name].missing for name in ("train", "sgemm", "collectives", "storage", "convergence")
)
_TARGET = f"{_CONVERGENCE} with a target"
CELLS = {
    "layer_scaling": f"{_TRAIN} on one worker, at several b (scaling compute)",
    "halvings": f"{_TRAIN} on one worker or {_SGEMM}, at two b",
    "amdahl": f"{_TRAIN} on one worker at two b (scaling compute), or on two numbers of workers (strong)",
    "sgemm_speedup": _SGEMM,
    "curve_distances": f"{_SGEMM} and {_TRAIN} on one worker that share two b",
    "communication": _COLLECTIVES,
    "storage_rates": _STORAGE,
    "data_share": _TRAIN,
    "break_even": f"{_TRAIN} on a storage that is staged or converted, and on that without",
    "hidden_communication": f"{_TRAIN} on more than one worker (and of the same with sync: none)",
    "comparisons": f"{_TRAIN} that differ in storage, sync or prefetch alone",
    "traffic": f"{_TRAIN} on more than one worker and {_STORAGE}",
    "what_if": "scenarios under what_if",
    "network_layers": f"{_TRAIN} of a network",
    "convergence_runs": _CONVERGENCE,
    "early_stopping": f"{_CONVERGENCE} without a target, at two mini-batches or more",
    "steps_to_target": _TARGET,
    "critical_batches": f"{_TARGET}, at two mini-batches or more",
    "target_times": _TARGET,
    "target_stalling": _TARGET,
    "noise_scale": f"{_CONVERGENCE} with noise_steps on several workers",
    "worker_staleness": f"{_CONVERGENCE} of a preset whose servers answer each worker for itself",
    "staleness_shares": f"{_CONVERGENCE} of a preset whose servers answer each worker for itself",
    "extrapolations": "external tables",
    "law_validation": f"external tables, or {_TRAIN} on many numbers of workers",
}
"""Cells that fill each table; other tables are filled by train cells with scaling strong or weak."""
_CURVE = f"{_TRAIN} (strong or weak scaling)"
MAX_VALUES = 8
"""Largest number of values in a message."""


def why_no_rows(selection: Selection, rows: pd.DataFrame, labels: Mapping[str, object], known: Facts) -> str:
    """Return why the combination `labels` has no row: the first condition that no row meets, and which values exist."""
    cells = CELLS.get(selection.table, _CURVE)
    if rows.empty:
        return f"no {cells}"
    rows = choose_rows(rows, labels, known)
    met_conditions: list[str] = []
    for column, wanted in selection.where.items():
        if is_end(wanted):
            continue
        values = column_of(rows, column, known)
        remaining_rows = rows[meets_condition(values, wanted)]
        if remaining_rows.empty:
            met_in_words = f" of {', '.join(met_conditions)}" if met_conditions else ""
            existing_in_words = f" (there is {_list_values(values)})" if len(values) else ""
            return f"no {cells}{met_in_words} with {column} {wanted_in_words(wanted)}{existing_in_words}"
        if column not in labels and (column in FACTS or column == "network"):
            met_conditions.append(wanted_in_words(wanted))
        rows = remaining_rows
    return f"no {cells}"


def why_no_value(selection: Selection, rows: pd.DataFrame) -> str:
    """Return why the chosen rows have no value: the texts in their column ``note``, if there are any."""
    notes = sorted({str(note) for note in rows["note"]} - {""}) if "note" in rows.columns else []
    return f"{selection.column} is not known: {'; '.join(notes) or 'a part of it was not measured'}"


def why_no_other_row(selection: Selection, rows: pd.DataFrame) -> str:
    """Return why ratios are no evidence: each row is its own reference. Name the axis on which others are missing."""
    axis = next(name for name in _REFERENCE_AXES if name in rows.columns)
    return f"{selection.column} compares a cell with itself ({axis} {_list_values(rows[axis])}): needs another {axis}"


_REFERENCE_AXES = ("ranks", "worker_batch", "batch")
"""Columns in which a row may differ from its reference: the first that is in the table counts."""


def _list_values(values: pd.Series[Any]) -> str:
    found = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    words = [wanted_in_words(value) or "unknown" for value in found if value != ""] or ["none"]
    return ", ".join(words[:MAX_VALUES]) + (f" and {len(words) - MAX_VALUES} more" if len(words) > MAX_VALUES else "")
