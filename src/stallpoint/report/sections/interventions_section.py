"""Causes by intervention: what leaving a thing out saves, beside what the critical path says."""

from __future__ import annotations

from stallpoint.findings.conclusions.answers import Conclusions
from stallpoint.findings.conclusions.conclusion_words import INTERVENTIONS_HEAD, intervention_in_words
from stallpoint.report.html import Section, paragraph, table


def interventions(conclusions: Conclusions) -> Section:
    """One row for each measured point and thing left out."""
    found = conclusions["interventions"]
    if not found:
        return Section("interventions", "Causes by intervention", paragraph("None was measured."))
    rows = [intervention_in_words(row) for row in found]
    return Section("interventions", "Causes by intervention", table(INTERVENTIONS_HEAD, rows, found))
