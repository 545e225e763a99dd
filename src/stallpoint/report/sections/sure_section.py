"""Certainty of the answers: how visits ended, how narrow intervals are, what was disturbed, and A/A controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.trust_findings import ENDED, disturbed_in_words, equal_presets_in_words, mistrusted
from stallpoint.report.charts.labels import AXES, label
from stallpoint.report.html import Section, paragraph, table
from stallpoint.study.dry_run import nodes_and_workers
from stallpoint.text import interval, number


def sure(conclusions: Conclusions) -> Section:
    """Return the section; without visits it says so."""
    if not any(conclusions[name] for name in ("ended", "curves", "disturbances", "controls")):
        return Section("sure", "How sure this is", paragraph("Nothing was visited."))
    blocks = [
        *_visits(conclusions["ended"]),
        *_planned(conclusions["planned"]),
        *_speedups(conclusions["curves"]),
        *_disturbed(conclusions["disturbances"]),
        *_slow_nodes(conclusions["slow_nodes"]),
        *_controls(conclusions),
    ]
    return Section("sure", "How sure this is", "\n".join(blocks))


def _visits(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if entries:
        yield "<h3>Visits</h3>"
        yield paragraph(
            "Cells that are compared are measured in an interleaved schedule: each is visited several times, in random "
            "order, so that a temporary slowdown of the machine affects all equally."
        )
        yield table(
            ["hardware", "cells", "visits", "ended because"],
            [
                [row["hardware"], str(row["cells"]), str(row["visits"]), ENDED.get(row["ended"], row["ended"])]
                for row in entries
            ],
            entries,
        )


def _planned(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if entries:
        yield "<h3>Planned and used</h3>"
        yield paragraph(
            "What visits were expected to take when their job was submitted, and what they took. Node-hours are those "
            "of a job, which has as many nodes as its largest cell."
        )
        yield table(
            ["hardware", "kind", "nodes", "cells", "planned [s]", "used [s]", "used [node-hours]", "cells as planned"],
            [
                [
                    row["hardware"], row["kind"], nodes_and_workers((row["nodes"], row["workers_per_node"])),
                    str(row["cells"]), interval(row["planned_seconds"]), number(row['used_seconds']),
                    number(row['used_node_hours']), str(row["cells_as_planned"]),
                ]
                for row in entries
            ],
            entries,
        )  # fmt: skip


def _speedups(curves: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = [(curve, at) for curve in curves for at in curve["measured"][1:]]
    if rows:
        names = label(pd.DataFrame([curve for curve, _ in rows]), list(AXES))
        yield "<h3>Measured speedups</h3>"
        yield table(
            ["curve", "workers", "speedup", "half-width"],
            [
                [name, str(at["ranks"]), interval(at["speedup"]), _percent(at["half_width"])]
                for name, (_, at) in zip(names, rows, strict=True)
            ],
            [curve for curve, _ in rows],
        )


def _percent(part: float | None) -> str:
    return "∞" if part is None else f"± {100 * part:.2g} %"


def _disturbed(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h3>Disturbed iterations</h3>"
    if not entries:
        yield paragraph("None were found.")
        return
    yield paragraph(
        "Iterations that something else disturbed are left out of statistics, unless too little of their cell would "
        "be left."
    )
    yield table(
        ["hardware", "reason", "iterations", "cells", "what became of them"],
        [
            [row["hardware"], row["reason"], str(row["iterations"]), str(row["cells"]), disturbed_in_words(row)]
            for row in entries
        ],
        entries,
    )


def _slow_nodes(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if entries:
        yield "<h3>Slow nodes</h3>"
        yield paragraph(
            "The sentinel, the same matrix products on every node at both ends of each visit, takes longer there. "
            "Nothing is left out for it: speedups are those of nodes of which one is slower."
        )
        yield table(
            ["hardware", "node", "its time over that of the others", "visits"],
            [[row["hardware"], row["node"], number(row["ratio"]), str(row["visits"])] for row in entries],
            entries,
        )


def _controls(conclusions: Conclusions) -> Iterator[str]:
    yield "<h3>A/A controls</h3>"
    for entry in conclusions["alike"]:
        yield paragraph(f"{equal_presets_in_words(entry)}.")
    rows = conclusions["controls"]
    if not rows:
        yield paragraph("None: no two cells on one worker do the same.")
        return
    yield paragraph(
        "On one worker all presets do the same, and so does a compute cell of the same b. Their iteration times must "
        "agree; on hardware where any pair differs (at 5 % over all its pairs), verdicts are withheld."
    )
    for hardware in mistrusted(conclusions):
        text = f"Verdicts on {hardware} are withheld: cells that do the same differ."
        yield f"<p><strong>{escape(text)}</strong></p>"
    yield table(
        ["hardware", "network", "b", "first", "second", "second over first", "agrees"],
        [
            [
                row["hardware"], row["network"], str(row["worker_batch"]), row["first"], row["second"],
                interval(row["ratio"]), "yes" if row["agrees"] else "no",
            ]
            for row in rows
        ],
        rows,
    )  # fmt: skip
