"""Limits of trust: the cost of timing, and cells that were not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import instrumentation
from stallpoint.findings.conclusions.trust_findings import instrumentation_warnings
from stallpoint.report.html import Section, axes_of_cell, paragraph, table
from stallpoint.study.study import Excluded


def timing(entries: Sequence[Mapping[str, Any]]) -> Section:
    """Return the cost of timing and whether layers add up, with warnings first."""
    found = instrumentation(entries)
    html = paragraph("No training job ran.")
    if found.rows:
        warnings = "".join(f"<p><strong>{escape(line)}</strong></p>" for line in instrumentation_warnings(entries))
        html = f'{warnings}<p class="soft">{escape(found.text)}</p>{table(found.head, found.rows, found.about)}'
    return Section("timing", found.title, html)


def not_measured(conclusions: Conclusions, excluded: Sequence[Excluded]) -> Section:
    """Return imported cells, cells that could not run, and excluded combinations, by reason with one example each."""
    blocks = []
    if imported := conclusions["imported"]:
        blocks += [
            "<h3>Imported</h3>",
            "<p>Where files say what layers took, and not the whole iteration, that is predicted from them.</p>",
            table(
                ["cell", "files"],
                [[row["cell"], row["source"]] for row in imported],
                [axes_of_cell(row["cell"]) for row in imported],
            ),
        ]
    if failed := conclusions["failed"]:
        blocks += [
            "<h3>Could not run</h3>",
            table(
                ["cell", "reason"],
                [[row["cell"], row["reason"]] for row in failed],
                [axes_of_cell(row["cell"]) for row in failed],
            ),
        ]
    if excluded:
        examples = {entry.reason: entry.axes for entry in reversed(excluded)}
        rows = [
            [reason, str(count), ", ".join(f"{axis} {value}" for axis, value in examples[reason].items())]
            for reason, count in Counter(entry.reason for entry in excluded).items()
        ]
        blocks += ["<h3>Left out of the matrix</h3>", table(["reason", "combinations", "such as"], rows)]
    everything = paragraph("None: every cell of the study ran, and nothing was left out.")
    return Section("cells", "Cells that were not measured", "\n".join(blocks) or everything)
