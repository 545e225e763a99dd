"""What does the timing of layers cost, and do the times of layers add up to their pass?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from stallpoint.base.section import WARNING, Absence, Finding, Section, TableRow, TextTable
from stallpoint.base.statistics import groups
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import training
from stallpoint.text import number

TITLE = "What the timing of layers costs"
MAX_TIMING_SHARE = 0.01
"""Share of an iteration spent timing layers above which there is a warning."""
MAX_CLOSURE_ERROR = 0.02
"""Relative difference between the sum of layers' times and the pass above which there is a warning."""


def section(study: StudyTables) -> Section:
    """Return the section: what timing costs, and whether layers add up, with warnings."""
    worst_rows = list(_worst_rows(study.tables["instrumentation"]))
    if not worst_rows:
        return Section("timing", TITLE, "How sure", "No training job ran.", absence=Absence.NOT_MEASURED)
    text = (
        "Measured in each training job beside its data; here the worst of all ranks and cells: what timing one layer "
        "(its forward and its backward pass) adds to an iteration, how much of an iteration that is, and what part of "
        "the forward and the backward pass its layers add up to."
    )
    grid = TextTable.of({
        "network": "network", "hardware": "hardware", "cells": "cells",
        "timing a layer": lambda row: f"{number(1e6 * row['timing_cost'])} µs",
        "of an iteration": lambda row: f"{number(100 * row['timing_share'])} %",
        "forward": lambda row: f"{100 * row['forward_closure']:.1f} %",
        "backward": lambda row: f"{100 * row['backward_closure']:.1f} %",
    }, worst_rows, file="tables/instrumentation.parquet")  # fmt: skip
    return Section("timing", TITLE, "How sure", text, tuple(_findings(worst_rows)), (grid,))


def _worst_rows(table: pd.DataFrame) -> Iterator[TableRow]:
    """Yield the largest timing errors of any rank and cell, for each network on each hardware."""
    for (network, hardware), rows in groups(table, ["network", "hardware"]):
        yield TableRow(
            network=network, hardware=hardware, cells=int(rows["cell"].nunique()),
            timing_cost=float(rows["timing_cost"].max()), timing_share=float(rows["timing_share"].max()),
            **{f"{phase}_closure": max(map(float, rows[f"{phase}_closure"]), key=lambda value: abs(value - 1))
               for phase in ("forward", "backward")},
        )  # fmt: skip


def _findings(rows: list[TableRow]) -> Iterator[Finding]:
    for row in rows:
        if words := "; ".join(_warnings(row)):
            about = {name: str(row[name]) for name in ("network", "hardware")}
            yield Finding("timing", training(row), words, WARNING, about=about, first=True)


def _warnings(row: TableRow) -> Iterator[str]:
    if row["timing_share"] > MAX_TIMING_SHARE:
        yield f"timing the layers takes up to {100 * row['timing_share']:.2g} % of an iteration"
    for phase in ("forward", "backward"):
        if abs(row[f"{phase}_closure"] - 1) > MAX_CLOSURE_ERROR:
            yield f"layers add up to {100 * row[f'{phase}_closure']:.1f} % of the {phase} pass"
