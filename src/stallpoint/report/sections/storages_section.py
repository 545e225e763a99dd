"""Training data in numbers: how fast storages are, whether they feed the workers, and what staging or packing saves."""

from __future__ import annotations

from html import escape

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.storage_tables import answered
from stallpoint.report.html import Section, paragraph, table

FEW = 10
"""Rows of a table that stands open."""


def storages(conclusions: Conclusions) -> list[Section]:
    """The section; none where neither storages were read nor curves trained."""
    found = [
        f"<details{' open' if len(one.rows) <= FEW else ''}><summary>{escape(one.title)}</summary>{paragraph(one.text)}"
        f"{table(one.head, one.rows, one.about)}</details>"
        for one in answered(conclusions)
    ]
    return [Section("storages", "Training data in numbers", "".join(found))] if found else []
