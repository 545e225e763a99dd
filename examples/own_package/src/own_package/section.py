"""A section: which network of a study has the shortest iteration."""

from stallpoint.base.section import Absence, Finding, Section
from stallpoint.questions.study_tables import StudyTables

TITLE = "The shortest iteration"


def section(study: StudyTables) -> Section:
    """Return one finding over all measured points."""
    measured = study.tables["predictions"].dropna(subset=["measured_iteration"])
    if measured.empty:
        return Section("fastest", TITLE, "Answer", "Nothing was trained.", absence=Absence.NOT_MEASURED)
    row = measured.loc[measured["measured_iteration"].idxmin()]
    seconds = float(row["measured_iteration"])
    found = Finding("fastest", row["network"], f"{1e3 * seconds:.0f} ms", value=seconds, unit="s")
    return Section("fastest", TITLE, "Answer", findings=(found,))
