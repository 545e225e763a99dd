"""Sections that are tables of findings: interventions, validation, and training data in numbers."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from stallpoint.findings.conclusions.accuracy import accuracy
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import interventions
from stallpoint.findings.conclusions.storage_tables import answered
from stallpoint.findings.listing import Listing
from stallpoint.report.charts import Tables
from stallpoint.report.html import Section, paragraph, table

FEW = 10
"""Rows of a table that stands open."""


def intervened(conclusions: Conclusions) -> Section:
    """One row for each measured point and thing left out."""
    found = interventions(conclusions["interventions"])
    return Section("interventions", found.title, _listing(found) if found.rows else paragraph("None was measured."))


def validation(tables: Tables) -> Section:
    """How well more workers were predicted from fewer."""
    found = accuracy(tables.get("validation"))
    return Section("validation-table", found.title, _listing(found))


def storages(conclusions: Conclusions) -> list[Section]:
    """Training data in numbers; none where neither storages were read nor curves trained."""
    found = "".join(_folded(answered(conclusions)))
    return [Section("storages", "Training data in numbers", found)] if found else []


def _folded(listings: Iterable[Listing]) -> Iterable[str]:
    for one in listings:
        opened = " open" if len(one.rows) <= FEW else ""
        yield f"<details{opened}><summary>{escape(one.title)}</summary>{_listing(one)}</details>"


def _listing(one: Listing) -> str:
    return paragraph(one.text) + (table(one.head, one.rows, one.about, file=one.file) if one.rows else "")
