"""The first to reach each target on how many workers, and why; and where more save no time, next to throughput."""

from __future__ import annotations

from html import escape

import pandas as pd

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.target_findings import CURVE, FACTORS, STALLING, STALLING_HEAD, lead, stalling_rows
from stallpoint.models.answers.time_to_accuracy import FASTEST
from stallpoint.report.charts import Tables
from stallpoint.report.charts.labels import with_interval
from stallpoint.report.charts.time_to_target_chart import best
from stallpoint.report.html import Section, belongs_to, paragraph, table

CAPTION = (
    "Of each preset the recipe and mini-batch that were soonest. What takes longer than the fastest takes more steps, "
    "longer ones, or both: the product of the two. Predicted is a time from the steps at other mini-batches and "
    "iterations at other places."
)
HEAD = ["workers", "preset", "with", "time", "predicted", "over the fastest", "steps", "each step", "verdict"]
TIMES = {"time": "s", "predicted": "s"}
"""Columns of the table target_times, and their units."""


def targets(conclusions: Conclusions, tables: Tables) -> list[Section]:
    """Return a section with a table for each reached target; none without one."""
    if not conclusions["targets"]:
        return []
    ways, blocks = best(tables), [paragraph(CAPTION)]
    for target in conclusions["targets"]:
        here = ways[(ways[CURVE] == [target[name] for name in CURVE]).all(axis=1)]
        blocks.append(f"<div{belongs_to(target)}><h3>{escape(lead(target))}</h3>{_table(here)}</div>")
    if rows := stalling_rows(conclusions):
        blocks += [paragraph(STALLING), table(STALLING_HEAD, rows, conclusions["accuracy_stalling"])]
    return [Section("targets", "Time to accuracy", "".join(blocks))]


def _table(ways: pd.DataFrame) -> str:
    """Return the table of a target: at each number of workers the fastest first."""
    ways = ways.sort_values(["ranks", "time"], kind="stable")
    fastest = ways["verdict"] == FASTEST
    estimates = [
        pd.Series(with_interval(ways, name, unit), ways.index).where(ways[name].notna(), "not known")
        for name, unit in TIMES.items()
    ]
    factors = [pd.Series(with_interval(ways, name), ways.index).mask(fastest, "1") for name in FACTORS]
    columns = [ways["ranks"].astype(str), ways["sync"], ways["way"], *estimates, *factors, ways["verdict"]]
    return table(HEAD, list(zip(*columns, strict=True)))
