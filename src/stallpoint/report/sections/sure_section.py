"""Certainty of the answers: visits, intervals, disturbances, A/A controls, predicted counts, and the cost of timing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from stallpoint.findings.conclusions.accuracy import accuracy
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import agrees_in_words, instrumentation
from stallpoint.findings.conclusions.trust_findings import (
    ENDED,
    disturbed_in_words,
    equal_presets_in_words,
    instrumentation_warnings,
    mistrusted,
)
from stallpoint.findings.listing import Listing, interval_of
from stallpoint.report.charts import Tables
from stallpoint.report.charts.labels import AXES, label
from stallpoint.report.html import Section, listing, paragraph
from stallpoint.study.dry_run import nodes_and_workers
from stallpoint.text import number


def sure(conclusions: Conclusions) -> Section:
    """Return the section; without visits it says so."""
    if not any(conclusions[name] for name in ("ended", "curves", "disturbances", "controls")):
        return Section("sure", "How sure this is", paragraph("Nothing was visited."))
    return Section("sure", "How sure this is", "\n".join(_blocks(conclusions)))


def _blocks(conclusions: Conclusions) -> Iterator[str]:
    for found in (_visits, _planned, _speedups):
        yield from _titled(found(conclusions))
    disturbed = _disturbed(conclusions["disturbances"])
    yield from _titled(disturbed)
    if not disturbed.rows:
        yield f"<h3>{disturbed.title}</h3>{paragraph('None were found.')}"
    yield from _titled(_slow_nodes(conclusions["slow_nodes"]))
    yield "<h3>A/A controls</h3>"
    for entry in conclusions["alike"]:
        yield paragraph(f"{equal_presets_in_words(entry)}.")
    for hardware in mistrusted(conclusions):
        text = f"Verdicts on {hardware} are withheld: cells that do the same differ."
        yield f"<p><strong>{escape(text)}</strong></p>"
    yield listing(_controls(conclusions["controls"]))


def _titled(one: Listing) -> Iterator[str]:
    if one.rows:
        yield f"<h3>{escape(one.title)}</h3>{listing(one)}"


def _visits(conclusions: Conclusions) -> Listing:
    text = (
        "Cells that are compared are measured in an interleaved schedule: each is visited several times, in random "
        "order, so that a temporary slowdown of the machine affects all equally."
    )
    return Listing.of("Visits", text, conclusions["ended"], {
        "hardware": "hardware", "cells": "cells", "visits": "visits",
        "ended because": lambda row: ENDED.get(row["ended"], row["ended"]),
    })  # fmt: skip


def _planned(conclusions: Conclusions) -> Listing:
    text = (
        "What visits were expected to take when their job was submitted, and what they took. Node-hours are those "
        "of a job, which has as many nodes as its largest cell; those that a smaller cell does not use are idle."
    )
    return Listing.of("Planned and used", text, conclusions["planned"], {
        "hardware": "hardware", "kind": "kind",
        "nodes": lambda row: nodes_and_workers((row["nodes"], row["workers_per_node"])),
        "cells": "cells", "planned [s]": interval_of("planned_seconds"),
        "used [s]": lambda row: number(row["used_seconds"]),
        "used [node-hours]": lambda row: number(row["used_node_hours"]),
        "idle [node-hours]": lambda row: number(row["idle_node_hours"]),
        "cells as planned": "cells_as_planned",
    })  # fmt: skip


def _speedups(conclusions: Conclusions) -> Listing:
    rows = [{**curve, **at} for curve in conclusions["curves"] for at in curve["measured"][1:]]
    names = label(pd.DataFrame(rows), list(AXES)) if rows else ()
    named = [{**row, "curve": name} for name, row in zip(names, rows, strict=True)]
    return Listing.of("Measured speedups", "", named, {
        "curve": "curve", "workers": "ranks", "speedup": interval_of("speedup"),
        "half-width": lambda at: "∞" if at["half_width"] is None else f"± {100 * at['half_width']:.2g} %",
    })  # fmt: skip


def _disturbed(entries: Sequence[Mapping[str, Any]]) -> Listing:
    text = (
        "Iterations that something else disturbed are excluded from statistics, unless too little of their cell would "
        "be left."
    )
    return Listing.of("Disturbed iterations", text, entries, {
        "hardware": "hardware", "reason": "reason", "iterations": "iterations", "cells": "cells",
        "what became of them": disturbed_in_words,
    })  # fmt: skip


def _slow_nodes(entries: Sequence[Mapping[str, Any]]) -> Listing:
    text = (
        "The sentinel, the same matrix products on every node at both ends of each visit, takes longer there. "
        "Nothing is excluded for it: speedups are those of nodes of which one is slower."
    )
    return Listing.of("Slow nodes", text, entries, {
        "hardware": "hardware", "node": "node", "its time over that of the others": lambda row: number(row["ratio"]),
        "visits": "visits",
    })  # fmt: skip


def _controls(entries: Sequence[Mapping[str, Any]]) -> Listing:
    text = (
        "On one worker all presets do the same, and so does a compute cell of the same b. Their iteration times must "
        "agree; on hardware where any pair differs (at 5 % over all its pairs), verdicts are withheld."
    )
    none = "None: no two cells on one worker do the same."
    return Listing.of("A/A controls", text if entries else none, entries, {
        "hardware": "hardware", "network": "network", "b": "worker_batch", "first": "first", "second": "second",
        "second over first": interval_of("ratio"), "agrees": agrees_in_words,
    })  # fmt: skip


def validation(tables: Tables) -> Section:
    """Return how well more workers were predicted from fewer."""
    found = accuracy(tables.get("validation"))
    return Section("validation-table", found.title, listing(found))


def timing(entries: Sequence[Mapping[str, Any]]) -> Section:
    """Return the cost of timing and whether layers add up, with warnings first."""
    found = instrumentation(entries)
    if not found.rows:
        return Section("timing", found.title, paragraph("No training job ran."))
    warnings = "".join(f"<p><strong>{escape(line)}</strong></p>" for line in instrumentation_warnings(entries))
    return Section("timing", found.title, warnings + listing(found))
