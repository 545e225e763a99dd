"""Remedies for each curve, ranked, with the cell that would confirm one, ready to be pasted into the study.

The first that help are shown; undecided and useless ones are folded below, in a line that counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from stallpoint.findings.conclusions.answer_findings import MAX_REMEDIES
from stallpoint.findings.conclusions.answers import Conclusions, competing, leading
from stallpoint.findings.conclusions.conclusion_words import (
    REMEDIES_HEAD,
    at_count,
    count,
    gained_in_words,
    named_in_words,
    remedy_in_words,
)
from stallpoint.models.answers.remedies import HELPS
from stallpoint.models.base.statistics import SAME_WITHIN
from stallpoint.report.charts.labels import AXES, label
from stallpoint.report.html import Section, belongs_to, paragraph, table
from stallpoint.text import listed, number

CAPTION = (
    "Predicted throughput over that predicted for training as it is, on the most workers that were measured. Helps: "
    f"the whole interval lies above a gain of {100 * SAME_WITHIN:.0f} %, as equal studies differ by about as much; "
    f"undecided: it holds {100 * SAME_WITHIN:.0f} %. At most: what the remedy avoids is taken to cost nothing "
    "afterwards. To confirm a remedy, add the lines of its cell to the study."
)


def remedies(conclusions: Conclusions) -> Section:
    """Return a table for each curve, open for those that answer; curves without remedies have none."""
    found = conclusions["curves"]
    shown_curves = [curve for curve in found if curve["remedies"]]
    if not shown_curves:
        return Section("remedies", "What would help", paragraph("No remedy is predicted to help."))
    names = dict(zip(map(id, found), label(pd.DataFrame(found), list(AXES)), strict=True))
    answering = {id(leading(alike)) for alike in competing(found)}
    shown_curves.sort(key=lambda curve: id(curve) not in answering)
    blocks = "".join(_curve(curve, names[id(curve)], shown=id(curve) in answering) for curve in shown_curves)
    return Section("remedies", "What would help", paragraph(CAPTION) + blocks)


def _curve(curve: Mapping[str, Any], name: str, *, shown: bool) -> str:
    entries: Sequence[Mapping[str, Any]] = curve["remedies"]
    first = [entry for entry in entries if entry["verdict"] == HELPS][:MAX_REMEDIES]
    others = [entry for entry in entries if entry not in first]
    headline = f"{named_in_words(first[0])}, {gained_in_words(first[0])}" if first else "nothing is sure to help"
    summary = f"{name}, {at_count(curve, entries[0]['ranks'])}: {headline}"
    counts = Counter(entry["verdict"] for entry in others)
    kinds = listed([f"{many} {verdict}" for verdict, many in counts.items()])
    more = f"<details><summary>{count(len(others), 'other')}: {escape(kinds)}</summary>{_table(others)}</details>"
    return (
        f"<details{' open' if shown else ''}{belongs_to(curve)}>"
        f"<summary>{escape(summary)}</summary>"
        f"{_table(first) if first else ''}{more if others else ''}</details>"
    )


def _table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the remedies, and below them their cells."""
    cells = "".join(map(_cell, entries))
    return table(REMEDIES_HEAD, [remedy_in_words(entry) for entry in entries]) + cells


def _cell(remedy: Mapping[str, Any]) -> str:
    if not remedy["cell"]:
        return ""
    hours = f" ({number(remedy['node_hours'], 2)} node-hours)" if remedy["node_hours"] is not None else ""
    summary = f"The cell that would confirm: {remedy['remedy']}{hours}"
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(remedy['cell'])}</pre></details>"
