"""How much time is saved by training without a part, compared with the part's time on the critical path?"""

from __future__ import annotations

from stallpoint.base.section import Absence, Section, TextTable, interval_of
from stallpoint.questions.study_tables import StudyTables
from stallpoint.questions.study_words import at_count, series, training

TITLE = "Causes by intervention"


def section(study: StudyTables) -> Section:
    """Return the section: a row for each measured point and excluded part."""
    rows = study.rows("interventions")
    if not rows:
        return Section("interventions", TITLE, "Why", "None was measured.", absence=Absence.NOT_MEASURED)
    text = "What training saves with one thing excluded for real, beside what the critical path says that it takes."
    grid = TextTable.of({
        "cell": lambda row: f"{training(row)}, {series(row)}, {at_count(row, int(row['ranks']))}",
        "excluded": "intervention", "saves": interval_of("saved", 1e3, " ms"),
        "parts that should go with it": "parts", "they take": interval_of("expected", 1e3, " ms"),
        "agree": lambda row: "yes" if row["agrees"] else "no",
    }, rows, file="models/interventions.parquet")  # fmt: skip
    return Section("interventions", TITLE, "Why", text, grids=(grid,))
