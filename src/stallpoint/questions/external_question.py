"""What do a study's tables of external rates say? For a file of such rates, `stallpoint explain` says the same."""

from __future__ import annotations

from dataclasses import replace

from stallpoint.base.section import Absence, Section
from stallpoint.questions.study_tables import StudyTables

TITLE = "External tables"
MAX_ROWS_SHOWN = 10
"""Number of series whose answers are read first."""


def section(study: StudyTables) -> Section:
    """Return the section: a finding for each series of rates."""
    if study.external is None:
        missing = "Not known, because stallpoint_files is not installed, which reads tables of rates."
        return Section("external", TITLE, "Answer", missing, absence=Absence.NOT_INSTALLED)
    if not study.external:
        reason = "The study names no table of rates from elsewhere."
        return Section("external", TITLE, "Answer", reason, absence=Absence.NONE_FOUND)
    findings = tuple(replace(one, first=place < MAX_ROWS_SHOWN) for place, one in enumerate(study.external))
    return Section("external", TITLE, "Answer", findings=findings)
