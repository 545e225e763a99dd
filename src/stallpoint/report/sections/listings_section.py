"""Sections that are tables of findings: curves, interventions, validation, and training data in numbers."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import pandas as pd

from stallpoint.findings.conclusions.accuracy import accuracy
from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import CURVE_HEAD, curve_in_words, interventions, next_in_words
from stallpoint.findings.conclusions.storage_tables import answered
from stallpoint.findings.listing import Listing
from stallpoint.report.charts import Tables
from stallpoint.report.charts.labels import AXES, label
from stallpoint.report.html import Section, paragraph, table

HEAD = ["curve", *CURVE_HEAD, "measure next"]


def curves(conclusions: Conclusions) -> Section:
    """Return one row for each curve."""
    found = conclusions["curves"]
    if not found:
        return Section("curves", "Every curve", paragraph("None."))
    names = label(pd.DataFrame(found), list(AXES))
    rows = [[name, *curve_in_words(curve), next_in_words(curve)] for name, curve in zip(names, found, strict=True)]
    return Section("curves", "Every curve", table(HEAD, rows, found))


FEW = 10
"""Number of rows of a table that is shown unfolded."""


def intervened(conclusions: Conclusions) -> Section:
    """Return one row for each measured point and excluded part."""
    found = interventions(conclusions["interventions"])
    return Section("interventions", found.title, _listing(found) if found.rows else paragraph("None was measured."))


def validation(tables: Tables) -> Section:
    """Return how well more workers were predicted from fewer."""
    found = accuracy(tables.get("validation"))
    return Section("validation-table", found.title, _listing(found))


def storages(conclusions: Conclusions) -> list[Section]:
    """Return training data in numbers; none where neither storages were read nor curves trained."""
    found = "".join(_folded(answered(conclusions)))
    return [Section("storages", "Training data in numbers", found)] if found else []


def _folded(listings: Iterable[Listing]) -> Iterable[str]:
    for one in listings:
        opened = " open" if len(one.rows) <= FEW else ""
        yield f"<details{opened}><summary>{escape(one.title)}</summary>{_listing(one)}</details>"


def _listing(one: Listing) -> str:
    return paragraph(one.text) + (table(one.head, one.rows, one.about, file=one.file) if one.rows else "")
